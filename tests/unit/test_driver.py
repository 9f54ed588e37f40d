"""Steps of the driver that no wire can bring to fail."""

import asyncio

from pager.config.settings import Settings
from pager.proxy.call import Driver
from pager.proxy.upstream import Upstream


class Unsliceable(bytes):
    """A body on which any decoder fails by a fault of ours."""

    def __getitem__(self, at):
        raise RuntimeError("a fault of ours")


def test_a_fault_of_ours_while_a_body_is_unpacked_stops_no_call():
    settings = Settings()
    driver = Driver(settings, Upstream(settings.upstream, {}), None, {})
    body = Unsliceable(b"any bytes")
    for encoding in ("gzip", "br", "zstd"):
        assert asyncio.run(driver._decoded(body, encoding)) == (body, "the body could not be decompressed")
    assert driver.failed_steps == 3
