"""The page table of a branch, call by call."""

import json
from hashlib import sha256

import pytest
from branches import empty_table, items_of
from chat_items import handle, hidden_leg, raw, result, tool_call, user

from pager.log.events import Evicted
from pager.paging import page_in
from pager.paging.pages.page import Contents, Found, tokens_of
from pager.paging.pages.page_table import PageTable, Source
from pager.paging.policy import TOOL
from pager.wire.dialects import load
from pager.wire.stitching import Leg, LegPart


def pinned(page, call):
    return page.held(call) or page.failing(call)


def text(name, lines=20):
    """A text that is a page, and known by any of its lines."""
    return "\n".join(f"{name} has a line that says {name}_value_{at}" for at in range(lines))


def line(name, at=3):
    return text(name).split("\n")[at]


class Talk:
    """A conversation of one wire format, as its client sends it, and the page table of its branch."""

    def __init__(self, name="chat", table=None, call=0):
        self.dialect = load(name)
        self.table = table or empty_table(name)
        self.number = call

    def send(self, *items, attempt=1, at=0.0):
        self.number += attempt == 1
        self.table.advance(self.number, attempt, at, items_of(self.dialect, items))
        return self.table

    def evict(self, *names):
        self.table.evict([self.table.evicted(self.table.known[name], f"[{name}]") for name in names])

    def fork(self):
        return Talk(self.dialect.name, self.table.copy(), self.number - 1)


def say(said="", *calls, **more):
    made = {"tool_calls": [tool_call(*one) for one in calls]} if calls else {}
    return {"role": "assistant", "content": said or None, **made, **more}


def read(call_id, path, **more):
    return say("", (call_id, "read", {"path": path, **more}))


def write(call_id, path, content):
    return say("", (call_id, "write", {"path": path, "content": content}))


def names(table):
    return [page.name for page in table.pages]


A, B, C = text("alpha"), text("beta"), text("gamma")
START = (user("do it"), read("c1", "a.py"), result("c1", A))
ON = (say("I see."), user())


# ---------------------------------------------------------------- pages


def test_a_page_is_born_with_the_call_that_brings_it():
    talk = Talk()
    talk.send(user("do it"))
    assert talk.table.pages == []
    (page,) = talk.send(*START).pages
    assert (page.name, page.handle, page.key, page.kind) == (handle(A), handle(A), "c1", "result")
    assert (page.tool, page.call_id, page.size, page.born, page.used, page.slot) == ("read", "c1", len(A), 2, 2, 2)
    assert (page.uses, page.faults, page.superseded, page.stub) == (0, 0, False, "")
    (page,) = talk.send(*START, *ON).pages
    assert (page.born, page.used) == (2, 2)


def test_tokens_are_told_from_bytes():
    assert [tokens_of(size) for size in (0, 7, 540, 1000)] == [0, 3, 200, 370]
    (page,) = Talk().send(*START).pages
    assert page.tokens == round(len(A) / 2.7)


def test_pages_stand_in_the_order_of_the_prompt():
    table = Talk().send(
        user(),
        say("", ("c1", "write", {"path": "a", "content": A * 3}), ("c2", "read", {"path": "b"})),
        result("c1", "written"),
        result("c2", B),
    )
    assert [(page.key, page.kind, page.slot) for page in table.pages] == [
        ("c1.content", "argument", 1),
        ("c2", "result", 3),
    ]


def test_a_result_whose_call_is_not_in_the_prompt_is_a_page_of_no_tool():
    (page,) = Talk().send(user(), result("c9", A)).pages
    assert page.tool == ""
    assert Talk().table.about(page) == ""


def test_a_table_knows_what_a_page_is_about():
    table = Talk().send(*START)
    assert table.about(table.pages[0]) == "a.py"


def test_the_seconds_between_calls_are_known_from_the_second_call_on():
    talk = Talk()
    assert talk.send(user("do it"), at=5_000.0).idle == 0.0
    assert talk.send(user("do it"), *ON, at=5_030.5).idle == 30.5


def test_reasoning_is_known_by_its_slot():
    table = Talk().send(user(), say("So.", reasoning_content="Hm."), user())
    assert [slot.reasoning for slot in table.slots] == [False, True, False]


# ---------------------------------------------------------------- use


def test_an_answer_that_quotes_a_page_uses_it():
    talk = Talk()
    talk.send(*START)
    (page,) = talk.send(*START, *ON).pages
    assert (page.uses, page.used) == (0, 1)
    (page,) = talk.send(*START, *ON, say("It says:\n" + line("alpha")), user()).pages
    assert (page.uses, page.used) == (1, 2)


def test_a_call_that_quotes_a_page_uses_it():
    talk = Talk()
    talk.send(*START)
    (page, _) = talk.send(*START, write("c2", "b.py", line("alpha") + "\n" + "#" * 2000), result("c2", "ok")).pages
    assert (page.uses, page.used) == (1, 1)


