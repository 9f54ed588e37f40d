"""Every token of a session's prompts by what it is: known answers, laws, and an independent count."""

import json
from functools import lru_cache
from pathlib import Path

import orjson
import pytest
from chat_items import item
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from recordings import FOLDER

from instrumentation.accounting.billing import tokens_in
from instrumentation.accounting.item_sizes import PICTURE
from instrumentation.accounting.story import StoryParts
from instrumentation.accounting.waste.anatomy import Totals, anatomy
from instrumentation.accounting.waste.items import shared, taken_apart
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.recording import RecordedCall, Recording
from instrumentation.replay.recording_files import files, load
from pager.paging.pages.staleness import Supersession, deed_of
from pager.text.distinctive import distinctive
from pager.wire.dialects import load as load_dialect

CHAT, MESSAGES, RESPONSES = load_dialect("chat"), load_dialect("messages"), load_dialect("responses")


# ---- sessions of items with a known number of tokens: 27 bytes are 10


def padded(tokens, make):
    """The item that ``make`` makes of a text, of exactly so many tokens."""
    return make("x" * (tokens * 27 // 10 - len(make(""))))


def user(tokens=100):
    return padded(tokens, lambda text: item(role="user", content=text))


def system(tokens=100, role="system"):
    return padded(tokens, lambda text: item(role=role, content=text))


def says(tokens=100):
    return padded(tokens, lambda text: item(role="assistant", content=text))


def calls(call_id="c1", tool="read", tokens=100, **arguments):
    function = {"name": tool, "arguments": json.dumps(arguments)}
    made = [{"id": call_id, "type": "function", "function": function}]
    return padded(tokens, lambda text: item(role="assistant", content=text, tool_calls=made))


def line(seed):
    return f"the {seed} line that only this page has ever shown"


def result(call_id="c1", seed="first", tokens=1000):
    """A result whose line says its seed; the same seed and tokens are the same content."""
    return padded(tokens, lambda text: item(role="tool", tool_call_id=call_id, content=f"{line(seed)}\n{text}"))


def tool(name, tokens):
    """A tool of so many tokens as it is offered."""
    function = {"name": name, "parameters": {"type": "object"}}
    return padded(tokens, lambda text: item(type="function", function={**function, "description": text}))


def offers(*tools):
    return CHAT.offers(CHAT.parse(b'{"messages":[],"tools":[%b]}' % b",".join(tools))).offers


def session(*prompts, said=(), dialect=CHAT, **common):
    """A session of one branch with these prompts; ``said`` tells by the number of a call what its answer says."""
    before, steps = [], []
    for number, prompt in enumerate(prompts, 1):
        keep = same(before, prompt)
        told = dict(said).get(number, "")
        steps.append(RecordedCall(float(number), keep, tuple(prompt[keep:]), **{"outside": 0, "said": told, **common}))
        before = prompt
    return Prepared(Recording("session", dialect.name, steps), dialect)


def same(left, right):
    """How many items two prompts share at their beginning."""
    pairs = zip(left, right, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


def grown(*turns):
    """The prompts of a session that only grows: each turn adds its items."""
    return [[one for turn in turns[:end] for one in turn] for end in range(1, len(turns) + 1)]


def parts(prepared):
    """The parts of each call."""
    return [call.client for call in anatomy(prepared).calls]


ONE = {"system": 1}  # an empty outside still counts as a token: new in the first call
AGAIN = {"resent": 1}


# ---- known answers, one for each cause of waste


def test_tools_that_the_session_never_calls_are_unused_schemas():
    listed = offers(tool("read", 100), tool("write", 200), tool("search", 300))
    prepared = session(*grown([user()], [says()]), outside=2700, offers=listed, called=("read",))
    assert parts(prepared) == [
        StoryParts(system=400, schemas=100, unused_schemas=500, user=100),
        StoryParts(resent=400, schemas=100, unused_schemas=500, user=100, assistant=100),
    ]
    totals = anatomy(prepared).totals
    assert totals.unused_schemas == 1000 / 2300
    assert totals.waste == {
        "unused_schemas": 1000 / 2300,
        "stale": 0.0,
        "duplicates": 0.0,
        "superseded": 0.0,
        "resent": 400 / 2300,
    }


def test_a_call_late_in_the_session_makes_a_tool_used_from_the_first_call_on():
    listed = offers(tool("read", 100), tool("write", 200))
    prepared = session([user()], [user()], outside=810, offers=listed)
    steps = [prepared.recording.steps[0], prepared.recording.steps[1]._replace(called=("write",))]
    late = Prepared(Recording("session", "chat", steps), CHAT)
    assert [(one.schemas, one.unused_schemas) for one in parts(late)] == [(200, 100), (200, 100)]


def test_a_tool_that_the_provider_may_run_itself_is_never_unused():
    entry = b'{"type":"web_search_20250305","name":"web_search"  }'
    listed = MESSAGES.offers(MESSAGES.parse(b'{"messages":[],"tools":[%b]}' % entry)).offers
    [only] = parts(session([item(role="user", content="hello")], dialect=MESSAGES, outside=len(entry), offers=listed))
    assert (only.schemas, only.unused_schemas) == (tokens_in(len(entry)), 0)


def test_results_are_stale_past_the_last_call_that_needs_them():
    turns = [[user()], [calls(), result()], [says()], [says(200)], [says(300)]]
    prepared = session(*grown(*turns), said={3: f"I see {line('first')}\n{line('first')}"})
    assert parts(prepared) == [
        StoryParts(**ONE, user=100),
        StoryParts(**AGAIN, user=100, assistant=100, results=1000),
        StoryParts(**AGAIN, user=100, assistant=200, results=1000),
        StoryParts(**AGAIN, user=100, assistant=400, stale=1000),
        StoryParts(**AGAIN, user=100, assistant=700, stale=1000),
    ]
    assert anatomy(prepared).totals.stale == 2000 / 5905
    [page] = anatomy(prepared).pages()
    assert (page.states, page.tokens, page.kind, page.tool) == (".russ", 1000, "result", "read")


def test_a_result_that_nothing_needs_is_stale_from_its_second_call_on():
    prepared = session(*grown([user(), calls(), result()], [says()]))
    assert [(one.results, one.stale) for one in parts(prepared)] == [(1000, 0), (0, 1000)]


def test_a_small_result_is_never_waste():
    small = item(role="tool", tool_call_id="c1", content="x" * 200)
    prepared = session(*grown([user(), calls(), small], [says(), calls("c2"), small.replace(b"c1", b"c2")]))
    size = tokens_in(len(small))
    assert [(one.results, sum(one.waste.values())) for one in parts(prepared)] == [(size, 0), (2 * size, 1)]


def test_the_same_content_further_on_makes_the_first_a_duplicate():
    turns = [[user(), calls(), result()], [calls("c2", path="b"), result("c2")], [says()]]
    prepared = session(*grown(*turns), said={3: line("first")})
    assert parts(prepared) == [
        StoryParts(**ONE, user=100, assistant=100, results=1000),
        StoryParts(**AGAIN, user=100, assistant=200, results=1000, duplicates=1000),
        StoryParts(**AGAIN, user=100, assistant=300, results=1000, duplicates=1000),
    ]
    assert [page.states for page in anatomy(prepared).pages()] == ["rss", ".ru"]


def test_a_later_state_of_the_same_file_makes_the_first_superseded():
    again = [calls("c2", path="a.py"), result("c2", "second")]
    turns = [[user(), calls(path="a.py"), result()], again, [calls("c3", path="b.py"), result("c3", "third")]]
    prepared = session(*grown(*turns), said={3: f"{line('first')}\n{line('second')}"})
    assert parts(prepared) == [
        StoryParts(**ONE, user=100, assistant=100, results=1000),
        StoryParts(**AGAIN, user=100, assistant=200, results=1000, superseded=1000),
        StoryParts(**AGAIN, user=100, assistant=300, results=2000, superseded=1000),
    ]
    assert [page.states for page in anatomy(prepared).pages()] == ["rsu", ".ru", "..r"]


def test_a_duplicate_that_is_superseded_too_is_a_duplicate():
    turns = [[user(), calls(path="a.py"), result()], [calls("c2", path="a.py"), result("c2")]]
    last = parts(session(*grown(*turns)))[-1]
    assert (last.duplicates, last.superseded, last.results) == (1000, 0, 1000)


def test_a_small_result_supersedes_as_well():
    small = item(role="tool", tool_call_id="c2", content="gone")
    turns = [[user(), calls(path="a.py"), result()], [calls("c2", path="a.py"), small]]
    assert parts(session(*grown(*turns)))[-1].superseded == 1000


def test_a_call_that_failed_supersedes_nothing():
    def sent(**members):
        return item(role=members.pop("role"), content=[members])

    def use(call_id):
        return sent(role="assistant", type="tool_use", id=call_id, name="read", input={"path": "a.py"})

    def told(call_id, **more):
        return sent(role="user", type="tool_result", tool_use_id=call_id, content=line(call_id) * 30, **more)

    turns = [[use("c1"), told("c1")], [use("c2"), told("c2", is_error=True)]]
    assert parts(session(*grown(*turns), dialect=MESSAGES))[-1].superseded == 0


def test_the_system_prompt_is_resent_from_the_second_call_on():
    prepared = session(*grown([system(500), user()], [says()], [system(50, "developer")], [says()]), outside=270)
    assert parts(prepared) == [
        StoryParts(system=600, user=100),
        StoryParts(resent=600, user=100, assistant=100),
        StoryParts(system=50, resent=600, user=100, assistant=100),
        StoryParts(resent=650, user=100, assistant=200),
    ]
    assert anatomy(prepared).totals.waste["resent"] == 1850 / 3300


def test_what_stands_outside_is_new_again_when_its_size_changes():
    first, second, third = (
        RecordedCall(float(at), at > 0, () if at else (user(),), size) for at, size in enumerate((270, 540, 270))
    )
    prepared = Prepared(Recording("session", "chat", [first, second, third]), CHAT)
    assert [(one.system, one.resent) for one in parts(prepared)] == [(100, 0), (200, 0), (0, 100)]


# ---- amplification


def test_amplification_is_how_often_a_byte_was_sent():
    prepared = session(*grown([user(100)], [says(100)], [user(200)]), outside=270)
    totals = anatomy(prepared).totals
    assert totals.amplification == (200 + 300 + 500) / (200 + 100 + 200)
    assert (totals.calls, totals.sent, totals.fresh) == (3, 2700, 1350)


def test_tools_that_were_offered_before_are_not_new_in_a_longer_list():
    read, write = tool("read", 100), tool("write", 200)
    first = RecordedCall(0.0, 0, (user(),), 270, offers=offers(read))
    second = RecordedCall(1.0, 1, (), 810, offers=offers(read, write))
    found = anatomy(Prepared(Recording("session", "chat", [first, second]), CHAT))
    assert [call.fresh for call in found.calls] == [270 + 270, 540]


def test_a_session_without_answers_has_empty_sums():
    found = anatomy(session([user()], [user()], answered=False))
    assert found.totals == Totals()
    assert (found.totals.amplification, found.totals.stale) == (0.0, 0.0)
    assert [call.client.system for call in found.calls] == [1, 1]
    assert [call.fresh for call in found.calls] == [270, 270]


# ---- the working set


def test_the_working_set_are_pages_used_within_ten_calls():
    turns = [[user(), calls(), result()], *[[says()] for _ in range(25)]]
    found = anatomy(session(*grown(*turns), said={13: line("first")}))
    working = [call.working for call in found.calls]
    assert working == [1000] * 10 + [0] * 2 + [1000] * 10 + [0] * 4


def test_a_duplicate_is_in_the_working_set_once():
    turns = [[user(), calls(), result()], [calls("c2", path="b"), result("c2")]]
    assert [call.working for call in anatomy(session(*grown(*turns))).calls] == [1000, 1000]


# ---- prompts that do not only grow


def test_what_a_rewind_takes_back_is_taken_back_from_earlier_pages_too():
    start = [user(), calls(path="a.py"), result()]
    superseding = [*start, calls("c2", path="a.py"), result("c2", "second")]
    doubling = [*start, calls("c3", path="b.py"), result("c3")]
    found = anatomy(session(start, superseding, doubling, start, superseding))
    told = [(one.client.results, one.client.stale, one.client.superseded, one.client.duplicates) for one in found.calls]
    assert told == [(1000, 0, 0, 0), (1000, 0, 1000, 0), (1000, 0, 0, 1000), (0, 1000, 0, 0), (1000, 0, 1000, 0)]
    assert [page.states for page in found.pages()] == ["rssss", ".r...", "..r..", "....r"]


def test_a_page_in_an_item_that_was_written_anew_stays_the_same_page():
    marked = json.loads(result())
    marked["cache_control"] = {"type": "ephemeral"}
    first = [user(), calls(), item(**marked)]
    found = anatomy(session(first, [user(), calls(), result(), says()]))
    assert [page.states for page in found.pages()] == ["rs"]
    assert found.calls[1].fresh == 270  # what was said, not what was unmarked


def test_a_prompt_may_go_back_further_than_is_remembered():
    turns = [[user(), calls(path="a.py"), result()], *[[says()] for _ in range(8)]]
    prompts = grown(*turns)
    late = [*prompts[0], calls("c2", path="a.py"), result("c2", "second")]
    assert parts(session(*prompts, late))[-1].superseded == 1000


def branched(*steps):
    return Prepared(Recording("session", "chat", steps), CHAT)


def test_a_fork_knows_what_its_parent_sent_and_needs_what_it_needs_itself():
    read = (system(), user(), calls(), result())
    found = anatomy(
        branched(
            RecordedCall(0.0, 0, read, 0),
            RecordedCall(1.0, 4, (says(),), 0),
            RecordedCall(2.0, 5, (says(),), 0),
            RecordedCall(3.0, 5, (user(),), 0, branch=1, parent=0, fork_call=2, said=line("first")),
            RecordedCall(4.0, 6, (says(),), 0, branch=1),
        )
    )
    each = [call.client for call in found.calls]
    assert [one.system for one in each] == [101, 0, 0, 0, 0]
    assert [(one.results, one.stale) for one in each] == [(1000, 0), (1000, 0), (0, 1000), (1000, 0), (0, 1000)]
    assert [(page.branch, page.states) for page in found.pages()] == [(0, "rrs.."), (1, "...us")]


def test_a_branch_without_a_parent_begins_anew():
    first = (system(), user(), calls(), result())
    found = anatomy(branched(RecordedCall(0.0, 0, first, 270), RecordedCall(1.0, 0, first, 270, branch=1)))
    assert found.calls[1].client == StoryParts(system=200, user=100, assistant=100, results=1000)
    assert found.calls[1].fresh == 0
    assert [page.states for page in found.pages()] == ["r.", ".r"]


def test_another_attempt_sends_everything_again():
    first = RecordedCall(0.0, 0, (system(), user(), calls(), result()), 0)
    again = first._replace(keep=4, new=(), attempt=2)
    found = anatomy(branched(first, again))
    assert [call.client.resent for call in found.calls] == [0, 101]
    assert [call.client.results for call in found.calls] == [1000, 1000]


def test_what_was_sent_in_vain_is_new_the_next_time():
    first = RecordedCall(0.0, 0, (system(), user()), 0, answered=False)
    found = anatomy(branched(first, first._replace(keep=2, new=(), attempt=2, answered=True)))
    assert [call.client.system for call in found.calls] == [101, 101]
    assert found.totals == Totals(1, StoryParts(system=101, user=100), 540, 540)


def test_a_request_that_could_not_be_read_is_nothing_known():
    read = RecordedCall(0.0, 0, (user(), calls(), result()), 0)
    found = anatomy(branched(read, RecordedCall(1.0, 0, (), 2700), read._replace(at=2.0)))
    assert found.calls[1].client == StoryParts(other=1000)
    assert found.calls[2].client == StoryParts(resent=1, user=100, assistant=100, stale=1000)
    assert [page.states for page in found.pages()] == ["r.s"]


# ---- the page map


def test_pages_are_told_for_chosen_calls_only():
    turns = [[user()], [calls(), result()], [says()], [calls("c2", path="b"), result("c2", "second")]]
    found = anatomy(session(*grown(*turns)))
    assert [page.states for page in found.pages()] == [".rss", "...r"]
    assert [page.states for page in found.pages([0, 2])] == [".s"]


def test_what_a_page_says_is_told_only_if_asked_for():
    found = anatomy(session([user(), calls(path="src/a.py"), result()]))
    [bare], [full] = found.pages(), found.pages(with_content=True)
    assert (bare.about, bare.content) == ("", "")
    assert full.about == "src/a.py"
    assert full.content.startswith(line("first"))


def test_a_result_without_its_call_is_a_page_without_a_tool():
    [page] = anatomy(session([user(), result()])).pages(with_content=True)
    assert (page.tool, page.about) == ("", "")


# ---- items


def apart(raw, dialect=CHAT):
    return taken_apart(raw, dialect)


def test_a_large_argument_of_a_call_is_a_page_of_its_own():
    text = "a word and\n" * 200
    raw = calls(tool="write", tokens=1200, path="a.py", content=text)
    found = apart(raw)
    [page] = found.pages
    written = len(json.dumps(json.dumps(text))) - 6  # escaped twice, without quotes
    assert page.tokens == pytest.approx(written / 2.7, rel=0.01)
    assert page.tokens + found.tokens["assistant"] == 1200


def test_calls_that_can_not_be_told_apart_lose_no_token():
    large = {"name": "write", "arguments": json.dumps({"content": "x" * 900})}
    small = {"name": "read", "arguments": json.dumps({"path": "a.py"})}
    twice = item(role="assistant", tool_calls=[{"id": "c1", "function": small}, {"id": "c1", "function": large}])
    mixed = item(
        role="assistant", tool_calls=[{"id": "c1", "function": large, "custom": {"name": "f", "input": "free"}}]
    )
    for raw in (twice, mixed):
        found = apart(raw)
        assert [page.found.size for page in found.pages] == [900]
        assert found.pages[0].tokens + found.tokens["assistant"] == tokens_in(len(raw))


def test_the_blocks_of_a_message_share_its_tokens():
    blocks = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "x" * 5000},
        {"type": "tool_result", "tool_use_id": "c2", "content": "y" * 100},
        {"type": "text", "text": "z" * 1000},
    ]
    raw = item(role="user", content=blocks)
    found = apart(raw, MESSAGES)
    [page] = found.pages
    assert (page.tokens, found.tokens["results"], found.tokens["user"]) == pytest.approx((1877, 62, 395), abs=15)
    assert page.tokens + found.tokens["results"] + found.tokens["user"] == tokens_in(len(raw))


def test_arguments_of_an_object_are_as_large_as_they_are_written():
    text = '"quoted"\n' * 200
    blocks = [
        {"type": "thinking", "thinking": "", "signature": "s" * 3000},
        {"type": "tool_use", "id": "c1", "name": "write", "input": {"path": "a.py", "content": text}},
    ]
    found = apart(item(role="assistant", content=blocks), MESSAGES)
    [page] = found.pages
    assert page.tokens == pytest.approx(len(json.dumps(text)) / 2.7, rel=0.01)


def test_an_image_in_a_result_is_of_no_use_to_count_as_text():
    blocks = [{"type": "text", "text": "x" * 600}, {"type": "image", "source": {"data": "A" * 9000}}]
    raw = item(role="user", content=[{"type": "tool_result", "tool_use_id": "c1", "content": blocks}])
    found = apart(raw, MESSAGES)
    around = tokens_in(len(raw) - 9600)
    assert (found.tokens["results"], found.tokens["other"]) == (
        pytest.approx(222, abs=2),
        pytest.approx(PICTURE + around, abs=4),
    )


def test_items_that_nobody_knows_are_other():
    assert apart(b"[1, 2]").tokens["other"] == tokens_in(6)
    assert apart(item(type="web_search_call", id="ws_1"), RESPONSES).tokens["other"] > 0
    assert apart(item(role="critic", content="well"), CHAT).tokens["other"] > 0


def test_an_empty_message_is_that_of_its_speaker():
    raw = item(role="assistant", content="")
    assert apart(raw).tokens["assistant"] == tokens_in(len(raw))


def test_reasoning_and_calls_are_the_assistants():
    assert apart(item(type="reasoning", summary=[], encrypted_content="e" * 900), RESPONSES).tokens[
        "assistant"
    ] in range(1, 60)
    assert apart(item(type="function_call", call_id="c", name="f", arguments="{}"), RESPONSES).tokens["assistant"] > 0


def test_half_a_character_is_counted_all_the_same():
    raw = b'{"role":"assistant","content":"\\ud83d half","tool_calls":[{"id":"c1","function":{"name":"f"}}]}'
    assert apart(raw).tokens["assistant"] == tokens_in(len(raw))
    assert shared(10, []) == []
    assert shared(10, [0, 0]) == [10, 0]


@given(tokens=st.integers(0, 10**7), weights=st.lists(st.integers(0, 10**7), min_size=1))
def test_shares_add_up_and_none_is_off_by_more_than_a_token(tokens, weights):
    found = shared(tokens, weights)
    assert sum(found) == tokens
    assert min(found) >= 0
    if total := sum(weights):
        assert all(
            abs(share - tokens * weight / total) <= 1 + 1e-6 for share, weight in zip(found, weights, strict=True)
        )


# ---- any session


SEEDS = ("alpha", "beta", "gamma")
PATHS = ("a.py", "b.py")
TOOLS = ("read", "write", "search")


@st.composite
def exchanges(draw):
    """A call and its result, or something that is said."""
    call_id = f"c{draw(st.integers(0, 40))}"
    kind = draw(st.sampled_from(["call", "call", "call", "user", "says", "system"]))
    if kind != "call":
        make = {"user": user, "says": says, "system": system}[kind]
        return [make(draw(st.sampled_from([100, 150])))]
    named, path = draw(st.sampled_from(TOOLS)), draw(st.sampled_from(PATHS))
    tokens = draw(st.sampled_from([60, 400, 600]))
    return [calls(call_id, named, path=path), result(call_id, draw(st.sampled_from(SEEDS)), tokens)]


EXCHANGES = exchanges()


@st.composite
def sessions(draw, items=EXCHANGES, dialect=CHAT):
    """A session of several branches that grow, are cut, fork, and are tried again."""
    latest, numbers, steps = {}, {}, []
    listed = offers(*(tool(name, 100) for name in TOOLS)) if draw(st.booleans()) else None
    for at in range(draw(st.integers(1, 14))):
        how = draw(st.sampled_from(["grow", "grow", "grow", "cut", "fork", "again", "anew"])) if latest else "anew"
        branch = draw(st.sampled_from(sorted(latest))) if latest else 0
        before, number = latest.get(branch, []), numbers.get(branch, 0)
        fork_call = draw(st.integers(0, number)) if how == "fork" else 0
        keep = len(before) if how in ("grow", "again") else draw(st.integers(0, len(before))) if how != "anew" else 0
        new = [] if how == "again" else [one for part in draw(st.lists(items, max_size=3)) for one in part]
        parent, branch = (branch, len(latest)) if how == "fork" else (None, len(latest) if how == "anew" else branch)
        prompt = [*before[:keep], *new] or [user()]
        keep = min(keep, len(prompt))
        said = "\n".join(line(seed) for seed in draw(st.sets(st.sampled_from(SEEDS))))
        step = RecordedCall(
            at=float(at),
            keep=keep,
            new=tuple(prompt[keep:]),
            outside=draw(st.sampled_from([900, 900, 1200])),
            said=said,
            branch=branch,
            parent=parent,
            fork_call=fork_call,
            attempt=1 + (how == "again"),
            answered=draw(st.integers(0, 5)) > 0,
            offers=listed,
            called=tuple(draw(st.sets(st.sampled_from(TOOLS), max_size=1))),
        )
        latest[branch] = prompt
        numbers[branch] = (number if branch in numbers else fork_call) + (how != "again")
        steps.append(step)
    return Prepared(Recording("session", dialect.name, steps), dialect)


def anything(dialect):
    """Items of any shape, as a wire format might have them or not."""
    text = st.text(max_size=30) | st.sampled_from(["x" * 900, line("alpha") * 20, "é\n" * 500])
    block = st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "image", "tool_use", "tool_result", "thinking", "nobody knows"])},
        optional={
            "text": text,
            "content": text,
            "id": st.sampled_from(["c1", "c2"]),
            "tool_use_id": st.sampled_from(["c1", "c2"]),
            "name": st.just("write"),
            "input": st.dictionaries(st.sampled_from(["path", "content"]), text, max_size=2),
            "source": text,
        },
    )
    known = st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "tool", "system", "function"]),
            "content": text | st.lists(block, max_size=4),
            "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning"]),
            "call_id": st.sampled_from(["c1", "c2"]),
            "tool_call_id": st.sampled_from(["c1", "c2"]),
            "arguments": text.map(lambda one: json.dumps({"content": one})) | text,
            "output": text,
            "name": st.just("write"),
        },
    )
    raw = known.map(lambda one: json.dumps(one).encode()) | st.binary(min_size=1, max_size=40)
    return sessions(raw.map(lambda one: [one]), dialect)


