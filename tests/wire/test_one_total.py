"""A session through the proxy costs the same, had nothing been paged, whichever command says so."""

import json

import openai
import pytest
from anthropic import Anthropic

from pager.cli.main import main
from pager.testing.scripted import (
    Call,
    PageIn,
    Say,
    Script,
)

CALLS = 9
LIST = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
OPTIONS = ("--policy", "fifo_age", "--paging-policy-options", "{ age = 2 }")


def text(number):
    return "\n".join(f"line {line} of result {number}: {number * line}" for line in range(90))


def chat(url):
    """Calls that are streamed and plain in turn, as some clients make them."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    said = [{"role": "user", "content": "Read them all."}]
    for number in range(CALLS + 1):
        request = {"model": "gpt-5", "messages": said, "tools": LIST}
        if number % 2:
            with client.chat.completions.stream(**request, stream_options={"include_usage": True}) as stream:
                answer = stream.get_final_completion().choices[0].message
        else:
            answer = client.chat.completions.create(**request).choices[0].message
        uses = [
            {"id": one.id, "type": "function", "function": {"name": "read", "arguments": one.function.arguments}}
            for one in answer.tool_calls or []
        ]
        said = [*said, {"role": "assistant", "content": answer.content, **({"tool_calls": uses} if uses else {})}]
        said += [{"role": "tool", "tool_call_id": one["id"], "content": text(number)} for one in uses]
    return answer.content


def messages(url):
    client = Anthropic(base_url=url.removesuffix("/v1"), api_key="k", max_retries=0)
    tools = [{"name": "read", "input_schema": {"type": "object", "properties": {}}}]
    mark = {"type": "ephemeral", "ttl": "1h"}
    said = [{"role": "user", "content": [{"type": "text", "text": "Read them all." * 400, "cache_control": mark}]}]
    for number in range(CALLS + 1):
        answer = client.messages.create(model="claude-opus-4-8", max_tokens=99, messages=said, tools=tools)
        said.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": text(number)}
            for block in answer.content
            if block.type == "tool_use"
        ]
        said.append({"role": "user", "content": results})
    return answer.content[0].text


@pytest.fixture
def said_by(capsys, tmp_path):
    """What a command prints in plain values on the proxy's log: ``said_by("report", ...)``."""

    def said(*arguments):
        where = ["--data-dir", str(tmp_path / "data"), "--config", str(tmp_path / "data.toml")]
        assert main([*arguments, *where]) == 0
        return json.loads(capsys.readouterr().out)

    return said


@pytest.mark.parametrize("policy", [OPTIONS, ("--policy", "keep_all")], ids=["paged", "unpaged"])
@pytest.mark.parametrize("play", [chat, messages], ids=["chat", "messages"])
def test_report_replay_and_analyze_give_one_total(play, policy, start_proxy, scripted, said_by):
    answers = [Say(calls=[Call("read", {"number": number})]) for number in range(CALLS)]
    if policy is OPTIONS:
        answers[7] = PageIn(answers[7])
    scripted.play(Script([*answers, Say("done")]))
    with start_proxy(*policy) as proxy:
        assert play(proxy.url) == "done"
    sums = said_by("report", "--format", "json")["total"]
    replay = said_by("replay", "all", "--policy", "keep_all,cost_aware", "--json")
    logs = str(proxy.data_dir)
    analysis = said_by("analyze", logs, "--policy", "keep_all", "--no-cache", "--jobs", "1", "--json")
    assert sums["calls"] == replay["calls"] == analysis["calls"] == CALLS + 1
    units = sums["cost_before"]
    assert units > 0
    assert replay["before"]["cost"] == pytest.approx(units, rel=1e-6)
    paid = analysis["paid"]
    assert paid["told"]["units"] + paid["guessed"]["units"] == pytest.approx(units, rel=1e-6)
    assert paid["told"]["dollars"] + paid["guessed"]["dollars"] == pytest.approx(sums["dollars_before"], rel=1e-3)
    assert sum(analysis["tokens"].values()) == replay["before"]["input"]
    if policy is not OPTIONS:
        assert sums["cost"] == pytest.approx(units, rel=1e-6)
    else:
        assert sums["cost"] != pytest.approx(units, rel=0.01), "something was paged"
        changes = {row["policy"]: row["cost_change"] for row in replay["policies"]}
        assert all(change > -0.9 for change in changes.values())
