"""The unmodified anthropic SDK sees no difference between the provider and the proxy in front of it."""

import asyncio

import anthropic
import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from pydantic import BaseModel

from pager.testing.scripted import (
    Call,
    Drop,
    Fail,
    Say,
    Script,
    Slow,
    Stumble,
)

QUESTION = [{"role": "user", "content": "How is the weather in Rīga? ☔"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": "weather", "description": "The weather now.", "input_schema": SCHEMA}]
RIGA, VILNIUS = Call("weather", {"city": "Rīga"}), Call("weather", {"city": "Vilnius"})
RAIN = Say("It rains in Rīga,\n  as it should. ☔")


class Weather(BaseModel):
    city: str
    degrees: int


def client(root, **options):
    return Anthropic(base_url=root, api_key="sk-ant-test", **{"max_retries": 0, **options})


def ask(sdk, **more):
    return sdk.messages.create(**{"model": "claude-opus-5-5", "max_tokens": 1000, "messages": QUESTION, **more})


def stream_of(sdk, **more):
    return sdk.messages.stream(**{"model": "claude-opus-5-5", "max_tokens": 1000, "messages": QUESTION, **more})


def test_a_message_is_the_providers(both, told):
    def act(root):
        with client(root) as sdk:
            raw = sdk.messages.with_raw_response.create(model="claude-opus-5-5", max_tokens=1000, messages=QUESTION)
            return raw.status_code, told(raw.headers), raw.text(), raw.parse().model_dump()

    status, headers, _, message = both(Script([Say("Rain.", [RIGA], "Hm, grey.")]), act)
    assert status == 200
    assert dict(headers)["request-id"] == "req_000000000000000000000001"
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert message["stop_reason"] == "tool_use"


def test_message_events_are_the_providers(both):
    def act(root):
        with client(root) as sdk, ask(sdk, stream=True) as stream:
            return [event.model_dump() for event in stream]

    events = both(Script([Say("Let me see.", [RIGA, VILNIUS], "I should look.")]), act)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    deltas = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert set(deltas) == {"thinking_delta", "signature_delta", "text_delta", "input_json_delta"}


def test_pings_and_raw_bytes_pass(both):
    def act(root):
        body = {"model": "claude-opus-5-5", "max_tokens": 9, "stream": True, "messages": QUESTION}
        with httpx2.Client(trust_env=False) as http:
            return http.post(f"{root}/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"}).content

    assert b'event: ping\ndata: {"type":"ping"}\n\n' in both(Script([RAIN]), act)


def test_streamed_and_whole_messages_are_the_same(both):
    def act(root):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        with client(root) as sdk, stream_of(sdk, thinking=thinking, max_tokens=2000) as stream:
            return stream.get_final_message().content, ask(sdk).content

    say = Say("Let me see.", [RIGA], "I should look.")
    streamed, whole = both(Script([say, say]), act)
    assert [(block.type, getattr(block, "input", None)) for block in streamed] == [
        (block.type, getattr(block, "input", None)) for block in whole
    ]
    assert streamed[0].signature


def test_a_tool_loop_with_thinking_runs_to_its_end(both, scripted):
    def act(root):
        messages, said = list(QUESTION), []
        with client(root) as sdk:
            while True:
                with stream_of(sdk, messages=messages, tools=TOOLS) as stream:
                    answer = stream.get_final_message()
                said.append([block.type for block in answer.content])
                calls = [block for block in answer.content if block.type == "tool_use"]
                if not calls:
                    return said
                results = [{"type": "tool_result", "tool_use_id": call.id, "content": "12 °C"} for call in calls]
                messages += [
                    {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]},
                    {"role": "user", "content": results},
                ]

    said = both(Script([Say(calls=[RIGA, VILNIUS], reasoning="Two cities."), RAIN]), act)
    assert said == [["thinking", "tool_use", "tool_use"], ["text"]]
    assert scripted.received[1].json()["messages"][1]["content"][0]["signature"]