def check_sums(prepared):
    found = anatomy(prepared)
    for call, told in zip(prepared.calls, found.calls, strict=True):
        assert told.client.total == call.prompt.tokens
        assert min(getattr(told.client, name) for name in StoryParts.__struct_fields__) >= 0
        assert 0 <= told.working <= told.client.total
        assert 0 <= told.fresh <= told.sent
    totals = found.totals
    answered = [call for call in prepared.calls if call.step.answered]
    assert totals.client.total == sum(call.prompt.tokens for call in answered)
    assert totals.calls == len(answered)
    assert sum(totals.waste.values()) <= 1 + 1e-9
    assert not answered or totals.amplification >= 1
    assert all(len(page.states) == len(found.calls) for page in found.pages())


@given(sessions())
def test_the_parts_of_every_call_add_up_to_its_prompt(prepared):
    check_sums(prepared)


@examples(60)
@given(st.one_of(anything(CHAT), anything(MESSAGES), anything(RESPONSES)))
def test_the_parts_add_up_whatever_the_items_are(prepared):
    check_sums(prepared)


# ---- an independent count, from the definitions, of sessions of Chat Completions


class Slow:
    """Counts each prompt on its own, from its first item to its last, in plain floating numbers."""

    def __init__(self, prepared):
        self.steps = prepared.recording.steps
        self.prompts, self.numbers, self.parents = [], [], {}
        latest = {}
        for step in self.steps:
            prompt, number = latest.get(step.branch if step.parent is None else step.parent, ([], step.fork_call))
            if step.branch not in latest:
                self.parents[step.branch] = (step.parent, step.fork_call)
                number = step.fork_call
            here = ([*prompt[: step.keep], *step.new], number + (step.attempt == 1))
            latest[step.branch] = here
            self.prompts.append([read(raw) for raw in here[0]])
            self.numbers.append(here[1])
        self.needed = [needed(prompt, step.said) for prompt, step in zip(self.prompts, self.steps, strict=True)]

    @lru_cache(None)  # noqa: B019 - as short-lived as a test
    def last(self, branch, content):
        """The last call that needs a content, in this branch or in one that leaves it later, up to the fork."""
        found = [0]
        for step, number, contents in zip(self.steps, self.numbers, self.needed, strict=True):
            if step.branch == branch and content in contents:
                found.append(number)
        forks = [(child, fork) for child, (parent, fork) in self.parents.items() if parent == branch]
        return max(found + [min(fork, self.last(child, content)) for child, fork in forks])

    def parts(self):
        """For each call the tokens of pages by part."""
        born, told = {}, []
        for step, number, prompt in zip(self.steps, self.numbers, self.prompts, strict=True):
            pages = [page for message in prompt for page in message["pages"]]
            names, dead = named(pages), superseded(prompt)
            first = born.get(step.branch)
            if first is None:
                first = {name: min(at, step.fork_call + 1) for name, at in born.get(step.parent, {}).items()}
            born[step.branch] = {name: first.get(name, number) for name in names}
            sums = dict.fromkeys(("results", "stale", "duplicates", "superseded"), 0)
            small = [message["size"] for message in prompt if message["answers"] and not message["pages"]]
            sums["results"] += sum(map(tokens_in, small))
            for at, (page, name) in enumerate(zip(pages, names, strict=True)):
                if any(page["text"] == later["text"] for later in pages[at + 1 :]):
                    sums["duplicates"] += page["tokens"]
                elif at in dead:
                    sums["superseded"] += page["tokens"]
                elif number > max(born[step.branch][name], self.last(step.branch, page["text"])):
                    sums["stale"] += page["tokens"]
                else:
                    sums["results"] += page["tokens"]
            told.append(sums)
        return told

    def totals(self):
        """The tokens of all answered calls, the stale ones, those of unused tools, and how often a byte was sent."""
        called = {name for step in self.steps for name in step.called}
        tokens = stale = unused = sent = fresh = 0
        known = set()
        for step, prompt, sums in zip(self.steps, self.prompts, self.parts(), strict=True):
            if not step.answered:
                continue
            tools = [(one.tool.name, one.size) for one in (step.offers.tools if step.offers else ())]
            tokens += sum(message["size"] for message in prompt) / 2.7 + step.outside / 2.7
            unused += sum(size for name, size in tools if name not in called) / 2.7
            stale += sums["stale"]
            pieces = {message["raw"]: message["size"] for message in prompt} | dict(tools)
            pieces[""] = step.outside - sum(size for _, size in tools)
            sent += step.outside + sum(message["size"] for message in prompt)
            fresh += sum(size for key, size in pieces.items() if (key, size) not in known)
            known |= set(pieces.items())
        return stale / tokens, unused / tokens, sent / fresh


