"""The bytes that go upstream: the client's own, with a few spans replaced."""

import json
from hashlib import sha256

import pytest
from branches import empty_table, items_of_request
from chat_items import call, handle, hidden_leg, offered, raw, result, user

from pager.paging.page_in import definition
from pager.paging.render import (
    Outgoing,
    lacks_marks,
    marked,
    render,
)
from pager.request_values import Span
from pager.wire.dialects import load
from pager.wire.stitching import Leg, LegPart, ToolSlot

A, B = "a" * 1_000, "b" * 1_000
MARK = {"cache_control": {"type": "ephemeral"}}


class Branch:
    """A branch of one wire format and its latest request."""

    def __init__(self, name):
        self.dialect = load(name)
        self.table = empty_table(name)

    def send(self, body):
        self.request = self.dialect.parse(body if isinstance(body, bytes) else json.dumps(body).encode())
        self.table.advance(self.table.call + 1, 1, 0.0, items_of_request(self.dialect, self.request))
        return self

    def evict(self, *contents):
        pages = [self.table.known[handle(content)] for content in contents]
        self.table.evict([self.table.evicted(page, f"[stub of {page.key}]") for page in pages])
        self.table.tool = "page_in"
        return self

    def keep(self, leg):
        self.table.keep_leg(self.table.call, 1, leg, [])
        return self

    def render(self, *, marks=False, carried=True):
        found = self.dialect.tool_slot(self.request) if carried else None
        assert found is None or isinstance(found, ToolSlot)
        self.table.ends = marks and lacks_marks(self.dialect, self.request, self.table)
        return render(self.dialect, self.request, self.table, found)

    def body(self, **how):
        return self.render(**how).body()


# ---------------------------------------------------------------- Chat Completions

CHAT_TOOLS = offered("read")


def chat(*items, **members):
    return {"model": "m", "tools": CHAT_TOOLS, "messages": list(items), **members}


def hidden(text="", call_id="h1"):
    return hidden_leg("the page", call_id, text)


HISTORY = (user("do it"), call("c1", path="a"), result("c1", A), call("c2", path="b"), result("c2", B))


def test_where_nothing_is_evicted_the_clients_bytes_go_out():
    body = b'{ "model" : "m", "messages":[ {"role": "user",\n"content":"h\\u0069"} ] ,"tools": [{"function":{}}] }'
    outgoing = Branch("chat").send(body).render()
    assert not outgoing.changed
    assert outgoing.body() == body


def test_a_stub_replaces_the_content_and_nothing_else():
    branch = Branch("chat").send(chat(*HISTORY)).evict(A)
    branch.table.tool = ""
    assert branch.body() == branch.request.body.replace(b'"%b"' % A.encode(), b'"[stub of c1]"')


def test_odd_bytes_around_a_stub_stay_as_they_are():
    odd = b'{"tool_call_id" :"c1", "x": 1e3, "content":\t"' + A.encode() + b'" ,"role":"tool", "y":"\\u00e9"}'
    body = b'{"messages" : [{"role":"user","content":"x"} ,\n' + odd + b'], "n": 1.0,"tools":[{"function":{}}]}'
    branch = Branch("chat").send(body).evict(A)
    tool = b"," + definition("chat")
    assert branch.body() == body.replace(b'"%b"' % A.encode(), b'"[stub of c1]"').replace(b"{}}]", b"{}}" + tool + b"]")


def test_the_tool_stands_behind_the_clients_own_with_constant_bytes():
    branch = Branch("chat").send(chat(*HISTORY)).evict(A)
    first = branch.body()
    assert json.loads(first)["tools"] == [*CHAT_TOOLS, json.loads(definition("chat"))]
    assert definition("chat") in first
    second = branch.send(chat(*HISTORY, user())).body()
    assert second.startswith(first[: first.index(b'"messages"')])


def test_a_request_without_a_place_for_the_tool_keeps_its_stubs():
    branch = Branch("chat").send(chat(*HISTORY)).evict(A)
    body = branch.body(carried=False)
    assert definition("chat") not in body
    assert b"[stub of c1]" in body


