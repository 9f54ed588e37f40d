"""An answer that repeats a page's lines, paths or ids tells that the page was in use."""

import gzip
import json
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import TRACES

from pager.text.references import (
    LIMIT,
    MANY,
    Index,
    said,
    signs,
)

LINE = "return render(page, request.user)"
PATH = "src/app/main_window.py"


def index(**pages):
    made = Index()
    for name, text in pages.items():
        made.add(name, text)
    return made


def common(one, other):
    return set(signs(one, None)) & set(signs(other, None))


def many(count, start=0):
    return "\n".join(f"the line with the number {number} in a long file" for number in range(start, start + count))


# Signs


@pytest.mark.parametrize("number", ["", "  ", "\t", "   12→", "12|", "12:", "12:\t", "12-", "7\t  "])
def test_a_line_is_the_same_with_and_without_its_number(number):
    assert len(signs(LINE)) == 1
    assert signs(f"{number}{LINE}  \r\n") == signs(LINE)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("a b c d e f g h i j k l", 0),  # 23 characters
        ("a b c d e f g h i j k ll", 1),
        ("a b c d e f g h i j k" + " " * 3 + "-", 0),  # 11 letters
        ("- " * 30, 0),
        ("word " * 80, 1),
        ("word " * 80 + "ab", 0),  # 402 characters
        ("這是一個足夠長的中文句子用來測試行的識別是否可靠而且正確", 1),
    ],
)
def test_a_line_is_a_sign_if_it_is_of_some_length_and_says_something(line, count):
    assert len(signs(line)) == count


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("src/main.c", 1),
        ("src/main", 0),
        ("configuration", 0),
        ("get_configuration", 1),
        ("user@example.org", 1),
        ("3f2a91bc04", 1),
        ("../../..//", 0),
        ("./src/main", 0),  # eight characters without the ends
        ("configuration.", 0),
    ],
)
def test_a_word_is_a_sign_if_nobody_writes_it_by_chance(word, count):
    assert len(signs(word)) == count


@pytest.mark.parametrize("around", ["see {}.", "`{}`", '"{}",', "({})", "- {}:", "{}/", "→{}←", "\n{}\n"])
def test_a_word_is_the_same_whatever_stands_around_it(around):
    assert set(signs(PATH)) <= set(signs(around.format(PATH)))


def test_a_very_long_word_is_known_by_its_beginning():
    assert len(signs("x/" * 300)) == 1
    assert common("x/" * 300, "x/" * 40)
    assert not common("x/" * 300, "x/" * 39)


def test_a_sign_is_counted_once():
    assert signs(f"{LINE}\n12: {LINE}\n\t{LINE}") == signs(LINE)
    assert len(signs("the-only-word/of-this-line")) == 1


def test_of_a_large_page_half_lines_and_half_words_are_kept():
    words = " ".join(f"id_{number:08}" for number in range(1000))
    lines = many(1000)
    kept = set(signs(f"{words}\n{lines}"))
    assert len(kept) == LIMIT
    assert len(kept & set(signs(lines, None))) == len(kept & set(signs(words, None))) == LIMIT // 2


@pytest.mark.parametrize(("lines", "words"), [(1000, 0), (1000, 40), (40, 1000), (0, 1000), (300, 300)])
def test_what_lines_leave_free_is_for_words_and_the_other_way_round(lines, words):
    text = many(lines) + "\n" + " ".join(f"id_{number:08}" for number in range(words))
    assert len(signs(text)) == LIMIT
    assert set(signs(text)) < set(signs(text, None))


def test_two_states_of_a_large_page_keep_mostly_the_same_signs():
    before, after = set(signs(many(2000))), set(signs(many(2000, start=20)))
    assert len(before & after) > 0.95 * LIMIT


@given(st.text(), st.integers(0, 20))
def test_what_is_kept_is_a_part_of_all_and_no_more_than_the_limit(text, limit):
    kept, whole = signs(text, limit), signs(text, None)
    assert set(kept) <= set(whole)
    assert len(kept) == len(set(kept)) == min(limit, len(whole))


@given(st.lists(st.text(st.characters(exclude_characters="\n")), max_size=8))
def test_the_signs_of_lines_are_signs_of_the_text(lines):
    whole = set(signs("\n".join(lines), None))
    assert all(set(signs(line, None)) <= whole for line in lines)


def test_signs_are_the_same_in_every_process():
    code = "from pager.text import references as q\n"
    code += "print(list(q.signs('\\n'.join(f'a line with the number {n}' for n in range(2000)))))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
    assert runs.pop().count(",") == LIMIT - 1


def test_half_of_an_emoji_is_no_error():
    assert len(signs(f"{LINE} \ud83d")) == 1


@pytest.mark.parametrize(
    "text", ["\n" * 500_000, " " * 500_000, "1" * 500_000, "a/" * 250_000, ("\n" + "-" * 99) * 5_000]
)
def test_a_strange_text_has_no_more_signs(text):
    assert len(signs(text)) <= LIMIT


# What a model wrote in a call


def test_the_lines_in_arguments_are_lines():
    arguments = json.dumps({"path": PATH, "edits": [{"old": f"if ready:\n    {LINE}\n"}], "all": True, "count": 3})
    assert said(arguments) == f"{PATH}\nif ready:\n    {LINE}\n"
    assert common(said(arguments), LINE)
    assert not common(arguments, LINE)


def test_arguments_that_are_no_json_are_what_was_written():
    assert said("*** Begin Patch") == "*** Begin Patch"