@lru_cache(None)
def read(raw):
    """A message: its pages, its other texts, and the calls it makes and answers."""
    message, size = json.loads(raw), len(raw)
    made = [(call.get("id", ""), call["function"]) for call in message.get("tool_calls") or ()]
    pages, texts = [], [text for text in [message.get("content")] if text]
    if message["role"] == "tool":
        content, texts = texts_of(message), []
        if len(content.encode("utf-8", "surrogatepass")) >= 500:
            pages.append(page_of(message["tool_call_id"], "result", content, tokens_in(size)))
        else:
            texts.append(content)
    for call_id, function in made:
        for name, value in values(function["arguments"]).items():
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            if len(text.encode("utf-8", "surrogatepass")) >= 800:
                inner = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                written = len(json.dumps(inner, ensure_ascii=False).encode())
                pages.append(page_of(call_id, "argument", text, written / 2.7, name))
            else:
                texts.append(text)
    calls = [(call_id, function["name"], function["arguments"]) for call_id, function in made]
    answers = [message["tool_call_id"]] if message["role"] == "tool" else []
    return {"raw": raw, "size": size, "pages": pages, "texts": texts, "calls": calls, "answers": answers}


def page_of(call_id, kind, text, tokens, name=""):
    return {"call": call_id, "kind": kind, "text": text, "tokens": tokens, "key": (call_id, name)}


