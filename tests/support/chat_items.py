"""What a client of Chat Completions sends: the items of a prompt, as values and as bytes, and the pages in them."""

import json

import msgspec

from pager.paging.pages.stub import handle_of
from pager.wire.stitching import Leg, LegPart


def user(said="go on"):
    return {"role": "user", "content": said}


def say(said="I see."):
    return {"role": "assistant", "content": said}


ON = (say(), user())


def tool_call(call_id, tool="read", arguments=()):
    function = {"name": tool, "arguments": json.dumps(arguments or {})}
    return {"id": call_id, "type": "function", "function": function}


def call(call_id, tool="read", **arguments):
    return {"role": "assistant", "content": None, "tool_calls": [tool_call(call_id, tool, arguments)]}


def result(call_id, content="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def offered(*names):
    """Tools of which nothing but their names is known."""
    return [{"type": "function", "function": {"name": name}} for name in names]


def encoded(value):
    return json.dumps(value).encode()


def item(**members):
    """Any item, as bytes."""
    return encoded(members)


def raw(value):
    return msgspec.Raw(encoded(value))


def page(name, lines=60):
    """A file as it was read, known by any of its lines."""
    return "\n".join(f"line {at} of the file {name} as it was read" for at in range(lines))


def handle(content):
    return handle_of(content.encode())


def hidden_leg(content="the page", call_id="h1", said="I look.", *, beside=(), arguments=()):
    """A leg in which the model calls ``page_in``, after saying something and beside calls of the client's tools."""
    parts = [LegPart("text", raw(said))] if said else []
    parts += [LegPart("call", raw(one)) for one in beside]
    asked = LegPart("call", raw(tool_call(call_id, "page_in", arguments)), True)
    return Leg([*parts, asked], [raw(result(call_id, content))], bool(beside))
