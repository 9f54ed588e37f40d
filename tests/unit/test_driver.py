"""Steps of a call that no wire can bring to fail."""

import asyncio

from pager.config.settings import Settings
from pager.proxy.call import Pipeline
from pager.proxy.upstream import Upstream


class Unsliceable(bytes):
    """A body on which any decoder fails by a fault of ours."""

    def __getitem__(self, at):
        raise RuntimeError("a fault of ours")


def test_a_fault_of_ours_while_a_body_is_unpacked_stops_no_call():
    settings = Settings()
    pipeline = Pipeline(settings, Upstream(settings.upstream, {}), None, {})
    body = Unsliceable(b"any bytes")
    for encoding in ("gzip", "br", "zstd"):
        assert asyncio.run(pipeline._decoded(body, encoding)) == (body, "the body could not be decompressed")
    assert pipeline.failed_steps == 3