def texts_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def values(arguments):
    try:
        found = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {"": arguments}
    return found if isinstance(found, dict) else {"": arguments}


signs_of = lru_cache(None)(lambda text: frozenset(distinctive(text)))


def needed(prompt, said):
    """The contents that an answer needs: the newest page with a sign of it that stands nowhere but in pages."""
    pages = [page["text"] for message in prompt for page in message["pages"]]
    texts = [text for message in prompt for text in message["texts"] if isinstance(text, str)]
    found = set()
    for sign in signs_of(said):
        showing = [text for text in pages if sign in signs_of(text)]
        if showing and not any(sign in text for text in texts):
            found.add(showing[-1])
    return found


def named(pages):
    """What tells a page from others: its place among those with the same content, and its call."""
    texts = [page["text"] for page in pages]
    return [(page["text"], texts[: at + 1].count(page["text"]), page["key"]) for at, page in enumerate(pages)]


def superseded(prompt):
    """The places, among the pages of a prompt, of those that a later call made dead."""
    living, deeds, dead, at = Supersession(by_edits=False), {}, set(), 0
    for message in prompt:
        deeds |= {call_id: deed_of(tool, arguments) for call_id, tool, arguments in message["calls"]}
        if not any(page["kind"] == "result" for page in message["pages"]):
            for call_id in message["answers"]:
                dead |= set(living.edited(deeds[call_id])) if call_id in deeds else set()
        for page in message["pages"]:
            if page["call"] in deeds:
                dead |= set(living.note(str(at), page["kind"], deeds[page["call"]]))
            at += 1
    return {int(name) for name in dead}