def test_what_a_user_says_uses_nothing():
    talk = Talk()
    talk.send(*START)
    (page,) = talk.send(*START, say("I see."), user(line("alpha"))).pages
    assert page.uses == 0


def test_an_evicted_page_can_still_be_quoted():
    talk = Talk()
    talk.send(*START)
    talk.evict(handle(A))
    (page,) = talk.send(*START, say(line("alpha")), user()).pages
    assert (page.uses, page.stub) == (1, f"[{handle(A)}]")


def test_a_page_that_left_the_prompt_can_not_be_used():
    talk = Talk()
    talk.send(*START)
    talk.send(user("forget it"))
    table = talk.send(user("forget it"), say(line("alpha")), user())
    assert (table.pages, table.known) == ([], {})


def test_what_is_indexed_while_the_model_thinks_is_indexed_once():
    talk = Talk()
    talk.send(*START)
    talk.table.catch_up()
    talk.table.catch_up()
    (page,) = talk.send(*START, say(line("alpha")), user()).pages
    assert page.uses == 1


def test_a_line_in_two_pages_counts_for_the_newer_one():
    talk = Talk()
    history = [*START, read("c2", "b.py"), result("c2", A + "\n" + B)]
    talk.send(*history)
    first, second = talk.send(*history, say(line("alpha")), user()).pages
    assert (first.uses, second.uses) == (0, 1)


# ---------------------------------------------------------------- faults and pins


def hidden(*pages, call_id="h1", shown="", mixed=False):
    beside = mixed["tool_calls"] if mixed else ()
    return hidden_leg("".join(pages) + ": back again", call_id, shown, beside=beside, arguments={"pages": pages})


def test_a_page_that_the_model_asks_for_counts_a_fault_and_is_pinned_with_decay():
    talk = Talk()
    talk.send(*START)
    talk.send(*START, *ON)
    talk.evict(handle(A))
    talk.table.keep_leg(2, 1, hidden(handle(A)), [handle(A)])
    (page,) = talk.table.pages
    assert (page.faults, page.used, page.pin, page.pinned_at) == (1, 2, 1.0, 2)
    assert [pinned(page, call) for call in (2, 4, 5)] == [True, True, False]


def test_a_second_fault_adds_to_what_is_left_of_the_pin():
    talk = Talk()
    (page,) = talk.send(*START).pages
    page.fault(1)
    page.fault(3)
    assert (page.faults, page.pin, page.pinned_at) == (2, 2.5, 3)
    assert [pinned(page, call) for call in (7, 8)] == [True, False]


def test_a_leg_that_brought_nothing_back_is_no_fault():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, hidden("pg_0123456789abcdef"), [])
    assert talk.table.pages[0].faults == 0
    assert talk.send(*START, *ON).facts == []


def test_facts_are_those_since_the_call_before():
    talk = Talk()
    assert talk.send(*START).facts == []
    talk.table.keep_leg(1, 1, hidden(handle(A)), [handle(A)])
    assert talk.send(*START, *ON).facts == ["fault"]
    assert talk.send(*START, *ON, *ON).facts == []
    assert talk.send(user("another"), *START[1:]).facts == ["client_rewrote_history"]


def test_the_same_call_again_after_eviction_is_a_fault_of_the_new_page():
    talk = Talk()
    talk.send(*START)
    talk.evict(handle(A))
    table = talk.send(*START, read("c2", "a.py"), result("c2", A))
    old, new = table.pages
    assert (old.name, new.name) == (handle(A), f"{handle(A)}@2")
    assert (old.superseded, old.faults, old.stub) == (True, 0, f"[{handle(A)}]")
    assert (new.superseded, new.faults, new.stub) == (False, 1, "")
    assert [pinned(new, call) for call in (2, 4, 5)] == [True, True, False]
    assert table.facts == ["fault"]


def test_the_same_call_again_while_its_page_is_resident_is_no_fault():
    talk = Talk()
    talk.send(*START)
    table = talk.send(*START, read("c2", "a.py"), result("c2", A))
    old, new = table.pages
    assert (old.superseded, new.superseded) == (True, False)
    assert (old.faults, new.faults, pinned(new, 2)) == (0, 0, False)
    assert table.facts == []


def test_content_that_is_written_again_after_its_eviction_is_no_fault():
    talk = Talk()
    large = text("alpha", 60)
    talk.send(user(), read("c1", "a.py"), result("c1", large))
    talk.evict(handle(large))
    _, argument = talk.send(
        user(), read("c1", "a.py"), result("c1", large), write("c2", "b.py", large), result("c2", "ok")
    ).pages
    assert (argument.kind, argument.faults) == ("argument", 0)


