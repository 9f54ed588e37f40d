"""What asyncio reports beside the calls, as the log of the proxy shows it."""

import asyncio
import gc
import logging

import pytest

from pager.proxy.serving.main import is_a_fault


@pytest.fixture
def reported(caplog):
    logger = logging.getLogger("asyncio")
    logger.addFilter(is_a_fault)
    yield caplog
    logger.removeFilter(is_a_fault)


def forgotten(error):
    """Have a task fail that nobody asks for its result."""

    async def fail():
        raise error

    async def play():
        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        del task
        gc.collect()

    asyncio.run(play())


def test_a_task_that_fails_unseen_is_reported(reported):
    forgotten(RuntimeError("a fault of ours"))
    assert "Task exception was never retrieved" in reported.text
    assert "a fault of ours" in reported.text


def test_a_connection_that_somebody_else_broke_is_not(reported):
    forgotten(ConnectionResetError("the client left"))
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    assert reported.text == ""
