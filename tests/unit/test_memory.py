"""Memory given back after a burst."""

import asyncio

import psutil

from pager.proxy.serving import memory_trim


def resident():
    return psutil.Process().memory_info().rss


def test_what_a_burst_left_behind_is_handed_back_when_it_is_calm():
    async def play():
        watch = memory_trim.Memory()
        before = resident()
        with watch:
            held = [bytes(50_000) for _ in range(4000)]
            watch.passed(sum(map(len, held)))
            kept = held[::100]
            del held
        with watch:
            await asyncio.sleep(memory_trim.CALM * 1.5)
            busy = watch._passed
        await asyncio.sleep(memory_trim.CALM * 1.5)
        return before, resident(), busy, watch._passed, len(kept)

    before, after, while_busy, at_the_end, _ = asyncio.run(play())
    assert while_busy > memory_trim.WORTH_IT
    assert at_the_end == 0
    assert after - before < 100 << 20


def test_small_calls_leave_nothing_to_tidy():
    async def play():
        watch = memory_trim.Memory()
        with watch:
            watch.passed(1000)
        return watch._timer

    assert asyncio.run(play()) is None