@given(sessions())
def test_an_independent_count_agrees_on_every_page_of_every_call(prepared):
    found, slow = anatomy(prepared), Slow(prepared).parts()
    for told, sums in zip(found.calls, slow, strict=True):
        assert told.client.stale == sums["stale"]
        assert told.client.duplicates == sums["duplicates"]
        assert told.client.superseded == sums["superseded"]
        assert told.client.results == sums["results"]


def check_agreement(prepared):
    stale, unused, amplification = Slow(prepared).totals()
    totals = anatomy(prepared).totals
    assert totals.stale == pytest.approx(stale, rel=0.01)
    assert totals.unused_schemas == pytest.approx(unused, rel=0.01)
    assert totals.amplification == pytest.approx(amplification, rel=0.01)


@examples(60)
@given(sessions().filter(lambda one: any(step.answered for step in one.recording.steps)))
def test_an_independent_count_of_a_session_agrees_within_a_hundredth(prepared):
    check_agreement(prepared)


@pytest.mark.recorded
@pytest.mark.skipif(not FOLDER, reason="CTXPAGER_RECORDINGS names no folder of recordings")
@pytest.mark.parametrize("part", range(4))
def test_an_independent_count_agrees_on_recorded_sessions(part):
    paths = files(Path(FOLDER) / "traces" / "entire-cli")[part * 6 :: 24]
    assert paths
    for path in paths:
        prepared = Prepared(load(path), CHAT)
        check_sums(prepared)
        if any(call.step.answered for call in prepared.calls):
            check_agreement(prepared)