def test_stubs_stay_byte_for_byte_the_same_from_call_to_call():
    branch = Branch("chat").send(chat(*HISTORY)).evict(A)
    first = branch.body()
    second = branch.send(chat(*HISTORY, user("and now?"))).body()
    end = first.rindex(b"]")
    assert second[:end] == first[:end]
    third = branch.evict(B).body()
    assert json.loads(third)["messages"] == [
        *HISTORY[:2], result("c1", "[stub of c1]"), HISTORY[3], result("c2", "[stub of c2]"), user("and now?"),
    ]  # fmt: skip


def test_hidden_legs_go_out_in_their_place():
    branch = Branch("chat").send(chat(*HISTORY)).keep(hidden("I look."))
    branch.send(chat(*HISTORY, {"role": "assistant", "content": "I look.Yes."}, user()))
    said, answered = (json.loads(item) for item in branch.dialect.appended(hidden("I look.")))
    out = json.loads(branch.body())["messages"]
    assert out == [*HISTORY, said, answered, {"role": "assistant", "content": "Yes."}, user()]


def test_a_page_in_a_hidden_leg_can_be_evicted_like_any_other():
    large = Leg(hidden("I look.").parts, [raw(result("h1", "p" * 900))])
    branch = Branch("chat").send(chat(user())).keep(large)
    branch.send(chat(user(), {"role": "assistant", "content": "I look.Yes."}, user())).evict("p" * 900)
    out = json.loads(branch.body())["messages"]
    assert out[2] == result("h1", "[stub of h1]")
    assert [item["role"] for item in out] == ["user", "assistant", "tool", "assistant", "user"]


def test_what_follows_stands_behind_all_items():
    branch = Branch("chat").send(chat(*HISTORY)).evict(A)
    plain = branch.render()
    more = plain.followed_by([b'{"x":1}']).followed_by([b'{"x":2}', b'{"x":3}'])
    assert more.changed
    assert more.more == (b'{"x":1}', b'{"x":2}', b'{"x":3}')
    out, before = json.loads(more.body()), json.loads(plain.body())
    assert out.pop("messages") == [*before.pop("messages"), {"x": 1}, {"x": 2}, {"x": 3}]
    assert out == before
    assert plain.more == ()


def test_what_follows_stands_behind_a_last_item_that_is_itself_changed():
    branch = Branch("chat").send(chat(*HISTORY)).evict(B)
    out = json.loads(branch.render().followed_by([b'{"x":1}']).body())["messages"]
    assert out == [*HISTORY[:4], result("c2", "[stub of c2]"), {"x": 1}]


@pytest.mark.parametrize(("separator", "between"), [(", ", b", "), (",\n  ", b",\n  "), (",", b",")])
def test_what_follows_is_separated_as_the_client_separates(separator, between):
    body = '{"messages": [' + separator.join(map(json.dumps, HISTORY)) + "]}"
    outgoing = Outgoing(load("chat").parse(body.encode())).followed_by([b"{}", b"{}"])
    assert outgoing.body() == body.encode()[:-2] + between + b"{}" + between + b"{}]}"


def test_behind_a_single_item_a_comma_is_enough():
    body = json.dumps(chat(user())).encode()
    outgoing = Outgoing(load("chat").parse(body)).followed_by([b"{}"])
    assert json.loads(outgoing.body())["messages"] == [user(), {}]


def test_a_digest_tells_every_change_and_nothing_else():
    branch = Branch("chat").send(chat(*HISTORY))
    digests = [branch.render().digest("one"), branch.render().digest("two"), Outgoing(branch.request).digest("one")]
    digests += [branch.evict(A).render().digest("one"), branch.evict(B).render().digest("one")]
    assert digests[0] == digests[2] == sha256(b"one").hexdigest()
    assert len(set(digests)) == 4
    assert branch.render().digest("one") == digests[-1]
    edits = branch.render().edits
    assert Outgoing(branch.request, edits[::-1]).digest("one") == digests[-1]


def test_two_changes_are_told_from_one_that_looks_like_them():
    request = load("chat").parse(json.dumps(chat(user())).encode())
    one = Outgoing(request, ((Span(1, 2), b"x|3-4:1|y"),))
    two = Outgoing(request, ((Span(1, 2), b"x"), (Span(3, 4), b"y")))
    assert one.digest("") != two.digest("")


# ---------------------------------------------------------------- Responses


