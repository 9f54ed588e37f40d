"""The unmodified openai SDK sees no difference between the provider and the proxy in front of it."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
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

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is the weather in Rīga? ☔"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Now.", "parameters": WEATHER}}]
TOOLS = [{"type": "function", "name": "weather", "description": "Now.", "parameters": WEATHER, "strict": True}]
RIGA, VILNIUS = Call("weather", {"city": "Rīga"}), Call("weather", {"city": "Vilnius"})
RAIN = Say("It rains in Rīga,\n  as it should. ☔")


class Weather(BaseModel):
    city: str
    degrees: int


def client(root, **options):
    return OpenAI(base_url=f"{root}/v1", api_key="sk-test", **{"max_retries": 0, **options})


def chat(sdk, **more):
    return sdk.chat.completions.create(**{"model": "gpt-5.5", "messages": QUESTION, **more})


def respond(sdk, **more):
    return sdk.responses.create(**{"model": "gpt-5.5", "input": QUESTION, **more})


def test_a_chat_answer_is_the_providers(both, told):
    def act(root):
        with client(root) as sdk:
            raw = sdk.chat.completions.with_raw_response.create(model="gpt-5.5", messages=QUESTION)
            return raw.status_code, told(raw.headers), raw.text, raw.parse().model_dump()

    status, headers, _, answer = both(Script([RAIN]), act)
    assert status == 200
    assert dict(headers)["x-request-id"] == "req_000000000000000000000001"
    assert answer["choices"][0]["message"]["content"] == RAIN.text
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] > 20


@pytest.mark.parametrize("include_usage", [True, False])
def test_chat_chunks_are_the_providers(both, include_usage):
    def act(root):
        with client(root) as sdk, chat(sdk, stream=True, stream_options={"include_usage": include_usage}) as stream:
            return [chunk.model_dump() for chunk in stream]

    chunks = both(Script([RAIN]), act)
    assert "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in chunks if chunk["choices"]) == RAIN.text
    assert [bool(chunk["usage"]) for chunk in chunks].count(True) == include_usage
    assert (chunks[-1]["choices"] == []) is include_usage


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_tool_loop_runs_to_its_end(both, stream):
    def act(root):
        said, messages = [], list(QUESTION)
        with client(root) as sdk:
            while True:
                message = _chat_message(sdk, messages, stream=stream)
                said.append(message)
                if not message.get("tool_calls"):
                    return said
                results = [
                    {"role": "tool", "tool_call_id": call["id"], "content": call["function"]["arguments"]}
                    for call in message["tool_calls"]
                ]
                messages += [message, *results]

    said = both(Script([Say("Looking.", [RIGA]), Say(calls=[RIGA, VILNIUS]), RAIN]), act)
    assert [len(message.get("tool_calls") or []) for message in said] == [1, 2, 0]
    assert said[1]["tool_calls"][1]["function"] == {"name": "weather", "arguments": VILNIUS.text}
    assert len({call["id"] for message in said for call in message.get("tool_calls") or []}) == 3


def _chat_message(sdk, messages, *, stream):
    request = {"model": "gpt-5.5", "messages": messages, "tools": CHAT_TOOLS, "parallel_tool_calls": True}
    if not stream:
        message = sdk.chat.completions.create(**request).choices[0].message
    else:
        with sdk.chat.completions.stream(**request) as events:
            message = events.get_final_completion().choices[0].message
    return message.model_dump(
        exclude_none=True, exclude={"parsed": True, "tool_calls": {"__all__": {"function": {"parsed_arguments"}}}}
    )


def test_a_growing_chat_is_read_from_the_providers_cache(both):
    long = [{"role": "user", "content": "word " * 2000}]

    def act(root):
        with client(root) as sdk:
            usages = [chat(sdk, messages=[*long, *[{"role": "user", "content": "more"}] * n]).usage for n in range(2)]
            return [usage.prompt_tokens_details.cached_tokens for usage in usages]

    cached = both(Script([RAIN, RAIN]), act)
    assert cached[0] == 0
    assert cached[1] >= 2048


def test_chat_reasoning_and_refusals_pass(both):
    def act(root):
        with client(root) as sdk:
            whole = chat(sdk).choices[0]
            with chat(sdk, stream=True) as stream:
                deltas = [chunk.choices[0].delta.model_dump() for chunk in stream]
            return whole.model_dump(), deltas, chat(sdk).choices[0].finish_reason

    thinking = Say("Rain.", reasoning="The sky is grey, so …")
    whole, deltas, finish = both(Script([thinking, thinking, Say("", finish="refusal")]), act)
    assert whole["message"]["reasoning_content"] == thinking.reasoning
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == thinking.reasoning
    assert finish == "content_filter"


def test_structured_output_is_parsed(both):
    def act(root):
        with client(root) as sdk:
            chatted = sdk.chat.completions.parse(model="gpt-5.5", messages=QUESTION, response_format=Weather)
            responded = sdk.responses.parse(model="gpt-5.5", input=QUESTION, text_format=Weather)
            return chatted.choices[0].message.parsed, responded.output_parsed

    answer = Say('{"city": "Rīga", "degrees": 12}')
    assert both(Script([answer, answer]), act) == (Weather(city="Rīga", degrees=12), Weather(city="Rīga", degrees=12))


def test_a_response_is_the_providers(both, told):
    def act(root):
        with client(root) as sdk:
            raw = sdk.responses.with_raw_response.create(
                model="gpt-5.5", input=QUESTION, tools=TOOLS, include=["reasoning.encrypted_content"], store=False
            )
            return told(raw.headers), raw.text, raw.parse().model_dump()

    _, _, answer = both(Script([Say("Let me see.", [RIGA], "I should look.")]), act)
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call"]
    assert answer["output"][0]["encrypted_content"]
    assert answer["status"] == "completed"


def test_response_events_are_the_providers(both):
    def act(root):
        with client(root) as sdk, respond(sdk, stream=True, tools=TOOLS) as stream:
            return [event.model_dump() for event in stream]

    events = both(Script([Say("Let me see.", [RIGA, VILNIUS], "I should look.")]), act)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.done") == 4
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]


def test_a_responses_tool_loop_runs_to_its_end(both):
    def act(root):
        items, said = list(QUESTION), []
        with client(root) as sdk:
            while True:
                with sdk.responses.stream(model="gpt-5.5", input=items, tools=TOOLS, store=False) as stream:
                    stream.until_done()
                    answer = stream.get_final_response()
                said.append(answer.output_text)
                calls = [item for item in answer.output if item.type == "function_call"]
                if not calls:
                    return said
                items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
                items += [{"type": "function_call_output", "call_id": call.call_id, "output": "12"} for call in calls]

    assert both(Script([Say(calls=[RIGA, VILNIUS], reasoning="Hm."), RAIN]), act) == ["", RAIN.text]


def test_a_response_that_hits_its_limit_is_incomplete(both):
    def act(root):
        with client(root) as sdk, respond(sdk, stream=True) as stream:
            return [event.model_dump() for event in stream][-1]

    last = both(Script([Say("It ra", finish="length")]), act)
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_models_are_listed(both):
    def act(root):
        with client(root) as sdk:
            return [model.model_dump() for model in sdk.models.list()]

    assert [model["id"] for model in both(Script(), act)] == ["scripted-1", "scripted-2"]


def test_async_clients_run_calls_side_by_side(both):
    async def session(root):
        async with AsyncOpenAI(base_url=f"{root}/v1", api_key="sk-test", max_retries=0) as sdk:
            whole = await asyncio.gather(*(chat(sdk) for _ in range(5)))
            stream = await respond(sdk, stream=True)
            async with stream:
                kinds = [event.type async for event in stream]
        return {answer.choices[0].message.content for answer in whole}, kinds

    texts, kinds = both(Script([RAIN], repeat=True), lambda root: asyncio.run(session(root)))
    assert texts == {RAIN.text}
    assert kinds[-1] == "response.completed"


FAILURES = [
    Fail(400, message="bad"),
    Fail(401),
    Fail(403),
    Fail(404),
    Fail(409),
    Fail(413, b"<html>too large</html>", {"content-type": "text/html"}),
    Fail(422),
    Fail(429, headers={"retry-after": "7", "x-ratelimit-reset-requests": "7s"}),
    Fail(429, headers={"retry-after-ms": "7000", "x-should-retry": "false"}),
    Fail(500),
    Fail(502, b"", {"content-type": "text/plain"}),
    Fail(503, headers={"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}),
    Fail(529),
]


@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: f"{fail.status}-{len(fail.headers)}")
@pytest.mark.parametrize("ask", [chat, respond], ids=["chat", "responses"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_errors_are_the_providers(both, outcome, ask, stream, fail):
    def act(root):
        with client(root) as sdk:
            return outcome(lambda: ask(sdk, stream=stream))

    kind, status, headers, _ = both(Script([fail]), act)
    assert issubclass(kind, openai.APIStatusError)
    assert status == fail.status
    assert set(fail.headers.items()) <= set(headers)
    assert dict(headers)["x-request-id"]


def test_retries_reach_the_provider_byte_for_byte(both, scripted):
    def act(root):
        with client(root, max_retries=3) as sdk:
            return chat(sdk).choices[0].message.content

    at_once = {"retry-after-ms": "1"}
    script = Script([Fail(500, headers=at_once), Fail(429, headers=at_once), Fail(409, headers=at_once), RAIN])
    assert both(script, act) == RAIN.text
    assert len(scripted.received) == 4
    assert len({received.body for received in scripted.received}) == 1
    assert [received.header("x-stainless-retry-count") for received in scripted.received] == ["0", "1", "2", "3"]


def test_an_error_inside_a_chat_stream_reaches_the_client(both, outcome):
    def act(root):
        with client(root) as sdk, chat(sdk, stream=True) as stream:
            return outcome(lambda: list(stream))

    kind, _, _, body = both(Script([Stumble(3, RAIN, "overloaded")]), act)
    assert kind is openai.APIError
    assert body["message"] == "overloaded"


def test_an_error_inside_a_responses_stream_reaches_the_client(both):
    def act(root):
        with client(root) as sdk, respond(sdk, stream=True) as stream:
            return [event.model_dump() for event in stream][-1]

    assert both(Script([Stumble(5, RAIN, "overloaded")]), act)["message"] == "overloaded"


@pytest.mark.parametrize("ask", [chat, respond], ids=["chat", "responses"])
def test_a_broken_stream_stays_broken(both, outcome, ask):
    def act(root):
        seen = []
        with client(root) as sdk, ask(sdk, stream=True) as stream:
            failure = outcome(lambda: seen.extend(event.model_dump() for event in stream))
        return failure, seen

    (kind, *_), seen = both(Script([Drop(4, RAIN)]), act)
    assert issubclass(kind, openai.APIConnectionError)
    assert len(seen) == 4


def test_a_broken_body_stays_broken(both, outcome):
    def act(root):
        with client(root) as sdk:
            return outcome(lambda: chat(sdk))[0]

    assert issubclass(both(Script([Drop(1, RAIN)]), act), openai.APIConnectionError)


def test_a_client_that_times_out_is_gone_upstream_too(both, scripted, outcome, eventually):
    def act(root):
        with client(root, timeout=2.0) as sdk:
            kind = outcome(lambda: chat(sdk))[0]
        assert eventually(lambda: scripted.received[0].left_at)
        return kind

    assert both(Script([Slow(600, RAIN)]), act) is openai.APITimeoutError


@pytest.mark.parametrize("path", ["/v1", "", "/v1/", "/"])
def test_a_base_url_needs_no_v1(proxy, scripted, path):
    scripted.play(Script([RAIN, RAIN]))
    with OpenAI(base_url=f"{proxy.root}{path}", api_key="sk-test", max_retries=0) as sdk:
        assert chat(sdk).choices[0].message.content == RAIN.text
        assert respond(sdk).output_text == RAIN.text
        assert [model.id for model in sdk.models.list()] == ["scripted-1", "scripted-2"]
    assert [received.target for received in scripted.received] == [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/models",
    ]
