"""Memory given back after a burst."""

import asyncio

from pager.proxy.serving.memory_trim import WORTH_IT, Memory, give_back

CALM = 0.01


def given_back(*bursts):
    """How often memory is given back; each burst is the sizes of bodies whose calls are under way together."""
    times = []

    async def play():
        memory = Memory(lambda: times.append(1), CALM)
        for sizes in bursts:
            with memory:
                for size in sizes:
                    memory.passed(size)
                await asyncio.sleep(5 * CALM)
                assert len(times) <= bursts.index(sizes), "while a call is under way"
        await asyncio.sleep(5 * CALM)

    asyncio.run(play())
    return len(times)


def test_memory_is_given_back_once_when_a_burst_of_large_calls_is_over():
    assert given_back([WORTH_IT // 2, WORTH_IT // 2]) == 1


def test_what_small_calls_passed_adds_up():
    assert given_back([WORTH_IT // 2], [WORTH_IT // 2]) == 1


def test_small_calls_leave_nothing_to_give_back():
    assert given_back([1_000], [1_000]) == 0


def test_a_call_that_comes_in_time_puts_it_off():
    async def play():
        times = []
        memory = Memory(lambda: times.append(1), 3_600)
        with memory:
            memory.passed(WORTH_IT)
        with memory:
            await asyncio.sleep(CALM)
        return times

    assert asyncio.run(play()) == []


def test_giving_memory_back_works_on_every_system():
    give_back()