def test_the_tool_stands_in_the_item_where_the_client_keeps_its_tools():
    tool_slot = {"type": "additional_tools", "tools": [{"type": "function", "name": "read"}]}
    items = [tool_slot, user(), {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}]
    items.append({"type": "function_call_output", "call_id": "c1", "output": A})
    branch = Branch("responses").send({"store": False, "input": items}).evict(A)
    out = json.loads(branch.body())
    assert out == {
        "store": False,
        "input": [
            {"type": "additional_tools", "tools": [*tool_slot["tools"], json.loads(definition("responses"))]},
            *items[1:3],
            {"type": "function_call_output", "call_id": "c1", "output": "[stub of c1]"},
        ],
    }


def test_a_leg_that_showed_nothing_goes_out_before_an_item_that_keeps_its_bytes():
    asked = {"type": "function_call", "call_id": "h1", "name": "page_in", "arguments": "{}"}
    answered = {"type": "function_call_output", "call_id": "h1", "output": "the page"}
    large = {"path": "a", "content": "c" * 2_000}
    write = {"type": "function_call", "call_id": "c1", "name": "write", "arguments": json.dumps(large)}
    done = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    tools = [{"type": "function", "name": "write"}]
    branch = Branch("responses").send({"store": False, "tools": tools, "input": [user()]})
    branch.keep(Leg([LegPart("call", raw(asked), True)], [raw(answered)]))
    branch.send({"store": False, "tools": tools, "input": [user(), write, done]})
    assert json.loads(branch.body())["input"] == [user(), asked, answered, write, done]
    branch.evict("c" * 2_000)
    stubbed = {**write, "arguments": json.dumps({**large, "content": "[stub of c1.content]"})}
    assert json.loads(branch.body())["input"] == [user(), asked, answered, stubbed, done]


# ---------------------------------------------------------------- marks


def messages(*items, **members):
    head = {"model": "m", "max_tokens": 9, "system": "Be good. " * 500, "tools": [{"name": "read", "input_schema": {}}]}
    return {**head, **members, "messages": list(items)}


def used(call_id, **more):
    block = {"type": "tool_use", "id": call_id, "name": "read", "input": {}, **more}
    return {"role": "assistant", "content": [block]}


def got(call_id, content, **more):
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}
    return {"role": "user", "content": [block]}


def places(body):
    """Where cache marks stand: on the tools, on the system prompt, on which messages."""
    out = json.loads(body)
    head = [key for key in ("tools", "system") if b"cache_control" in json.dumps(out[key]).encode()]
    return head + [at for at, item in enumerate(out["messages"]) if "cache_control" in json.dumps(item)]


ASKED = (user("do it"), used("c1"), got("c1", A))


def test_a_client_without_marks_gets_them_on_its_head_and_its_end():
    branch = Branch("messages").send(messages(*ASKED))
    assert places(branch.body(marks=True)) == ["system", 2]
    branch.send(messages(*ASKED, used("c2"), got("c2", B)))
    assert places(branch.body(marks=True)) == ["system", 4]


def test_anchors_are_marked_for_as_long_as_the_client_marks_what_follows():
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    for client, ours in ((MARK, MARK), (hour, hour)):
        history = (*ASKED, used("c2"), got("c2", B, **client))
        branch = Branch("messages").send(messages(*history))
        branch.table.set_marks(ends=False, anchors=[2])
        out = json.loads(branch.body())
        assert out["messages"][1]["content"][-1]["cache_control"] == ours["cache_control"]
        assert [places(branch.body()), out["messages"][0::2]] == [[1, 4], [*history[0::2]]], "all else is as it was"


def test_a_hidden_leg_ends_at_a_mark_of_its_own_and_there_are_never_five():
    marked_by_client = [*ASKED[:2], got("c1", A, **MARK), used("c2"), got("c2", B, **MARK)]
    system = [{"type": "text", "text": "s" * 5_000, **MARK}]
    branch = Branch("messages").send(messages(*marked_by_client, system=system))
    branch.table.set_marks(ends=False, anchors=[2], legs=True)
    assert places(branch.body()) == ["system", 1, 2, 4]
    legs = [json.dumps(used("h1")).encode(), json.dumps(got("h1", "the page")).encode()]
    assert places(branch.render().followed_by(legs).body()) == ["system", 2, 4, 6], "the leg takes the anchor's mark"


