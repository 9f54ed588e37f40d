"""Ranges of lines and searches in a text: examples, laws, and bounds on time that no pattern may break."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pager.text.excerpts import (
    LONG_LINE,
    MAX_HUNKS,
    MAX_MATCHES,
    Range,
    SearchResult,
    Slice,
    cut,
    is_refused,
    lines_of,
    ranges_of,
    search,
    take,
)

# Letters that few patterns tell apart, line ends of both kinds, what some take for line ends, and half an emoji.
texts = st.text(st.sampled_from("abAB.([ \n\n\r\t\x0b\u2028é€\ud83d"), max_size=60)
words = st.text(st.sampled_from("abAB.([é"), min_size=1, max_size=4)


def looked_for(text, pattern, *within, room=100_000, **options):
    lines = lines_of(text)
    return search(lines, pattern, list(within) or [Range(1, len(lines))], room, **options)


def matching(found):
    return [number for piece in found.slices for number in piece.matching]


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", []), ("\n", [""]), ("a", ["a"]), ("a\n", ["a"]), ("a\r\nb\x0bc\u2028d", ["a\r", "b\x0bc\u2028d"])],
)
def test_only_a_line_feed_ends_a_line(text, lines):
    assert lines_of(text) == lines


@pytest.mark.parametrize(
    ("spec", "ranges"),
    [
        ("3", [(3, 3)]),
        ("2-4", [(2, 4)]),
        (" L2 - L4 ", [(2, 4)]),
        ("2:4", [(2, 4)]),
        ("2..4", [(2, 4)]),
        ("2\u20134", [(2, 4)]),
        ("4-2", [(2, 4)]),
        ("8-", [(8, 10)]),
        ("-3", [(1, 3)]),
        ("0-2", [(1, 2)]),
        ("8-999999999999", [(8, 10)]),
        ("7,2-3,", [(2, 3), (7, 7)]),
        ("1-5,3-6,7", [(1, 7)]),
        ("1-2,50", [(1, 2)]),
    ],
)
def test_ranges_are_read_as_they_are_meant(spec, ranges):
    assert ranges_of(spec, 10) == ranges


@pytest.mark.parametrize("spec", ["", "-", ",", "all", "1-2-3", "1 2", "1-x", "--2", "9" * 30, "1," * 600])
def test_what_names_no_range_is_none(spec):
    assert ranges_of(spec, 10) is None


@pytest.mark.parametrize("spec", ["11", "11-20", "0", "11-"])
def test_ranges_beyond_the_end_are_left_out(spec):
    assert ranges_of(spec, 10) == []


@given(texts, st.integers(1, 12), st.integers(1, 12))
def test_a_range_is_what_slicing_gives(text, first, last):
    lines = lines_of(text)
    ranges = ranges_of(f"{min(first, last)}-{max(first, last)}", len(lines))
    taken = "\n".join(take(lines, wanted).text for wanted in ranges)
    assert taken == "\n".join(text.split("\n")[: len(lines)][min(first, last) - 1 : max(first, last)])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1), st.integers(0, 25))
def test_ranges_name_each_line_once_and_in_order(pairs, count):
    ranges = ranges_of(",".join(f"{min(pair)}-{max(pair)}" for pair in pairs), count)
    numbers = [number for part in ranges for number in range(part.first, part.last + 1)]
    wanted = {number for pair in pairs for number in range(min(pair), max(pair) + 1)}
    assert numbers == sorted(wanted & set(range(1, count + 1)))


@given(texts, st.integers(0, 80))
def test_a_cut_slice_ends_at_a_line_or_holds_no_whole_line(text, room):
    whole = Slice(Range(5, 5 + text.count("\n")), text)
    part = cut(whole, room)
    assert text.startswith(part.text)
    assert len(part.text) <= room
    assert part.lines == Range(5, 5 + part.text.count("\n"))
    rest = text[len(part.text) :]
    assert not rest or rest.startswith("\n") or "\n" not in text[: room + 1]


def test_a_cut_slice_forgets_the_matches_that_were_cut_off():
    assert cut(Slice(Range(1, 3), "a\nb\nc", (1, 3)), 3) == Slice(Range(1, 2), "a\nb", (1,))


@given(texts, words)
def test_plain_text_is_found_in_exactly_the_lines_that_hold_it(text, word):
    expected = [number for number, line in enumerate(lines_of(text), 1) if word in line]
    found = looked_for(text, word.replace(".", "e"))
    plain = [number for number, line in enumerate(lines_of(text), 1) if word.replace(".", "e") in line]
    if plain:
        assert matching(found) == plain
    if expected and is_refused(word):
        assert matching(looked_for(text, word)) == expected


@given(
    texts, st.lists(st.sampled_from(["a", "b", ".", "[^a]", "a*", "(a|ab)", r"\s", r"\b", "^", "$", "é"]), min_size=1)
)
def test_a_pattern_matches_the_lines_it_matches_one_by_one(text, parts):
    import re2

    pattern = "".join(parts)
    lines = lines_of(text)
    seen = [line.removesuffix("\r").encode("utf-8", "surrogatepass") for line in lines]
    expected = [number for number, line in enumerate(seen, 1) if re2.search(pattern, line)]
    if expected and any(sign in pattern for sign in ".[*(\\^$"):
        found = looked_for(text, pattern)
        assert found.how == ""
        assert matching(found) == expected


@given(texts, st.sampled_from("ab"))
def test_slices_hold_the_matches_with_their_context_and_nothing_twice(text, word):
    lines = lines_of(text)
    found = looked_for(text, word)
    shown = [number for piece in found.slices for number in range(piece.lines.first, piece.lines.last + 1)]
    near = {near for number in matching(found) for near in range(number - 2, number + 3)}
    assert shown == sorted(near & set(range(1, len(lines) + 1)))
    assert all(piece == Slice(*take(lines, piece.lines)[:2], piece.matching) for piece in found.slices)


def test_groups_that_touch_are_one():
    text = "\n".join("x" if number in {3, 8, 14} else "-" for number in range(1, 20))
    assert [tuple(piece.lines) for piece in looked_for(text, "x").slices] == [(1, 10), (12, 16)]


def test_a_search_stays_within_its_lines():
    text = "x\nx\nx\nx\nx\nx\nx\nx\nx"
    found = looked_for(text, "^x$", Range(2, 3), Range(8, 8))
    assert [(tuple(piece.lines), piece.matching) for piece in found.slices] == [((2, 3), (2, 3)), ((8, 8), (8,))]


@pytest.mark.parametrize(
    ("text", "pattern", "how"),
    [
        ("Error: 5", r"Error: \d", ""),
        ("Error: 5", "error", "ignoring case"),
        ("Error: 5", r"ERROR: \d", "ignoring case"),
        ("a[0] = 1", "a[0]", "as plain text"),
        ("A[0] = 1", "a[0]", "as plain text, ignoring case"),
        ("f(x", "f(x", ""),
        ("F(x", "f(x", "ignoring case"),
        (r"\C", r"\C", ""),
        ("ΟΔΟΣ", "οδοσ", "ignoring case"),
    ],
)
def test_a_search_that_finds_nothing_is_read_in_other_ways(text, pattern, how):
    found = looked_for(f"-\n{text}\n-", pattern)
    assert (matching(found), found.how) == ([2], how)


@pytest.mark.parametrize("pattern", ["f(x", "(?=a)", r"(a)\1", "*", r"a\C", "a{2000}", "[\ud83d", r"(\pL{9}){9}"])
def test_patterns_that_re2_refuses_are_known(pattern):
    assert is_refused(pattern)


@pytest.mark.parametrize("pattern", ["word", "two words", "a.c", r"\\C", r"(?i)\d+\.\d+"])
def test_other_patterns_are_not_refused(pattern):
    assert not is_refused(pattern)


@pytest.mark.parametrize("pattern", [r"a\nb", r"a[^x]b", r"(?s)a.b", r"a\sb", r"a[\s\S]b", r"a\x0ab"])
def test_a_pattern_never_matches_across_lines(pattern):
    assert looked_for("a\nb", pattern) == SearchResult()
    assert matching(looked_for("a\nb\na\tb", pattern.replace(r"\n", r"\t").replace("x0a", "x09"))) == [3]


def test_plain_text_may_span_lines():
    assert matching(looked_for("-\na\nb\nb\na\nb", "a\nb")) == [2, 3, 5, 6]
    assert matching(looked_for("a\na\na", "a\na\n")) == [1, 2]


def test_the_end_of_a_line_is_before_its_carriage_return():
    assert matching(looked_for("one\r\ntwo\r\none\r", "one$")) == [1, 3]


def test_a_long_line_is_shown_around_its_match():
    line = "é" * LONG_LINE + "needle" + "x" * 5_000_000
    (piece,) = looked_for(f"before\n{line}\n{line}", "needle").slices
    before, first, second = piece.text.split("\n")
    assert before == "before"
    assert first == second
    assert "é" * 500 + "needle" + "x" * 494 in first
    assert f"characters 1501-2506 of this line's {len(line)}" in first
    assert len(first) < LONG_LINE


def test_a_long_line_beside_a_match_is_shortened():
    (piece,) = looked_for("needle\n" + "x" * 5_000, "needle").slices
    assert piece.text == "needle\n" + "x" * 200 + " [only characters 1-200 of this line's 5000]"


def test_groups_are_counted():
    text = "\n".join(["x", *"-----"] * MAX_HUNKS)
    assert not looked_for(text, "x").more
    found = looked_for(text + "\nx", "x")
    assert (len(found.slices), found.more) == (MAX_HUNKS, True)


def test_a_search_ends_when_there_is_more_than_can_be_shown():
    found = looked_for("x\n" * 1_000, "x", room=100)
    assert (len(matching(found)), found.more) == (50, True)


def test_matches_are_counted():
    assert not looked_for("\n" * MAX_MATCHES, "^").more
    found = looked_for("\n" * (MAX_MATCHES + 1), "^")
    assert (len(matching(found)), found.more) == (MAX_MATCHES, True)


def test_a_costly_pattern_says_how_far_it_came():
    text = "abab\n" * 100
    found = looked_for(text, "[ab]{99}c", work=10_000)
    assert found.slices == ()
    assert 1 < found.reached < 50
    assert looked_for(text, "[ab]{99}c").reached is None


def test_a_costly_pattern_shares_its_reach_among_the_ranges():
    text = "abab\n" * 100
    ranges = [Range(number, number + 1) for number in range(1, 100, 4)]
    together = looked_for(text, "[ab]{99}c", Range(1, 100), work=10_000).reached
    apart = looked_for(text, "[ab]{99}c", *ranges, work=10_000).reached
    # Every second pair of lines is left out, so that twice as many are passed over.
    assert 2 * together - 4 <= apart <= 2 * together + 4
    assert looked_for(text, "[ab]{99}c", *ranges, work=1).reached == 1


def test_a_costly_pattern_reads_the_beginning_of_a_line_that_is_too_long():
    found = looked_for("b" * 99 + "c" + "b" * 100_000, "[ab]{99}c", work=100_000)
    assert (matching(found), found.reached) == ([1], 1)


@pytest.fixture(scope="module")
def large():
    """Pages of 1 MB that are hard for different patterns."""
    letters = random.Random(5)
    noise = "".join(letters.choices("ab", k=1_000_000))
    return {
        "one line": "a" * 1_000_000,
        "short lines": "a\n" * 500_000,
        "noise in one line": noise,
        "noise in lines": "\n".join(noise[at : at + 99] for at in range(0, len(noise), 100)),
        "line feeds": "\n" * 1_000_000,
    }


ADVERSARIAL = [
    "(x+x+)+y",
    "(a*)*b$",
    "(a|aa)+c",
    "(a|b)*a(a|b){20}c",
    "[ab]*a[ab]{500}c",
    "a[ab][ab][ab][ab][ab][ab][ab][ab][ab][ab][ab][ab][ab][ab][ab][ab][ab]c",
    "[ab]{1,30}a[ab]{1,30}b[ab]{1,30}c",
    "((a{0,10}){10}){10}c",
    r"a?a\w\pL\pL[ab]?\w(a|b)\w(ab|ba)\w(ab|ba)Z",
    "a(.*c)?",
    r"a(\C*c)?",
    "x*",
    "^",
    "(?i)(a.*)*$",
    "a" * 999 + "b",
    "\n" * 999 + "b",
    "(a|" * 200 + "b" + ")" * 200,
]


@pytest.mark.parametrize("pattern", ADVERSARIAL, ids=lambda pattern: ascii(pattern)[:30])
def test_no_pattern_hangs_a_search(large, pattern):
    for text in large.values():
        assert looked_for(text, pattern, room=200_000) is not None
