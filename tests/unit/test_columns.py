"""The numbers of pages in arrays: the same as the pages themselves say, however often they change."""

from dataclasses import fields
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from branches import empty_table, items_of
from chat_items import call, encoded, hidden_leg, result, say, user
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pager.paging import planner
from pager.paging.pages.page import STUB_TOKENS, Page
from pager.paging.pages.page_arrays import (
    BETWEEN,
    Columns,
    LazyPages,
    Mirror,
    columns,
)
from pager.paging.policy import PageView, Prices
from pager.wire.dialects import load

chat = load("chat")
TERMS = planner.Terms(Prices(), window=10_000, reserve=1_000)
MIRRORED = (
    *("tokens", "stub_tokens", "size", "born", "used", "uses", "faults", "superseded", "evicted", "is_error"),
    *("pin", "pinned_at", "slot", "is_argument"),
)


def mirrored(mirror):
    """All that a mirror shows."""
    tools = [mirror.tool_names[code] for code in mirror.tools]
    return {name: mirror[name].tolist() for name in MIRRORED} | {"tool": tools, "starts": mirror.starts.tolist()}


def built_anew(table):
    mirror = Mirror()
    mirror.sync(table.pages, table.slots)
    return mirrored(mirror)


# ---------------------------------------------------------------- pages and slots by hand


def page(name="p", tool="read", kind="result", size=700, slot=0, **more):
    made = Page(name, name, "c1", kind, tool, "c1", size, 1, slot, 1)
    for trait, value in more.items():
        setattr(made, trait, value)
    return made


def slots(*sizes):
    return [SimpleNamespace(size=size) for size in sizes]


def test_a_mirror_of_nothing_is_empty():
    mirror = Mirror()
    mirror.sync([], [])
    assert mirrored(mirror) == {**{name: [] for name in MIRRORED}, "tool": [], "starts": [0.0]}


def test_a_page_is_mirrored_with_all_its_numbers():
    mirror = Mirror()
    one = page(
        kind="argument", size=7_000, slot=2, uses=3, used=5, superseded=True, stub="[stub]", pin=1.5, pinned_at=4
    )
    mirror.sync([one], slots(100, 200, 7_100))
    assert mirrored(mirror) == {
        "tokens": [2_593],
        "stub_tokens": [STUB_TOKENS],
        "size": [7_000],
        "born": [1],
        "used": [5],
        "uses": [3],
        "faults": [0],
        "superseded": [1],
        "evicted": [1],
        "is_error": [0],
        "pin": [1.5],
        "pinned_at": [4],
        "slot": [2],
        "is_argument": [1],
        "tool": ["read"],
        "starts": [0, 100 + BETWEEN, 300 + 2 * BETWEEN, 7_400 + 3 * BETWEEN],
    }


def test_only_what_was_touched_is_looked_at_again():
    mirror, one, other = Mirror(), page(row=0), page("q", row=1)
    mirror.sync([one, other], [])
    one.uses = other.uses = 7
    mirror.touch(one)
    mirror.sync([one, other], [])
    assert mirror["uses"].tolist() == [7, 0]


def test_what_is_cut_off_is_gone_and_what_comes_instead_is_new():
    mirror = Mirror()
    mirror.sync([page(), page("q", "run", slot=1)], slots(100, 200))
    mirror.touch(page("q", row=1))
    mirror.cut(1, 1)
    mirror.sync([page(), page("r", "grep", slot=1, uses=2)], slots(100, 50, 70))
    assert mirror["uses"].tolist() == [0, 2]
    assert [mirror.tool_names[code] for code in mirror.tools] == ["read", "grep"]
    assert mirror.starts.tolist() == [0, 101, 152, 223]


def test_a_cut_behind_all_that_is_known_changes_nothing():
    mirror = Mirror()
    mirror.sync([page()], slots(100))
    before = mirrored(mirror)
    mirror.cut(5, 5)
    mirror.sync([page()], slots(100))
    assert mirrored(mirror) == before


@pytest.mark.parametrize("steps", [(63, 64, 65), (64, 128, 300), (1_000,)])
def test_any_number_of_pages_and_slots_fits(steps):
    mirror = Mirror()
    pages = [page(f"p{at}", f"tool{at % 3}", slot=at, uses=at) for at in range(max(steps))]
    for known in steps:
        mirror.sync(pages[:known], slots(*[9] * known))
    assert mirror["uses"].tolist() == list(range(max(steps)))
    assert mirror.starts.tolist() == [10 * at for at in range(max(steps) + 1)]
    assert mirror.tools.tolist() == [at % 3 for at in range(max(steps))]


# ---------------------------------------------------------------- a table and its mirror


def text(number):
    return "\n".join(f"text {number} has a line that says value_{number}_{at}" for at in range(30))