def test_the_result_of_a_failed_tool_stays_for_some_calls():
    talk = Talk("messages")
    asked = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "run", "input": {}}]}
    failed = {"type": "tool_result", "tool_use_id": "c1", "content": A, "is_error": True}
    (page,) = talk.send(user(), asked, {"role": "user", "content": [failed]}).pages
    assert page.is_error
    assert [pinned(page, call) for call in (1, 6, 7)] == [True, True, False]


# ---------------------------------------------------------------- dead pages


def test_of_the_same_content_all_but_the_newest_are_dead():
    talk = Talk()
    history = [
        user(),
        *(item for at in (1, 2, 3) for item in (say("", (f"c{at}", "run", {"n": at})), result(f"c{at}", A))),
    ]
    table = talk.send(*history)
    assert names(table) == [handle(A), f"{handle(A)}@2", f"{handle(A)}@3"]
    assert [page.superseded for page in table.pages] == [True, True, False]


def test_a_file_that_is_read_again_supersedes_what_was_read_before():
    talk = Talk()
    talk.send(*START)
    old, new = talk.send(*START, read("c2", "a.py"), result("c2", B)).pages
    assert (old.superseded, new.superseded) == (True, False)


def test_a_file_that_is_written_whole_supersedes_what_was_read_before():
    talk = Talk()
    talk.send(*START)
    (page,) = talk.send(*START, write("c2", "a.py", "short"), result("c2", "ok")).pages
    assert page.superseded


def test_a_write_that_failed_supersedes_nothing():
    talk = Talk("messages")
    asked = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}]}
    ]
    asked.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": A}]})
    wrote = {"type": "tool_use", "id": "c2", "name": "write", "input": {"path": "a", "content": "short"}}
    failed = {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True}
    end = [{"role": "assistant", "content": [wrote]}, {"role": "user", "content": [failed]}]
    (page,) = talk.send(user(), *asked, *end).pages
    assert not page.superseded


def test_an_edit_of_a_part_supersedes_nothing():
    talk = Talk()
    talk.send(*START)
    edit = say("", ("c2", "edit", {"path": "a.py", "old": "x", "new": "y"}))
    (page,) = talk.send(*START, edit, result("c2", "ok")).pages
    assert not page.superseded


def test_a_page_that_left_the_prompt_is_not_missed_by_what_supersedes_it():
    talk = Talk()
    talk.send(*START)
    talk.send(user("forget it"))
    (page,) = talk.send(user("forget it"), read("c2", "a.py"), result("c2", B)).pages
    assert (page.handle, page.superseded) == (handle(B), False)


# ---------------------------------------------------------------- eviction


def test_a_stub_stands_for_its_page_until_the_prompt_changes_there():
    talk = Talk()
    table = talk.send(*START)
    gone = table.evicted(table.pages[0], "[stub]")
    assert gone == Evicted(handle(A), table.slots[2].digest.hex(), "c1", "[stub]")
    table.evict([gone])
    assert (table.pages[0].stub, table.changed) == ("[stub]", {2})
    assert table.shown == {handle(A): Source(table.slots[2].digest, "c1")}
    table = talk.send(*START, *ON)
    assert (table.pages[0].stub, table.changed) == ("[stub]", {2})


def test_what_is_not_in_the_prompt_can_not_be_evicted():
    table = Talk().send(*START)
    digest = table.slots[2].digest.hex()
    table.evict([Evicted("pg_0123456789abcdef", digest, "c1", "[stub]"), Evicted(handle(A), digest, "c2", "[stub]")])
    assert (table.pages[0].stub, table.changed, table.shown) == ("", set(), {})


# ---------------------------------------------------------------- histories that change


def facts_of(page):
    return page.name, page.born, page.used, page.uses, page.stub


def test_a_client_that_writes_the_same_in_another_way_keeps_births_uses_and_stubs():
    talk = Talk()
    talk.send(*START)
    history = [*START, say(line("alpha")), user()]
    talk.send(*history)
    talk.evict(handle(A))
    before = facts_of(talk.table.pages[0])
    rewritten = [json.dumps(item, separators=(",", ":")).encode() for item in history]
    table = talk.send(*rewritten, say("Done."), user())
    assert facts_of(table.pages[0]) == before == (handle(A), 1, 1, 1, f"[{handle(A)}]")
    assert (table.changed, table.facts) == ({2}, [])
    assert table.slots[2].digest == sha256(rewritten[2]).digest()


def test_a_client_that_writes_arguments_in_another_way_keeps_their_pages():
    talk = Talk()
    large = text("alpha", 60)
    talk.send(user(), write("c1", "a.py", large), result("c1", "ok"))
    talk.evict(handle(large))
    again = write("c1", "a.py", large)
    again["tool_calls"][0]["function"]["arguments"] = json.dumps({"content": large, "path": "a.py"}, indent=2)
    (page,) = talk.send(user(), again, result("c1", "ok"), *ON).pages
    assert (page.born, page.stub) == (1, f"[{handle(large)}]")