def test_deeply_nested_arguments_are_read():
    assert said("[" * 900 + '"x"' + "]" * 900) == "x"


# The index


def test_a_page_is_used_when_a_line_of_it_is_quoted():
    pages = index(code=f"def view():\n    {LINE}\n", listing="src/app/other_window.py\n" + PATH)
    assert pages.used(f"I will change\n    {LINE}\nnow.") == {"code"}
    assert pages.used(f"Next I read {PATH}.") == {"listing"}
    assert pages.used(f"{LINE}\n{PATH}") == {"code", "listing"}
    assert pages.used("Nothing of it.") == set()


def test_the_newest_page_with_a_sign_was_looked_at():
    assert index(old=LINE, new=LINE).used(LINE) == {"new"}


def test_a_page_that_is_added_again_is_the_newest_and_has_its_new_text():
    pages = index(first=f"{LINE}\n{PATH}", second=LINE, third=PATH)
    pages.add("first", LINE)
    assert pages.used(LINE) == {"first"}
    assert pages.used(PATH) == {"third"}


def test_a_sign_of_many_pages_says_nothing():
    pages = index(**{f"page{number}": LINE for number in range(MANY)})
    assert pages.used(LINE) == {f"page{MANY - 1}"}
    pages.add("one more", f"{LINE}\n{PATH}")
    assert pages.used(LINE) == set()
    assert pages.used(PATH) == {"one more"}


def test_a_forgotten_page_is_never_used_and_leaves_its_signs_to_the_one_before():
    pages = index(old=LINE, new=f"{LINE}\n{PATH}")
    pages.forget("new")
    pages.forget("unknown")
    assert pages.used(f"{LINE}\n{PATH}") == {"old"}
    pages.forget("old")
    assert pages.used(LINE) == set()


def test_owners_beyond_the_newest_are_not_remembered():
    pages = index(**{f"page{number}": LINE for number in range(3 * MANY)})
    for number in range(2 * MANY, 3 * MANY):
        pages.forget(f"page{number}")
    assert pages.used(LINE) == {f"page{2 * MANY - 1}"}
    pages.forget("page0")
    assert pages.used(LINE) == {f"page{2 * MANY - 1}"}


def test_any_line_of_a_page_under_the_limit_is_found():
    text = many(LIMIT)
    pages = index(page=text)
    assert all(pages.used(line) == {"page"} for line in text.split("\n"))


def test_a_fork_goes_its_own_way():
    pages = index(shared=LINE)
    fork = pages.copy()
    fork.add("forked", f"{LINE}\n{PATH}")
    pages.forget("shared")
    assert pages.used(f"{LINE}\n{PATH}") == set()
    assert fork.used(LINE) == {"forked"}
    fork.forget("forked")
    assert fork.used(LINE) == {"shared"}


TEXTS = st.lists(st.sampled_from([LINE, PATH, "an id_0123456789", many(3)]), max_size=3).map("\n".join)
STEPS = st.lists(st.tuples(st.sampled_from("abcd"), TEXTS | st.none()), max_size=12)


@given(STEPS, STEPS, TEXTS)
def test_feeding_a_copy_is_feeding_the_original(before, after, answer):
    def feed(pages, steps):
        for name, text in steps:
            pages.forget(name) if text is None else pages.add(name, text)
        return pages

    assert feed(feed(Index(), before).copy(), after).used(answer) == feed(Index(), before + after).used(answer)


@given(STEPS, TEXTS)
def test_the_pages_used_are_pages_that_share_a_sign(steps, answer):
    pages, texts = Index(), {}
    for name, text in steps:
        texts.pop(name, None)
        if text is None:
            pages.forget(name)
        else:
            pages.add(name, text)
            texts[name] = text
    shared = [name for name, text in texts.items() if common(text, answer)]
    assert pages.used(answer) <= set(shared)
    assert shared[-1:] == [name for name in shared[-1:] if name in pages.used(answer)]


def test_an_index_is_small():
    texts = [many(200, start=1000 * number) for number in range(20)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    pages = index(**{f"page{number}": text for number, text in enumerate(texts)})
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pages.used(texts[0][:100])
    assert (after - before) / (20 * 200) < 200  # bytes a sign; about 85


# Recorded sessions


def session(path):
    """The answers and the results of a session, in order."""
    with gzip.open(path, "rt") as file:
        for message in map(json.loads, list(file)[1:]):
            content = message.get("content")
            text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or [])
            calls = [call["function"]["arguments"] or "" for call in message.get("tool_calls") or []]
            yield message["role"], "\n".join([text, *map(said, calls)])


def quotes(path):
    """The signs by which each answer quotes a page, and whether the page keeps one of them."""
    owners, kept = {}, {}
    for number, (role, text) in enumerate(session(path)):
        found = set(signs(text, None))
        if role == "tool":
            kept[number] = set(signs(text))
            owners |= dict.fromkeys(found, number)
        elif role == "assistant":
            for page in {owners[sign] for sign in found if sign in owners}:
                yield any(sign in kept[page] for sign in found if owners.get(sign) == page)


@pytest.mark.recorded
@pytest.mark.skipif(not TRACES, reason="CTXPAGER_RECORDINGS names no folder with traces/*/*.jsonl.gz")
def test_a_sample_of_its_signs_finds_the_quotes_of_a_page():
    found = [one for path in TRACES[::8] for one in quotes(path)]
    assert len(found) > 500
    assert sum(found) > 0.99 * len(found)