class Branch:
    """A branch whose history grows by whole steps: items, the first of them an assistant's."""

    def __init__(self):
        self.table = empty_table()
        self.steps = [[user("do it")]]
        self.leg = ""
        self.send()

    @property
    def raws(self):
        return [encoded(item) for step in self.steps for item in step]

    def send(self):
        raws = self.raws
        self.table.advance(self.table.call + 1, 1, self.table.call * 10.0, items_of(chat, raws), sum(map(len, raws)))

    def made(self, tool, arguments):
        """A call; after a hidden leg it says what the leg said, too, so that the leg has its place."""
        call_id, said, self.leg = f"c{len(self.raws)}", self.leg or None, ""
        return call_id, {**call(call_id, tool, **arguments), "content": said}

    def read(self, path, content):
        """Read a file, and find this in it: the same again, or something new."""
        call_id, made = self.made("read", {"path": f"{path}.py"})
        self.steps.append([made, result(call_id, text(content))])
        self.send()

    def write(self, path, content):
        call_id, made = self.made("write", {"path": f"{path}.py", "content": text(content)})
        self.steps.append([made, result(call_id, "written")])
        self.send()

    def quote(self, content):
        """Repeat a line of a text, whether it was read or not."""
        said, self.leg = self.leg + text(content).split("\n")[content % 30], ""
        self.steps.append([say(said), user()])
        self.send()

    def rewind(self, steps):
        """Take back so many steps, and say something else instead."""
        self.leg = ""
        del self.steps[max(1, len(self.steps) - steps) :]
        self.steps.append([say("Rather not."), user()])
        self.send()

    def evict(self, nth):
        there = [one for one in self.table.pages if not one.stub]
        gone = there[nth % len(there) :][:2] if there else []
        self.table.evict([self.table.evicted(one, f"[{one.name}: a stub]") for one in gone])

    def ask(self, nth):
        """Let the model ask for a page in a hidden leg, which stands in the prompt from the next call on."""
        shown = sorted(self.table.shown)
        if not shown or self.leg:
            return
        handle, asked = shown[nth % len(shown)], f"h{self.table.call}"
        self.leg = "I look. "
        leg = hidden_leg(f"=== {handle} ===\n{text(nth)}", asked, self.leg, arguments={"pages": [handle]})
        self.table.keep_leg(self.table.call, 1, leg, [handle])

    def look(self):
        """Bring the mirror up to date in between."""
        self.table.numbers.sync(self.table.pages, self.table.slots)


few = st.integers(0, 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["read", "write"]), few, few),
        st.tuples(st.sampled_from(["quote", "rewind", "evict", "ask"]), few),
        st.tuples(st.just("look")),
    ),
    max_size=25,
)


def played(given):
    branch = Branch()
    for name, *values in given:
        getattr(branch, name)(*values)
    return branch


def mirrored_now(branch):
    branch.look()
    return mirrored(branch.table.numbers)


@given(steps)
def test_what_is_mirrored_bit_by_bit_is_what_would_be_built_anew(given):
    branch = played(given)
    table = branch.table
    assert mirrored_now(branch) == built_anew(table)
    assert table.numbers["uses"].tolist() == [one.uses for one in table.pages]


def test_these_steps_reach_every_kind_of_change():
    # Read, evict, ask for it, read more, quote that, write it, read both again, and take half of that back.
    made = played([("read", 0, 0), ("look",), ("evict", 0), ("look",), ("ask", 0), ("read", 1, 1), ("look",)])
    table = made.table
    assert table.expanded
    assert [one.faults for one in table.pages] == [1, 0, 0]
    assert [bool(one.stub) for one in table.pages] == [True, False, False]
    made.quote(1)
    assert table.pages[2].uses == 1
    assert mirrored_now(made) == built_anew(table)
    made.write(0, 1)
    made.read(0, 2)
    made.read(1, 1)
    assert any(one.superseded for one in table.pages)
    assert any(one.is_argument for one in table.pages)
    before = len(table.pages)
    assert mirrored_now(made) == built_anew(table)
    made.rewind(2)
    assert len(table.pages) == before - 2
    assert mirrored_now(made) == built_anew(table)


@given(steps)
def test_a_fork_sees_what_its_parent_sees(given):
    branch = played(given)
    there, here = (planner.view(table, 100, TERMS) for table in (branch.table, branch.table.copy()))
    assert list(there.pages) == list(here.pages)
    assert (there.tokens, there.facts) == (here.tokens, here.facts)


# ---------------------------------------------------------------- what a policy is shown


def groups(codes):
    """Which pages are of the same tool, whatever number it has."""
    found = codes.tolist()
    return [found.index(code) for code in found]


def shown(it):
    return {
        one.name: groups(it.tool) if one.name == "tool" else getattr(it, one.name).tolist() for one in fields(Columns)
    }


@given(steps)
def test_pages_one_by_one_and_in_arrays_say_the_same(given):
    pages = planner.view(played(given).table, 100, TERMS).pages
    assert columns(pages) is columns(pages), "the arrays there are"
    assert shown(columns(list(pages))) == shown(columns(pages))
    assert columns(pages).evictable.tolist() == [one.evictable for one in pages]


def test_arrays_have_a_column_for_every_number_of_a_page():
    of_a_page = set(PageView.__struct_fields__) - {"handle", "kind", "position"} | {"is_argument"}
    assert {one.name for one in fields(Columns)} == of_a_page


def test_pages_can_be_looked_at_like_any_list():
    branch = Branch()
    for number in range(3):
        branch.read(number, number)
    pages = planner.view(branch.table, 100, TERMS).pages
    assert isinstance(pages, LazyPages)
    assert (len(pages), [one.position for one in pages]) == (3, [0, 1, 2])
    assert [one.handle for one in pages[1:]] == [one.name for one in branch.table.pages[1:]]
    assert pages[-1] is pages[2], "a page is made once"
    with pytest.raises(IndexError):
        pages[3]


def test_the_numbers_of_a_page_are_plain_ones():
    branch = Branch()
    branch.read(0, 0)
    (one,) = planner.view(branch.table, 100, TERMS).pages
    for name, value in structs.asdict(one).items():
        assert not isinstance(value, np.generic), name
    assert msgspec.json.decode(msgspec.json.encode(one), type=PageView) == one


def test_of_no_pages_there_are_empty_columns():
    assert all(value == [] for value in shown(columns([])).values())
    pages = planner.view(Branch().table, 100, TERMS).pages
    assert (len(pages), list(pages)) == (0, [])