def test_the_providers_cache_is_told_as_it_is(both):
    system = [{"type": "text", "text": "word " * 2000, "cache_control": {"type": "ephemeral"}}]

    def act(root):
        with client(root) as sdk:
            first, second = ask(sdk, system=system), ask(sdk, system=system)
            with stream_of(sdk, system=system) as stream:
                return [message.usage.model_dump() for message in (first, second, stream.get_final_message())]

    first, *others = both(Script([RAIN] * 3), act)
    assert first["cache_creation_input_tokens"] > 2000
    assert first["cache_read_input_tokens"] == 0
    for usage in others:
        assert usage["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
        assert usage["cache_creation_input_tokens"] == 0


def test_structured_output_is_parsed(both):
    def act(root):
        with client(root) as sdk:
            request = {"model": "claude-opus-5-5", "max_tokens": 1000, "messages": QUESTION}
            return sdk.messages.parse(**request, output_format=Weather).parsed_output

    assert both(Script([Say('{"city": "Rīga", "degrees": 12}')]), act) == Weather(city="Rīga", degrees=12)


def test_tokens_are_counted_by_the_provider(both):
    def act(root):
        with client(root) as sdk:
            return sdk.messages.count_tokens(model="claude-opus-5-5", messages=QUESTION, tools=TOOLS).input_tokens

    assert both(Script(), act) > 30


def test_models_are_listed(both):
    def act(root):
        with client(root) as sdk:
            return [model.model_dump() for model in sdk.models.list()]

    assert [model["id"] for model in both(Script(), act)] == ["scripted-1", "scripted-2"]


def test_async_clients_run_calls_side_by_side(both):
    async def session(root):
        async with AsyncAnthropic(base_url=root, api_key="sk-ant-test", max_retries=0) as sdk:
            whole = await asyncio.gather(*(ask(sdk) for _ in range(5)))
            async with stream_of(sdk) as stream:
                text = await stream.get_final_text()
        return {answer.content[0].text for answer in whole} | {text}

    assert both(Script([RAIN], repeat=True), lambda root: asyncio.run(session(root))) == {RAIN.text}


FAILURES = [
    Fail(400, message="messages: at least one message is required"),
    Fail(401),
    Fail(403),
    Fail(404),
    Fail(413),
    Fail(429, headers={"retry-after": "7", "anthropic-ratelimit-requests-reset": "2026-11-16T01:00:00Z"}),
    Fail(429, headers={"retry-after-ms": "7000", "x-should-retry": "false"}),
    Fail(500),
    Fail(503, b"upstream connect error", {"content-type": "text/plain"}),
    Fail(529, headers={"x-should-retry": "true"}),
]


@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: f"{fail.status}-{len(fail.headers)}")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_errors_are_the_providers(both, outcome, stream, fail):
    # The SDK obeys x-should-retry even where retries are off, so that answer is given twice.
    def act(root):
        with client(root) as sdk:
            return outcome(lambda: ask(sdk, stream=stream))

    kind, status, headers, _ = both(Script([fail] * 2), act)
    assert issubclass(kind, anthropic.APIStatusError)
    assert status == fail.status
    assert set(fail.headers.items()) <= set(headers)
    assert dict(headers)["request-id"]


def test_retries_reach_the_provider_byte_for_byte(both, scripted):
    def act(root):
        with client(root, max_retries=3) as sdk:
            return ask(sdk).content[0].text

    at_once = {"retry-after-ms": "1"}
    script = Script([Fail(529, headers=at_once), Fail(429, headers=at_once), Fail(500, headers=at_once), RAIN])
    assert both(script, act) == RAIN.text
    assert len(scripted.received) == 4
    assert len({received.body for received in scripted.received}) == 1


def test_an_error_inside_a_stream_reaches_the_client(both, outcome):
    def act(root):
        with client(root) as sdk, ask(sdk, stream=True) as stream:
            return outcome(lambda: list(stream))

    kind, _, _, body = both(Script([Stumble(4, RAIN, "Overloaded")]), act)
    assert issubclass(kind, anthropic.APIStatusError)
    assert body["error"] == {"type": "overloaded_error", "message": "Overloaded"}


def test_a_broken_stream_stays_broken(both, outcome):
    def act(root):
        seen = []
        with client(root) as sdk, ask(sdk, stream=True) as stream:
            failure = outcome(lambda: seen.extend(event.model_dump() for event in stream))
        return failure, seen

    (kind, *_), seen = both(Script([Drop(6, RAIN)]), act)
    assert kind.__name__ in {"RemoteProtocolError", "APIConnectionError"}
    assert len(seen) == 5  # the ping is not shown


def test_a_broken_body_stays_broken(both, outcome):
    def act(root):
        with client(root) as sdk:
            return outcome(lambda: ask(sdk))[0]

    assert both(Script([Drop(1, RAIN)]), act).__name__ in {"RemoteProtocolError", "APIConnectionError"}


def test_a_client_that_times_out_is_gone_upstream_too(both, scripted, outcome, eventually):
    def act(root):
        with client(root, timeout=2.0) as sdk:
            kind = outcome(lambda: ask(sdk))[0]
        assert eventually(lambda: scripted.received[0].left_at)
        return kind

    assert both(Script([Slow(600, RAIN)]), act) is anthropic.APITimeoutError
