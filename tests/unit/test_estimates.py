"""Counts of prompts, and what is learned from the provider's own."""

import asyncio
import json

import pytest
from chat_items import user
from logged_sessions import incoming

from pager.log.stores import open_store
from pager.pricing.catalog import family_of
from pager.pricing.tokens import Counter
from pager.proxy.call_log import CallLog
from pager.proxy.token_counting import COUNTED_AT_ONCE, Estimates
from pager.wire import dialects

CHAT = dialects.load("chat")
TOOLS = [{"type": "function", "function": {"name": "run", "description": "run it " * 200}}]


class Counted:
    """Prompts counted as they are received."""

    def __init__(self):
        self.call_log = CallLog(open_store("memory:"), dialects.load, 10)
        self.estimates = Estimates()

    def __call__(self, *messages, **more):
        async def play():
            return await self.estimates.count(await self.entry(*messages, **more))

        return asyncio.run(play())

    async def entry(self, *messages, **more):
        return await self.call_log.receive(incoming(*messages, **{"tools": TOOLS, **more}))


def plainly(*messages, model="gpt-4o", tools=True):
    counter, family = Counter(), family_of(model)
    decoded = [CHAT.decode(json.dumps(message).encode()) for message in messages]
    around = counter.count(json.dumps(TOOLS), family) if tools else 0
    return sum(counter.count_message(message, family) for message in decoded) + around


LARGE = "The harbour master counts the boats. " * (COUNTED_AT_ONCE // 20)


def test_every_prompt_of_a_growing_history_is_counted_as_if_it_were_the_first():
    counted, history = Counted(), []
    for text in ("one", LARGE, "three", "four"):
        history += [user(text), {"role": "assistant", "content": f"to {text[:5]}"}]
        assert counted(*history[:-1]) == plainly(*history[:-1])


def test_a_history_that_is_rewritten_in_the_middle_is_counted_anew_from_there():
    counted, headers = Counted(), {"x-session-id": "s"}
    counted(user("one"), user("two"), user("three"), headers=headers)
    assert counted(user("one"), user("zwei"), user("three"), headers=headers) == plainly(
        user("one"), user("zwei"), user("three")
    )


def test_a_change_of_model_in_mid_session_counts_with_the_new_ones_tokens():
    counted, headers = Counted(), {"x-session-id": "s"}
    counted(user(LARGE), headers=headers)
    both = (user(LARGE), user("next"))
    assert counted(*both, headers=headers, model="claude-sonnet-4-5") == plainly(*both, model="claude-sonnet-4-5")


PROMPTS = {"one long text": [user(LARGE * 100)], "many messages": [user(f"{n} {LARGE}") for n in range(100)]}


@pytest.mark.parametrize("messages", PROMPTS.values(), ids=PROMPTS)
def test_a_small_prompt_does_not_wait_for_a_large_one(messages):
    async def play():
        counted = Counted()
        await counted.estimates.warm_up()
        entry, other = [await counted.call_log.receive(incoming(*prompt)) for prompt in (messages, [user(LARGE)])]
        large = asyncio.create_task(counted.estimates.count(entry))
        await asyncio.sleep(0)
        small = await counted.estimates.count(other)
        waiting = not large.done()
        return small, waiting, await large

    small, waiting, large = asyncio.run(play())
    assert waiting
    assert (small, large) == (plainly(user(LARGE), tools=False), plainly(*messages, tools=False))


def test_a_prompt_of_many_messages_is_counted_in_turns_as_in_one():
    messages = [user(f"{number} {LARGE}") for number in range(30)]
    assert Counted()(*messages) == plainly(*messages)


def test_a_large_prompt_whose_first_message_has_no_text_is_counted():
    messages = (user(""), user(LARGE))
    assert Counted()(*messages) == plainly(*messages)