def test_an_argument_whose_own_keys_come_in_another_order_is_sent_as_the_client_has_it():
    talk = Talk()
    edits = {"old": A, "new": B}
    talk.send(user(), say("", ("c1", "edit", {"edits": edits})), result("c1", "ok"))
    talk.evict(*names(talk.table))
    turned = dict(reversed(edits.items()))
    (page,) = talk.send(user(), say("", ("c1", "edit", {"edits": turned})), result("c1", "ok"), *ON).pages
    assert (page.stub, page.born) == ("", 2)


def test_a_client_that_moves_its_cache_marks_keeps_births_uses_and_stubs():
    talk = Talk("messages")

    def sent(*, marked):
        mark = {"cache_control": {"type": "ephemeral"}} if marked else {}
        asked = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]}
        answer = {"type": "tool_result", "tool_use_id": "c1", "content": A, **mark}
        return [user(), asked, {"role": "user", "content": [answer]}]

    talk.send(*sent(marked=True))
    talk.evict(handle(A))
    (page,) = talk.send(*sent(marked=False), {"role": "assistant", "content": line("alpha")}, user("x")).pages
    assert facts_of(page) == (handle(A), 1, 1, 1, f"[{handle(A)}]")


def test_a_client_that_edits_its_history_goes_on_in_a_table_of_its_own():
    talk = Talk()
    history = [*START, read("c2", "b.py"), result("c2", B)]
    talk.send(*START)
    talk.send(*history)
    talk.evict(handle(A))
    parent = talk.table
    fork = talk.fork()
    edited = [*START, user("no, c.py"), read("c3", "c.py"), result("c3", C)]
    fork.send(*edited)
    fork.evict(handle(C))
    fork.send(*edited, say(line("alpha")), user())
    assert names(fork.table) == [handle(A), handle(C)]
    assert [page.stub for page in fork.table.pages] == [f"[{handle(A)}]", f"[{handle(C)}]"]
    assert fork.table.pages[0].uses == 1
    assert names(parent) == [handle(A), handle(B)]
    assert [(page.stub, page.uses, page.slot) for page in parent.pages] == [(f"[{handle(A)}]", 0, 2), ("", 0, 4)]
    assert (len(parent.slots), parent.changed, set(parent.shown)) == (5, {2}, {handle(A)})
    assert (parent.call, fork.table.call) == (2, 3)


def test_a_fork_and_its_parent_keep_their_legs_apart():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, hidden("p", shown="Look."), [])
    fork = talk.table.copy()
    fork.keep_leg(1, 1, hidden("q", call_id="h2"), [])
    assert (len(talk.table.legs_now()), len(fork.legs_now())) == (1, 2)


def test_a_client_that_writes_its_history_anew_counts_no_use_twice():
    talk = Talk()
    talk.send(user("at 1"), *START[1:])
    history = [*START[1:], say(line("alpha")), user()]
    (page,) = talk.send(user("at 2"), *history).pages
    assert (page.uses, page.used) == (1, 1)
    (page,) = talk.send(user("at 3"), *history, *ON).pages
    assert (page.uses, page.used, page.born) == (1, 1, 1)


def test_a_file_read_after_it_was_written_is_alive_though_the_client_writes_its_history_anew():
    talk = Talk()
    history = [write("c1", "a.py", "short"), result("c1", "ok"), read("c2", "a.py"), result("c2", A)]
    (page,) = talk.send(user("at 1"), *history).pages
    assert not page.superseded
    (page,) = talk.send(user("at 2"), *history, *ON).pages
    assert not page.superseded


def test_a_page_that_is_still_there_in_a_new_history_keeps_its_stub():
    talk = Talk()
    talk.send(*START, *ON)
    talk.evict(handle(A))
    table = talk.send(user("a summary of what was said"), *START[1:], *ON)
    assert [(page.stub, page.born) for page in table.pages] == [(f"[{handle(A)}]", 1)]


def test_a_page_that_comes_back_after_it_left_the_prompt_is_a_new_one():
    talk = Talk()
    talk.send(*START, *ON)
    talk.evict(handle(A))
    talk.send(user("do it in another way"))
    (page,) = talk.send(user("do it in another way"), *START[1:]).pages
    assert facts_of(page) == (handle(A), 3, 3, 0, "")
    assert handle(A) in talk.table.shown


def test_a_call_id_that_is_used_again_with_other_content_is_another_page():
    talk = Talk()
    talk.send(*START)
    talk.evict(handle(A))
    old, new = talk.send(*START, read("c1", "b.py"), result("c1", B)).pages
    assert (old.name, old.stub, old.born) == (handle(A), f"[{handle(A)}]", 1)
    assert (new.name, new.stub, new.born) == (handle(B), "", 2)


