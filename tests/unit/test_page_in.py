"""The injected tool: its definition in each dialect, and an answer to whatever a model asks."""

import json
import random

import pytest
from anthropic.types import ToolParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import ConfigDict, TypeAdapter, with_config

from pager.paging.page_in import (
    NAME,
    PageInAnswer,
    answer,
    definition,
    name_for,
)
from pager.pricing.tokens import O200K, Counter

A, B, C = "pg_aaaaaaaaaaaaaaaa", "pg_bbbbbbbbbbbbbbbb", "pg_cccccccc"
TEN = "".join(f"line {number}\n" for number in range(1, 11))
texts = st.text(st.sampled_from("ab \n\r\u2028é\ud83d="), max_size=60)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([A, B, "1-3", "("]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["pages", "lines", "x"]), inner),
    max_leaves=8,
)


def asked(pages, *given, limit=200_000, **parameters):
    """The answer to a question about the given handles, or about all pages there are."""
    arguments = json.dumps({"pages": list(given or pages), **parameters})
    return answer(arguments, pages.get, limit=limit)


@pytest.mark.parametrize(
    ("dialect", "form"),
    [("chat", ChatCompletionFunctionToolParam), ("responses", FunctionToolParam), ("messages", ToolParam)],
)
def test_the_definition_is_what_the_provider_expects(dialect, form):
    entry = json.loads(definition(dialect, "page_in_2"))
    TypeAdapter(with_config(ConfigDict(extra="forbid"))(form)).validate_python(entry)
    function = entry.get("function", entry)
    assert function["name"] == "page_in_2"
    schema = function.get("parameters") or function["input_schema"]
    assert list(schema["properties"]) == ["pages", "lines", "search"]
    assert schema["properties"]["pages"] == {"type": "array", "items": {"type": "string"}}
    assert schema["required"] == ["pages"]


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_the_definition_is_small_and_its_bytes_are_constant(dialect):
    text = definition(dialect, NAME).decode("ascii")
    assert Counter().count(text, O200K) < 135
    assert text == json.dumps(json.loads(text), separators=(",", ":"))


def test_the_definition_holds_no_handle_that_could_be_asked_for():
    assert answer(json.dumps({"pages": definition("chat", NAME).decode()}), {}.get).unknown == ()


def test_responses_may_leave_out_the_optional_parameters():
    assert json.loads(definition("responses", NAME))["strict"] is False


@pytest.mark.parametrize(
    ("taken", "name"),
    [([], "page_in"), (["read"], "page_in"), (["page_in"], "page_in_2"), ({"page_in", "page_in_2"}, "page_in_3")],
)
def test_the_name_is_one_that_is_not_in_use(taken, name):
    assert name_for(taken) == name


def test_a_whole_page_stands_under_its_handle():
    assert asked({A: TEN}) == PageInAnswer(f"=== {A}, all 10 lines ===\n{TEN}", (A,), (A,), ())


def test_several_pages_stand_one_after_the_other():
    given = asked({A: "one", B: "two\n", C: ""})
    assert given.text == f"=== {A}, all 1 line ===\none\n=== {B}, all 1 line ===\ntwo\n=== {C}, all 0 lines ===\n"
    assert given.pages == given.whole == (A, B, C)


@given(st.lists(texts, min_size=1, max_size=4))
def test_whole_pages_stand_in_the_answer_unchanged(contents):
    pages = {f"pg_{number:08x}": text for number, text in enumerate(contents)}
    given = asked(pages)
    assert given.whole == tuple(pages)
    rest = given.text
    for handle, text in pages.items():
        _, heading, rest = rest.partition(f"=== {handle}, ")
        assert heading
        assert rest[rest.index("\n") + 1 :].startswith(text)
        rest = rest[rest.index("\n") + 1 + len(text) :]


@pytest.mark.parametrize(
    "pages",
    [
        A,
        [A, A],
        f"[{A}: read a.py, 10 lines]",
        [f' "{A}" '],
        [f"`{A}`,"],
        [[A]],
        {"handle": A},
        f"\n{A}\n",
    ],
)
def test_a_handle_is_recognised_in_whatever_it_is_wrapped(pages):
    assert answer(json.dumps({"pages": pages}), {A: TEN}.get).whole == (A,)


@pytest.mark.parametrize(
    "arguments", [{"handles": [A]}, {"pages": None, "page": A, "lines": None, "search": ""}, [A], A]
)
def test_a_handle_is_recognised_wherever_it_stands(arguments):
    assert answer(json.dumps(arguments), {A: TEN}.get).whole == (A,)


def test_what_is_no_handle_is_said_to_be_none():
    given = asked({A: TEN}, A, "src/main.py")
    assert given.whole == (A,)
    assert given.text.endswith('No handle: "src/main.py". A handle is the pg_... at the beginning of a stub.')


