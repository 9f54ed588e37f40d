"""The scripted model is strict with its clients and says when a script has come to its end."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI

from pager.scripted import Call, Say, Script, ScriptedModel

ASK = {"model": "m-1", "messages": [{"role": "user", "content": "Hello."}]}


async def _session(script, act):
    async with (
        ScriptedModel(script) as model,
        AsyncOpenAI(base_url=model.url, api_key="sk-test", max_retries=0) as client,
    ):
        return await act(client)


def test_a_script_that_has_ended_says_so():
    async def act(client):
        await client.chat.completions.create(**ASK)
        await client.chat.completions.create(**ASK)

    with pytest.raises(openai.BadRequestError, match="the script has 1 answers and this is call 2"):
        asyncio.run(_session(Script([Say("Hello.")]), act))


def test_a_script_that_repeats_begins_anew():
    async def act(client):
        answers = [await client.chat.completions.create(**ASK) for _ in range(3)]
        return [answer.choices[0].message.content for answer in answers], len({answer.id for answer in answers})

    assert asyncio.run(_session(Script([Say("tick"), Say("tock")], repeat=True), act)) == (["tick", "tock", "tick"], 3)


def test_a_script_may_give_broken_arguments():
    async def act(client):
        answer = await client.chat.completions.create(**ASK)
        return answer.choices[0].message.tool_calls[0].function.arguments

    assert asyncio.run(_session(Script([Say(calls=[Call("read", '{"path": "a')])]), act)) == '{"path": "a'


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_no_object_gets_a_400(content):
    async def act(client):
        await client.post("/chat/completions", content=content, cast_to=object)

    with pytest.raises(openai.BadRequestError, match="could not parse"):
        asyncio.run(_session(Script([Say("Hello.")]), act))


def test_a_path_that_is_not_there_gets_a_404():
    async def act(client):
        await client.embeddings.create(model="m-1", input="Hello.")

    with pytest.raises(openai.NotFoundError, match="Invalid URL"):
        asyncio.run(_session(Script(), act))