def test_what_the_client_itself_shortened_is_sent_as_the_client_has_it():
    talk = Talk()
    talk.send(*START)
    talk.evict(handle(A))
    shorter = A[:800] + " (truncated)"
    table = talk.send(*START[:2], result("c1", shorter), *ON)
    assert [(page.handle, page.stub, page.key) for page in table.pages] == [(handle(shorter), "", "c1")]
    assert table.changed == set()
    assert handle(A) in table.shown


def test_of_a_long_history_only_what_changed_is_read_again():
    reads = []
    dialect = load("chat")
    table = PageTable("chat", lambda one: reads.append(one) or Contents(), dialect.expand)
    talk = Talk(table=table)
    history = [user(f"message {at}") for at in range(100)]
    talk.send(*history)
    assert len(reads) == 100
    talk.send(*history, user("more"))
    assert len(reads) == 101
    talk.send(*history[:70], user("edited"), *history[71:])
    assert len(reads) == 101 + 30
    assert [slot.item for slot in table.slots] == list(range(100))


# ---------------------------------------------------------------- handles


def test_another_content_with_the_same_handle_gets_a_longer_one():
    def misread(raw):
        """Tells B's handle for A, as if the two had the same."""
        content = json.loads(raw)["content"]
        made = Found("c1", "result", handle(B), sha256(content.encode()).digest(), len(content), "c1", content, False)
        return Contents((made,))

    talk = Talk(table=PageTable("chat", misread, load("chat").expand))
    first, second, third = talk.send(result("c1", A), result("c2", B), result("c3", B)).pages
    longer = "pg_" + sha256(B.encode()).hexdigest()[:24]
    assert (first.name, second.name, third.name) == (handle(B), longer, f"{longer}@2")
    assert second.superseded
    assert not first.superseded


# ---------------------------------------------------------------- hidden legs


def shown(table):
    """What a prompt is made of: the numbers of the client's items, and what stands in our own."""
    return [slot.item if slot.raw is None else json.loads(slot.raw) for slot in table.slots]


LOOK = hidden(handle(A), shown="I look.")
SAID = {"role": "assistant", "content": "I look.", "tool_calls": [json.loads(bytes(LOOK.parts[1].raw))]}
BACK = json.loads(bytes(LOOK.results[0]))


def test_a_hidden_leg_is_put_back_where_it_happened():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, LOOK, [handle(A)])
    assert talk.table.legs_now() == [LOOK]
    table = talk.send(*START, say("I look.Yes."), user())
    assert shown(table) == [0, 1, 2, SAID, BACK, say("Yes."), 4]
    assert (table.lost_legs, table.legs_now()) == (0, [])
    table = talk.send(*START, say("I look.Yes."), user(), say("More."), user())
    assert shown(table) == [0, 1, 2, SAID, BACK, say("Yes."), 4, 5, 6]


def test_hidden_legs_and_the_tool_count_in_the_prompt_and_in_the_account():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, LOOK, [handle(A)])
    body = [*START, say("I look.Yes."), user()]
    items = items_of(talk.dialect, body)
    talk.table.advance(2, 1, 2.0, items, 7_000)
    longer = sum(slot.size for slot in talk.table.slots) - sum(len(items.raw(at)) for at in range(len(body)))
    assert longer > 0
    assert abs(talk.table.prompt - (7_000 + longer) / 2.7) < 2
    assert talk.table.account.read == 2_593 - talk.table.prompt
    talk.table.tool = "page_in"
    before = talk.table.prompt
    talk.table.advance(3, 1, 3.0, items, 7_000)
    assert talk.table.prompt == before + TOOL


def test_a_leg_that_showed_nothing_stands_before_what_the_client_has():
    talk = Talk("responses")

    def said(words):
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}

    asked = {"type": "function_call", "call_id": "h1", "name": "page_in", "arguments": "{}"}
    answered = {"type": "function_call_output", "call_id": "h1", "output": "back"}
    talk.send(user("a"))
    talk.table.keep_leg(1, 1, Leg([LegPart("call", raw(asked), True)], [raw(answered)]), [])
    table = talk.send(user("a"), said("Yes."), user("b"))
    assert shown(table) == [0, asked, answered, 1, 2]
    table = talk.send(user("a"), said("Yes."), user("c"))
    assert shown(table) == [0, asked, answered, 1, 2]
    table = talk.send(user("a"), said("No."), user("c"))
    assert shown(table) == [0, asked, answered, 1, 2]


def test_a_mixed_leg_is_answered_beside_the_clients_own_results():
    talk = Talk()
    talk.send(user("do it"))
    own = read("c1", "a.py")
    talk.table.keep_leg(1, 1, hidden("p", mixed=own), [])
    table = talk.send(user("do it"), own, result("c1", A))
    both, answered = table.slots[1:3]
    assert [call["id"] for call in json.loads(both.raw)["tool_calls"]] == ["c1", "h1"]
    assert json.loads(answered.raw)["tool_call_id"] == "h1"
    assert [slot.item for slot in table.slots] == [0, -1, -1, 2]
    assert [page.slot for page in table.pages] == [3]