@pytest.mark.parametrize(
    "arguments", ["", "{}", '{"pages":[]}', '{"pages":["main.py"]}', "7", "null", '{"search":"pg_aaaaaaaaaaaaaaaa"}']
)
def test_a_question_without_handles_is_told_what_one_is(arguments):
    given = answer(arguments, {A: TEN}.get)
    assert given == PageInAnswer(given.text)
    assert "No handle given" in given.text
    assert '{"pages": ["pg_..."]' in given.text


@pytest.mark.parametrize("arguments", [A, '{"pages": [', "{'pages': 1}", "[" * 100_000, "\ud83d", "9" * 9_999])
def test_arguments_that_are_not_json_are_told_what_is_expected(arguments):
    given = answer(arguments, {A: TEN}.get)
    assert given == PageInAnswer(given.text)
    assert "not JSON" in given.text
    assert '{"pages": ["pg_..."]' in given.text


def test_an_unknown_handle_is_told_to_run_the_tool_again():
    given = asked({A: TEN}, B, A, C)
    assert (given.pages, given.unknown) == ((A,), (B, C))
    assert given.text.endswith(f"Not known in this session: {B}, {C}. Run the tool that gave the content again.")


@pytest.mark.parametrize(
    "lines", ["3-4", " 3 - 4", "L3-L4", "4-3", [3, 4], ["3-4"], ["3", "4"], {"start": 3, "end": 4}, "3,4"]
)
def test_lines_are_shown_under_their_numbers(lines):
    assert asked({A: TEN}, lines=lines) == PageInAnswer(f"=== {A}, lines 3-4 of 10 ===\nline 3\nline 4", (A,))


def test_several_ranges_have_a_heading_each():
    given = asked({A: TEN, B: "b\n"}, lines="-1,4,10-")
    assert given.text == (
        f"=== {A}, line 1 of 10 ===\nline 1\n=== line 4 of 10 ===\nline 4\n=== line 10 of 10 ===\nline 10\n"
        f"=== {B}, all 1 line ===\nb\n"
    )
    assert (given.pages, given.whole) == ((A, B), (B,))


@pytest.mark.parametrize("lines", ["1-", "-99", "1-5,6-10"])
def test_all_lines_are_the_whole_page(lines):
    assert asked({A: TEN}, lines=lines) == asked({A: TEN})


@pytest.mark.parametrize("lines", [5, "5"])
def test_a_line_may_be_a_number(lines):
    assert asked({A: TEN}, lines=lines).text == f"=== {A}, line 5 of 10 ===\nline 5"


@given(texts.filter(bool), st.integers(0, 1_000), st.integers(0, 20))
def test_lines_are_what_slicing_gives(text, place, more):
    lines = text.removesuffix("\n").split("\n")
    first = 1 + place % len(lines)
    kept = lines[first - 1 : first + more]
    given = asked({A: text}, lines=f"{first}-{first + more}")
    assert given.text.partition("\n")[2] == (text if kept == lines else "\n".join(kept))


@pytest.mark.parametrize("lines", ["11-20", "0", "all", "1-2-3"])
def test_a_bad_range_is_told_how_many_lines_there_are(lines):
    given = asked({A: TEN}, lines=lines)
    words = f'No lines "{lines}": the page has 10 lines. Write lines as "1-10" or "1-20,40".'
    assert given == PageInAnswer(f"({A}: {words})")


def test_an_empty_page_has_no_lines_to_show():
    assert asked({A: ""}, lines="1-2").text == f"({A}: The page is empty.)"
    assert asked({A: ""}, search="x").text == f"({A}: The page is empty.)"


def test_matches_are_shown_with_two_lines_around_them():
    given = asked({A: TEN}, search="line [39]$")
    assert given.pages == (A,)
    assert given.whole == ()
    assert given.text == (
        f"=== {A}, lines 1-5 of 10, match in 3 ===\nline 1\nline 2\nline 3\nline 4\nline 5\n"
        "=== lines 7-10 of 10, match in 9 ===\nline 7\nline 8\nline 9\nline 10"
    )


def test_many_matches_in_one_place_are_not_all_numbered():
    heading = asked({A: "x\n" * 30}, search="x").text.partition("\n")[0]
    assert heading.endswith("match in " + ", ".join(map(str, range(1, 21))) + " and 10 more ===")


def test_a_search_may_be_limited_to_lines():
    given = asked({A: TEN}, search="LINE", lines="2-3,7")
    assert given.text == (
        f"=== {A}, lines 2-3 of 10, match in 2, 3 ===\nline 2\nline 3\n=== line 7 of 10, match in 7 ===\nline 7\n"
        "(Found ignoring case.)"
    )


@pytest.mark.parametrize("search", [7, 7.0, "7"])
def test_a_search_may_be_for_a_number(search):
    assert "match in 7 ===" in asked({A: "7.0\n" * 5 + "-\n7.0\n"}, search=search, lines="7").text


def test_a_search_without_a_match_says_what_else_there_is():
    given = asked({A: TEN}, search="zebra")
    assert given == PageInAnswer(
        f'({A}: Nothing matches "zebra". A match lies within one line. Try another search, lines, or the whole page.)'
    )


