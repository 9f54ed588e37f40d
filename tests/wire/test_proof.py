"""What went upstream, rebuilt from the log alone, is what the upstream received."""

from contextlib import closing

import openai
import pytest
from anthropic import Anthropic

from instrumentation.accounting.logged_prompts import outgoing
from pager.errors import StoreCorrupt
from pager.log.events import (
    AnswerFinished,
    LegFinished,
    PromptCounted,
    Repacked,
)
from pager.log.stores import open_store
from pager.request_values import CallAddress
from pager.testing.scripted import (
    Call,
    PageIn,
    Say,
    Script,
)
from pager.wire import dialects

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
CALLS = 8


def text(number, lines=90):
    return "\n".join(f"line {line} of result {number}: {number * line}" for line in range(lines))


def script():
    answers = [Say(calls=[Call("read", {"number": number})]) for number in range(CALLS)]
    answers[6] = PageIn(answers[6])
    return Script([*answers, PageIn(Say("done"), times=9)])


def chat(url, lines=90):
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    messages = [{"role": "user", "content": "Read them all."}]
    for number in range(CALLS + 1):
        answer = client.chat.completions.create(model="scripted-1", messages=messages, tools=TOOLS).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        for call in answer.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text(number, lines)})
    return answer.content


def messages(url):
    client = Anthropic(base_url=url.removesuffix("/v1"), api_key="k", max_retries=0)
    tools = [{"name": "read", "input_schema": {"type": "object", "properties": {}}}]
    said = [{"role": "user", "content": "Read them all."}]
    for number in range(CALLS + 1):
        answer = client.messages.create(
            model="scripted-1", max_tokens=99, messages=said, tools=tools, system="Be brief."
        )
        said.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": text(number)}
            for block in answer.content
            if block.type == "tool_use"
        ]
        said.append({"role": "user", "content": results})
    return answer.content[0].text


def test_the_prompt_of_every_call_is_counted_paged_or_not(start_proxy, scripted):
    answers = [Say(calls=[Call("read", {"number": number})]) for number in range(CALLS)]
    scripted.play(Script([*answers, Say("done")]))
    with start_proxy("--policy", "fifo_age", "--paging-policy-options", "{ age = 2 }") as proxy:
        assert chat(proxy.url, lines=1_100) == "done"
    with closing(open_store(f"sqlite:{proxy.data_dir}")) as store:
        log = [row.event for row in store.events()]
    counted = {event.call for event in log if isinstance(event, PromptCounted) and event.estimate}
    at_once = {event.call for event in log if isinstance(event, AnswerFinished) and event.estimate}
    assert counted | at_once == set(range(1, CALLS + 2))
    assert any(event.sent for event in log if isinstance(event, AnswerFinished) and event.call in counted)


@pytest.mark.parametrize("play", [chat, messages], ids=["chat", "messages"])
def test_every_request_that_went_upstream_is_rebuilt_from_the_log_byte_for_byte(play, start_proxy, scripted):
    scripted.play(script())
    with start_proxy("--policy", "fifo_age", "--paging-policy-options", "{ age = 2 }") as proxy:
        assert play(proxy.url) == "done"
    store = open_store(f"sqlite:{proxy.data_dir}")
    try:
        log = list(store.events())
        answered = [row.event for row in log if isinstance(row.event, AnswerFinished)]
        rebuilt = [outgoing(log, CallAddress(one.branch, one.call), store.blob, dialects.load) for one in answered]
        assert [body for bodies in rebuilt for body in bodies] == [one.body for one in scripted.received]
        assert [one.legs for one in answered] == [0] * 6 + [1, 0, 5]
        assert sum(isinstance(row.event, LegFinished) for row in log) == 6
        # A log from which a decision is missing proves nothing.
        gone = [row for row in log if not isinstance(row.event, Repacked)]
        with pytest.raises(StoreCorrupt, match="can't be proven"):
            outgoing(gone, CallAddress(answered[-1].branch, answered[-1].call), store.blob, dialects.load)
        with pytest.raises(StoreCorrupt, match="has no answer"):
            outgoing(log, CallAddress(0, 99), store.blob, dialects.load)
    finally:
        store.close()