def test_legs_of_several_calls_stay_each_in_its_place():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, LOOK, [])
    history = [*START, say("I look.Yes."), user()]
    talk.send(*history)
    again = hidden("q", call_id="h2", shown="Again.")
    talk.table.keep_leg(2, 1, again, [])
    table = talk.send(*history, say("Again.No."), user())
    assert [slot.item for slot in table.slots] == [0, 1, 2, -1, -1, -1, 4, -1, -1, -1, 6]
    assert set(table.hidden) == {3, 5}
    edited = talk.send(*history, say("Again.No."), user("in other words"))
    assert [slot.item for slot in edited.slots] == [0, 1, 2, -1, -1, -1, 4, -1, -1, -1, 6]


def test_a_leg_is_put_back_also_if_the_client_writes_the_same_in_another_way():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, LOOK, [])
    history = [*START, say("I look.Yes."), user()]
    talk.send(*history)
    table = talk.send(*[json.dumps(item, separators=(",", ":")).encode() for item in history], *ON)
    assert shown(table) == [0, 1, 2, SAID, BACK, say("Yes."), 4, 5, 6]


@pytest.mark.parametrize(
    "history",
    [
        [*START, say("Something else."), user()],
        [*START, user()],
    ],
    ids=["the answer is another", "the answer is gone"],
)
def test_a_leg_whose_place_is_gone_is_dropped_and_counted(history):
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, LOOK, [])
    talk.table.keep_leg(1, 1, hidden("q", call_id="h2"), [])
    table = talk.send(*history)
    assert (table.lost_legs, table.hidden) == (2, {})
    assert shown(table) == list(range(len(history)))
    assert talk.send(*history, *ON).lost_legs == 0


def test_a_leg_is_found_by_its_text_where_the_client_changed_what_is_before_it():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, LOOK, [])
    table = talk.send(*START[:2], result("c1", B), user("by the way"), say("I look.Yes."), user())
    assert shown(table) == [0, 1, 2, 3, SAID, BACK, say("Yes."), 5]
    table = talk.send(*START[:2], result("c1", B), say("I look.Yes."), user(), say("More."), user())
    assert shown(table) == [0, 1, 2, SAID, BACK, say("Yes."), 4, 5, 6]


INFO = user("It is late.")


def with_text(text, call):
    return {**call, "content": text}


@pytest.mark.parametrize("text", ["I look.", ""], ids=["with a text", "without"])
def test_a_leg_is_found_in_a_history_that_is_written_anew_with_every_call(text):
    """As goose does: its note moves to the end, between the newest answer's text and each of its calls."""
    leg = hidden(handle(A), shown=text)
    asked, back = json.loads(bytes(leg.parts[-1].raw)), json.loads(bytes(leg.results[0]))
    look = {"role": "assistant", "content": text or None, "tool_calls": [asked]}
    one, two = read("c1", "a.py"), read("c2", "b.py")
    talk = Talk()
    talk.send(user("It is late. Do it."))
    talk.table.keep_leg(1, 1, leg, [])
    table = talk.send(user("Do it."), say(f"{text}So."), INFO, one, result("c1", A))
    placed = [0, look, back, say("So."), 2, 3, 4] if text else [0, 1, 2, look, back, one, 4]
    assert shown(table) == placed
    table = talk.send(user("Do it."), with_text(f"{text}So.", one), result("c1", A), INFO, two, result("c2", B))
    assert shown(table) == [0, look, back, with_text("So.", one), 2, 3, 4, 5]
    rest = [with_text(f"{text}So.", one), result("c1", A), two, result("c2", B), say("Done."), INFO]
    table = talk.send(user("Do it."), *rest)
    assert shown(table) == [0, look, back, with_text("So.", one), 2, 3, 4, 5, 6]
    assert table.lost_legs == 0


