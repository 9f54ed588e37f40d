"""Sessions are found by what users know of them."""

import pytest

from instrumentation.accounting.call_addresses import meant
from pager.errors import ConfigError
from pager.log.events import SessionOpened
from pager.log.store import Batch
from pager.log.stores.memory.store import Store
from pager.request_values import CallAddress


@pytest.fixture
def store():
    store = Store()
    for session, key in (("s_1a", "demo"), ("s_1b", "twice"), ("s_2c", "twice"), ("s_3d", "")):
        opened = SessionOpened(tenant="local", key=key, source="x-session-id")
        store.append(Batch(session, 0.0, [opened])).result()
    return store


def test_a_session_is_found_by_its_id_its_beginning_or_what_the_client_calls_it(store):
    assert meant(store, "s_1a") == "s_1a"
    assert meant(store, "s_3") == "s_3d"
    assert meant(store, "demo") == "s_1a"


@pytest.mark.parametrize("name", ["s_1", "twice", "dem", ""])
def test_a_name_of_several_sessions_or_of_none_is_an_error(store, name):
    with pytest.raises(ConfigError):
        meant(store, name)


@pytest.mark.parametrize(
    ("text", "address"),
    [("0:31", CallAddress(0, 31)), ("2:12#2", CallAddress(2, 12, 2)), ("0:1#3", CallAddress(0, 1, 3))],
)
def test_an_address_is_read_as_it_is_written(text, address):
    assert (str(address), CallAddress.parse(text)) == (text, address)
    assert CallAddress.parse("12") == CallAddress(0, 12)
    assert CallAddress.parse("call 12") is None
