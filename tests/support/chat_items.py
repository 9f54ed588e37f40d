"""What a client of Chat Completions says: the items of a prompt, as values and as bytes."""

import json

import msgspec


def user(said="go on"):
    return {"role": "user", "content": said}


def say(said="I see."):
    return {"role": "assistant", "content": said}


def call(call_id, tool="read", **arguments):
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id, content="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def item(**members):
    """Any item, as bytes."""
    return json.dumps(members).encode()


def raw(value):
    return msgspec.Raw(json.dumps(value).encode())