def test_a_mixed_leg_is_found_where_the_client_sends_each_call_in_a_message_of_its_own():
    one, two = read("c1", "a.py"), read("c2", "b.py")
    both = {**one, "tool_calls": [*one["tool_calls"], *two["tool_calls"]]}
    talk = Talk()
    talk.send(user("It is late. Do it."))
    talk.table.keep_leg(1, 1, hidden("p", mixed=both), [])
    table = talk.send(user("Do it."), one, result("c1", A), INFO, two, result("c2", B))
    asking, answered = (json.loads(slot.raw) for slot in table.slots[1:3])
    assert [call["id"] for call in asking["tool_calls"]] == ["c1", "h1"]
    assert answered["tool_call_id"] == "h1"
    assert [slot.item for slot in table.slots] == [0, -1, -1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_a_leg_is_put_back_with_its_text_where_the_client_drops_texts_beside_calls(name):
    def item(kind, **members):
        return {"type": kind, **members}

    if name == "chat":
        leg, call, back = LOOK, read("c1", "a.py"), result("c1", A)
        put = [SAID, BACK]
    else:
        words = [{"type": "output_text", "text": "I look."}]
        said, asked = (
            item("message", role="assistant", content=words),
            item("function_call", call_id="h1", name="page_in"),
        )
        answered = item("function_call_output", call_id="h1", output="back")
        leg = Leg([LegPart("text", raw(said)), LegPart("call", raw(asked), True)], [raw(answered)])
        call = item("function_call", call_id="c1", name="read", arguments="{}")
        back = item("function_call_output", call_id="c1", output=A)
        put = [said, asked, answered]
    talk = Talk(name)
    talk.send(user("do it"))
    talk.table.keep_leg(1, 1, leg, [])
    table = talk.send(user("do it"), call, back)
    place = [call] if name == "chat" else [1]
    assert shown(table)[: 1 + len(put)] == [0, *put]
    assert talk.send(user("do it"), call, back, *ON).lost_legs == 0
    assert len(shown(talk.table)) == 1 + len(put) + len(place) + 1 + len(ON)


def test_calls_that_are_new_in_a_history_that_went_back_are_not_those_of_the_latest_answer():
    talk = Talk()
    talk.send(*START)
    talk.send(*START, read("c2", "b.py"), result("c2", B))
    talk.table.keep_leg(2, 1, hidden("p"), [])
    table = talk.send(user("do it so"), *START[1:], read("c3", "c.py"), result("c3", C))
    assert (table.lost_legs, shown(table)) == (1, [0, 1, 2, 3, 4])


def test_a_leg_behind_the_end_of_a_shorter_history_is_dropped_and_counted_at_once():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, LOOK, [])
    talk.send(*START, say("I look.Yes."), user())
    table = talk.send(user("a summary"))
    assert (table.lost_legs, table.hidden) == (1, {})
    assert talk.send(user("a summary"), *ON, *ON).lost_legs == 0


def test_a_leg_at_the_very_beginning_needs_nothing_before_it():
    talk = Talk()
    talk.table.keep_leg(0, 0, LOOK, [])
    table = talk.send(say("I look.Yes."), user())
    assert shown(table) == [SAID, BACK, say("Yes."), 1]


def test_another_attempt_at_a_call_drops_the_legs_of_the_one_before():
    talk = Talk()
    talk.send(*START)
    talk.table.keep_leg(1, 1, LOOK, [])
    table = talk.send(*START, attempt=2)
    assert (table.hidden, table.lost_legs, table.legs_now()) == ({}, 0, [])
    assert shown(talk.send(*START, say("I look.Yes."), user())) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("call", "attempt"), [(1, 1), (2, 2), (3, 1)])
def test_a_leg_of_another_call_or_attempt_has_no_place(call, attempt):
    talk = Talk()
    talk.send(*START)
    talk.send(*START, *ON)
    talk.table.keep_leg(call, attempt, LOOK, [handle(A)])
    assert (talk.table.hidden, talk.table.pages[0].faults) == ({}, 0)


def test_what_a_leg_brought_back_is_a_page_of_its_own():
    talk = Talk()
    talk.send(*START)
    large = Leg(LOOK.parts, [raw(result("h1", C))])
    talk.table.keep_leg(1, 1, large, [handle(A)])
    history = [*START, say("I look.Yes."), user()]
    _, page = talk.send(*history).pages
    assert (page.handle, page.tool, page.born, page.slot) == (handle(C), "page_in", 2, 4)
    talk.evict(handle(C))
    assert talk.table.shown[handle(C)] == Source(talk.table.slots[4].digest, "h1")
    _, page = talk.send(*history, *ON).pages
    assert page.stub == f"[{handle(C)}]"


# ---------------------------------------------------------------- what page_in brings back


def answer_of(*pages, **more):
    """A hidden leg in which pages are asked for, with the answer that they really get."""
    call_id = more.pop("call_id", "h1")
    closing = more.pop("closing", "")
    texts = {handle(page): page for page in pages}
    given = page_in.answer(json.dumps({"pages": [*texts], **more}), texts.get)
    return hidden_leg(given.text + closing, call_id, "")


class Missing(Talk):
    """A conversation in which pages were evicted at its second call, and are asked for again and again."""

    def __init__(self, *pages):
        super().__init__()
        self.history = [user("do it")]
        for number, page in enumerate(pages, 1):
            self.history += [read(f"c{number}", f"{number}.py"), result(f"c{number}", page)]
        self.table.tool = "page_in"
        self.send(*self.history)
        self.go_on()
        self.evict(*map(handle, pages))

    def go_on(self, said="I see."):
        self.history += [say(said), user()]
        return self.send(*self.history)

    def ask(self, *pages, **more):
        """Ask for pages, and come to the next call, which has them."""
        leg = answer_of(*pages, call_id=f"h{self.number}", **more)
        self.table.keep_leg(self.number, 1, leg, [handle(page) for page in pages])
        return self.go_on()