def test_a_pattern_that_is_none_is_searched_as_text_and_said_so():
    given = asked({A: "a\nf(x\n", B: "-\n"}, search="f(x")
    assert "a\nf(x\n" in given.text
    assert '("f(x" is no RE2 pattern' in given.text
    assert f'({B}: Nothing matches "f(x".' in given.text


def test_a_search_that_is_too_long_is_refused():
    assert asked({A: TEN}, search="x" * 1_001).text.startswith("search is 1001 characters long, at most 1000")


def test_a_search_with_too_many_matches_says_so():
    given = asked({A: "x\n-\n-\n-\n-\n-\n" * 300}, search="x")
    assert given.text.count("===\n") == 200
    assert given.text.endswith("(There are more matches: narrow the search, or give lines.)")


def test_a_costly_search_says_how_far_it_came():
    text = "".join(random.Random(1).choices("ab\n", k=1_000_000))
    given = asked({A: text}, search="[ab]{1,30}a[ab]{1,30}b[ab]{1,30}c")
    assert "A costly pattern: searched only up to line" in given.text


def test_pages_that_do_not_fit_are_named_and_not_cut():
    given = asked({A: TEN, B: TEN * 2, C: "short\n"}, limit=100)
    assert given.pages == given.whole == (A, C)
    assert given.text == (
        f"=== {A}, all 10 lines ===\n{TEN}=== {C}, all 1 line ===\nshort\n"
        f"Left out, because the answer would be too long: {B} (20 lines). "
        "Ask for them in another call, or for a part of them with lines or search."
    )


def test_a_first_page_that_is_too_large_is_cut_at_a_line():
    given = asked({A: TEN}, limit=30)
    assert given == PageInAnswer(
        f"=== {A}, lines 1-4 of 10 ===\nline 1\nline 2\nline 3\nline 4\n"
        "(Cut after line 4: ask for the rest with lines, or use search.)",
        (A,),
    )


def test_pages_after_one_that_was_cut_are_left_out():
    given = asked({A: TEN, B: TEN}, limit=30)
    assert (given.pages, given.whole) == ((A,), ())
    assert f"Left out, because the answer would be too long: {B} (10 lines)." in given.text


def test_slices_that_do_not_fit_are_cut_at_a_line():
    given = asked({A: TEN}, lines="1-2,4-5,7", limit=20)
    assert given.text.endswith(
        "line 1\nline 2\n=== line 4 of 10 ===\nline 4\n(Cut after line 4: ask for the rest with lines, or use search.)"
    )


def test_slices_are_cut_before_a_line_that_does_not_fit():
    given = asked({A: TEN}, lines="1-2,4", limit=15)
    assert given.text.endswith("line 1\nline 2\n(Cut after line 2: ask for the rest with lines, or use search.)")


@pytest.mark.parametrize("limit", [4, 0, -4])
def test_a_first_line_that_is_too_long_is_cut_inside(limit):
    given = asked({A: TEN}, limit=limit)
    shown = "line"[: max(limit, 0)]
    assert given.text == (
        f"=== {A}, line 1 of 10 ===\n{shown}\n"
        "(Cut inside line 1, which is too long: search shows what is around a text.)"
    ).replace("\n\n", "\n")
    assert (given.pages, given.whole) == ((A,), ())


@given(
    st.lists(texts, min_size=1, max_size=4),
    st.integers(-5, 100),
    st.sampled_from(["", "2-3", "1,3"]),
    st.sampled_from(["", "a"]),
)
def test_every_page_is_served_left_out_or_explained(contents, limit, lines, search):
    pages = {f"pg_{number:08x}": text for number, text in enumerate(contents)}
    given = asked(pages, "pg_ffffffff", *pages, limit=limit, lines=lines, search=search)
    assert all(handle in given.text for handle in pages)
    assert given.unknown == ("pg_ffffffff",)
    assert all(pages[handle] in given.text for handle in given.whole)
    assert set(given.whole) <= set(given.pages) <= set(pages)
    assert sum(len(pages[handle]) for handle in given.whole) <= max(limit, 0)


@given(st.text(max_size=60) | json_values.map(json.dumps))
def test_no_arguments_raise(arguments):
    assert answer(arguments, {A: TEN, B: "("}.get, limit=50).text


@given(json_values, json_values, json_values)
def test_no_parameters_raise(pages, lines, search):
    arguments = json.dumps({"pages": [A, pages], "lines": lines, "search": search})
    assert answer(arguments, {A: TEN, B: "("}.get, limit=50).text


@given(st.text(max_size=12), st.text(max_size=12))
def test_no_lines_and_no_search_raise(lines, search):
    arguments = json.dumps({"pages": [A], "lines": lines, "search": search})
    assert A in answer(arguments, {A: TEN}.get).text


@pytest.mark.parametrize(
    "parameters",
    [{}, {"lines": "2000000-2000100"}, {"search": "(a|b)*a(a|b){20}c"}, {"search": "x*"}, {"search": "nowhere"}],
)
def test_a_page_of_5_mb_is_answered(parameters):
    given = asked({A: "ab\n" * 1_700_000}, **parameters)
    assert len(given.text) < 201_000