def test_a_hidden_leg_has_no_mark_where_none_is_decided():
    branch = Branch("messages").send(messages(*ASKED[:2], got("c1", A, **MARK)))
    legs = [json.dumps(used("h1")).encode(), json.dumps(got("h1", "the page")).encode()]
    assert places(branch.render().followed_by(legs).body()) == [2]


def test_marks_are_all_that_a_client_without_stubs_gets():
    branch = Branch("messages").send(messages(*ASKED))
    out, client = json.loads(branch.body(marks=True)), json.loads(branch.request.body)
    assert out["system"] == [{"type": "text", "text": client["system"], **MARK}]
    assert out["messages"] == [*ASKED[:2], got("c1", A, **MARK)]
    assert out["tools"] == client["tools"]


def test_without_the_wish_for_marks_there_are_none():
    branch = Branch("messages").send(messages(*ASKED))
    assert branch.body() == branch.request.body


def test_a_client_with_any_mark_of_its_own_gets_none():
    for body in (
        messages(*ASKED[:2], got("c1", A, **MARK)),
        messages(*ASKED, system=[{"type": "text", "text": "x", **MARK}]),
    ):
        branch = Branch("messages").send(body)
        assert branch.body(marks=True) == branch.request.body


def test_a_mark_that_is_only_talked_about_is_none():
    branch = Branch("messages").send(messages(user('{"cache_control": 1}'), used("c1"), got("c1", A)))
    assert places(branch.body(marks=True)) == ["system", 0, 2]


def test_a_short_prompt_is_not_worth_a_mark():
    branch = Branch("messages").send(messages(*ASKED, system="Be good."))
    assert branch.body(marks=True) == branch.request.body


def test_a_stubbed_item_and_hidden_legs_can_carry_the_mark():
    asked = {"type": "tool_use", "id": "h1", "name": "page_in", "input": {}}
    answered = {"type": "tool_result", "tool_use_id": "h1", "content": "the page"}
    leg = Leg(
        [LegPart("text", raw({"type": "text", "text": "I look."})), LegPart("call", raw(asked), True)], [raw(answered)]
    )
    branch = Branch("messages").send(messages(*ASKED)).evict(A)
    assert json.loads(branch.body(marks=True))["messages"][2] == got("c1", "[stub of c1]", **MARK)
    branch.keep(leg).send(messages(*ASKED, {"role": "assistant", "content": "I look. Yes."}, user()))
    body = branch.body(marks=True)
    assert places(body) == ["system", 6]
    assert json.loads(body)["messages"][3:5] == [
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, asked]},
        {"role": "user", "content": [answered]},
    ]


def test_without_a_system_prompt_the_clients_tools_are_the_head_and_ours_comes_behind_the_mark():
    tools = [{"name": "read", "description": "d" * 5_000, "input_schema": {}}]
    body = messages(*ASKED, tools=tools)
    del body["system"]
    branch = Branch("messages").send(body)
    out = json.loads(branch.body(marks=True))
    assert out["tools"] == [{**tools[0], **MARK}]
    out = json.loads(branch.evict(A).body(marks=True))
    assert out["tools"] == [{**tools[0], **MARK}, json.loads(definition("messages"))]
    assert str(out).count("cache_control") == 2


def test_a_prompt_in_full_is_marked_on_its_head_and_its_end():
    branch = Branch("messages").send(messages(*ASKED)).evict(A)
    outgoing = marked(branch.dialect, branch.request)
    assert places(outgoing.body()) == ["system", 2]
    assert A.encode() in outgoing.body()


def test_an_item_that_can_carry_no_mark_goes_out_without():
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
    branch = Branch("messages").send(messages(user("do it"), thinking))
    assert places(branch.body(marks=True)) == ["system"]
    assert not marked(branch.dialect, branch.request).changed


def test_formats_whose_providers_cache_by_themselves_get_no_marks():
    branch = Branch("chat").send(chat(*HISTORY, user("x" * 5_000)))
    assert branch.body(marks=True) == branch.request.body
    assert not marked(branch.dialect, branch.request).changed


def test_a_shorter_history_is_marked_where_it_is():
    branch = Branch("messages").send(messages(*ASKED, used("c2"), got("c2", B)))
    branch.send(messages(user("a summary")))
    assert places(branch.body(marks=True)) == ["system", 0]