@pytest.mark.parametrize("closing", ["", "\n(This was the last page_in for now.)"])
def test_a_page_that_comes_back_wholly_is_the_page_that_it_was(closing):
    talk = Missing(A)
    gone, back = talk.ask(A, closing=closing).pages
    assert (back.handle, back.name) == (handle(A), f"{handle(A)}@b1")
    assert (back.faults, back.pin, back.tool) == (gone.faults, gone.pin, "read") == (1, 1.0, "read")
    assert (back.origins, back.whole, talk.table.named(back)) == ((handle(A),), True, ("read", "1.py"))


def test_each_time_that_a_page_comes_back_it_stays_longer():
    talk = Missing(A)
    stays = []
    for _ in range(4):
        came = talk.ask(A).pages[-1]
        stays.append(next(call for call in range(talk.number, 99) if not pinned(came, call)) - came.pinned_at)
        while pinned(came, talk.number):
            talk.go_on()
        talk.evict(came.name)
    assert (came.faults, stays) == (4, [3, 5, 7, 9])


def test_a_page_that_was_missed_before_stays_as_long_as_it_is_used():
    talk = Missing(A)
    for _ in range(2):
        came = talk.ask(A).pages[-1]
        for _ in range(6):
            talk.go_on()
        assert not pinned(came, talk.number)
        talk.evict(came.name)
    came = talk.ask(A).pages[-1]
    for _ in range(3):
        for _ in range(5):
            talk.go_on()
        assert pinned(came, talk.number)
        talk.go_on(f"It has {line('alpha')}")
    assert (came.uses, came.faults) == (3, 3)


def test_what_came_back_is_charged_once_however_often_it_is_evicted():
    talk = Missing(A)
    for times in (1, 2, 3):
        talk.ask(A)
        assert talk.table.account.faults == times
        assert talk.table.facts == ["fault"]
        assert talk.table.account.written == times * tokens_of(len(answer_of(A).results[0]))
        talk.go_on()
        talk.evict(names(talk.table)[-1])


def test_a_question_beside_other_calls_costs_no_request_of_its_own():
    talk = Missing(A)
    own = say("", ("c9", "look", {}))
    talk.table.keep_leg(talk.number, 1, hidden(handle(A), mixed=own), [handle(A)])
    assert (talk.table.account.faults, talk.table.account.context) == (1, 0)


def test_a_page_that_is_evicted_again_is_found_where_it_came_from():
    talk = Missing(A)
    source = talk.table.shown[handle(A)]
    talk.ask(A)
    talk.evict(f"{handle(A)}@b1")
    assert talk.table.shown[handle(A)] == source


def test_a_part_of_a_page_is_a_page_that_knows_where_it_is_from():
    talk = Missing(A)
    part = talk.ask(A, lines="2-15").pages[-1]
    assert (part.origins, part.whole, part.tool) == ((handle(A),), False, "read")
    assert part.handle != handle(A)
    assert talk.table.named(part) == ("part of read", "1.py")


def test_several_pages_in_one_answer_are_one_page_that_names_them_all():
    talk = Missing(A, B)
    both = talk.ask(A, B).pages[-1]
    assert (both.origins, both.whole) == ((handle(A), handle(B)), False)
    assert talk.table.named(both) == ("page_in", "read 1.py, read 2.py")


def test_the_history_of_a_page_outlives_its_place_in_the_prompt():
    talk = Missing(A)
    talk.ask(A)
    talk.send(user("In short: all is well."))
    (page,) = talk.send(user("In short: all is well."), read("c7", "1.py"), result("c7", A)).pages
    assert (page.handle, page.faults) == (handle(A), 1)


def test_a_fork_has_a_history_of_its_own():
    talk = Missing(A)
    talk.ask(A)
    talk.evict(f"{handle(A)}@b1")
    fork = talk.fork()
    fork.table.keep_leg(talk.number, 1, answer_of(A), [handle(A)])
    assert [page.faults for page in talk.table.pages] == [1, 1]
    assert [page.faults for page in fork.table.pages] == [2, 2]


def test_what_was_brought_back_is_dead_once_its_file_is_read_anew():
    talk = Missing(A)
    back = talk.ask(A).pages[-1]
    talk.history += [read("c8", "1.py"), result("c8", B)]
    talk.send(*talk.history)
    assert back.superseded


def test_an_old_state_that_is_asked_for_does_not_make_the_newer_one_dead():
    talk = Missing(A)
    talk.history += [read("c8", "1.py"), result("c8", B)]
    newer = talk.send(*talk.history).pages[-1]
    talk.ask(A)
    assert not newer.superseded
