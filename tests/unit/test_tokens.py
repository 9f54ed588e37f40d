"""Token counts: families, exact counts, long texts, and the memory."""

import base64
import hashlib
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from pager.pricing.tokens import (
    _SAFE_CUT,
    CALL_OVERHEAD,
    CL100K,
    CLAUDE,
    CLAUDE_SINCE_4_7,
    MEDIA_TOKENS,
    MESSAGE_OVERHEAD,
    O200K,
    RESULT_OVERHEAD,
    UNKNOWN,
    Counter,
    Family,
    load,
    pieces,
    read_vocabulary,
)
from pager.request_values import Block, Kind, Message

DATA = resources.files("pager.pricing").joinpath("data")


@pytest.fixture(scope="module")
def counter():
    return Counter()


def test_only_published_vocabularies_give_exact_counts():
    assert [family.estimate for family in (O200K, CL100K)] == [False, False]
    assert [family.estimate for family in (CLAUDE, CLAUDE_SINCE_4_7, UNKNOWN)] == [True, True, True]


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
        ("", 0, 0),
    ],
)
def test_well_known_texts_have_their_well_known_counts(counter, text, o200k, cl100k):
    assert (counter.count(text, O200K), counter.count(text, CL100K)) == (o200k, cl100k)


def test_well_known_texts_have_their_well_known_tokens():
    assert load("o200k_base").encode_ordinary("hello world") == [24912, 2375]
    assert load("cl100k_base").encode_ordinary("tiktoken is great!") == [83, 1609, 5963, 374, 2294, 0]


def test_special_tokens_in_a_text_are_plain_text(counter):
    assert counter.count("<|endoftext|>", O200K) == 7
    assert counter.count("<|endoftext|>", CL100K) == 7


def test_half_an_emoji_is_counted_and_raises_nothing(counter):
    assert counter.count("cut \ud83d here", O200K) > 2


def test_claude_counts_are_o200ks_times_the_familys_factor(counter):
    text = "The quick brown fox jumps over the lazy dog. " * 100
    plain = counter.count(text, O200K)
    assert counter.count(text, CLAUDE) == round(plain * 1.2)
    assert counter.count(text, CLAUDE_SINCE_4_7) == round(plain * 1.56)


def test_a_message_costs_its_blocks_and_what_stands_around_them(counter):
    message = Message(
        "assistant",
        b"",
        (
            Block(Kind.TEXT, "hello world"),
            Block(Kind.CALL, "2 + 2 = 4", call_id="c1", name="hello world"),
            Block(Kind.RESULT, "tiktoken is great!", call_id="c0"),
            Block(Kind.MEDIA),
        ),
    )
    blocks = [counter.count_block(block, O200K) for block in message.blocks]
    assert blocks == [2, 7 + 2 + CALL_OVERHEAD, 6 + RESULT_OVERHEAD, MEDIA_TOKENS]
    assert counter.count_message(message, O200K) == sum(blocks) + MESSAGE_OVERHEAD


# The shipped files.


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_a_shipped_vocabulary_is_the_published_one_to_the_byte(name):
    data = read_vocabulary(name)
    count = int.from_bytes(data[:4], "little")
    at, lines = 4 + count, []
    for rank, length in enumerate(data[4 : 4 + count]):
        lines.append(b"%s %d\n" % (base64.b64encode(data[at : at + length]), rank))
        at += length
    assert at == len(data)
    published = hashlib.sha256(b"".join(lines)).hexdigest()
    assert f"{name}.tiktoken, SHA-256 {published}" in DATA.joinpath("NOTICE").read_text()


def test_notice_holds_the_hash_of_every_shipped_file():
    notice = DATA.joinpath("NOTICE").read_text()
    told = {name: digest for digest, name in re.findall(r"^([0-9a-f]{64})  (\S+)$", notice, re.MULTILINE)}
    shipped = {file.name: file for file in DATA.iterdir() if file.name != "NOTICE"}
    assert told == {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in shipped.items()}


def test_importing_the_modules_imports_no_tokenizer():
    code = "import sys, pager.pricing.tokens, pager.pricing.rates\n"
    code += "print([m for m in ('tiktoken', 'lzma', 'regex') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Long texts.


def of_random_bytes(size):
    return random.Random(1).randbytes(size)


LONG = {
    "one letter": "a" * 1_000_000,
    "one capital": "A" * 1_000_000,
    "spaces": " " * 1_000_000,
    "line breaks": "\n" * 1_000_000,
    "base64": base64.b64encode(of_random_bytes(750_000)).decode(),
    "hex": of_random_bytes(500_000).hex(),
    "emoji": "\N{GRINNING FACE}" * 250_000,
    "han": "\u4e2d" * 333_000,
    "dashes": "-" * 1_000_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
@pytest.mark.parametrize("family", [O200K, CL100K], ids=lambda family: family.name)
def test_a_million_bytes_of_anything_are_counted(text, family):
    assert Counter().count(text, family) > 0


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_cutting_where_there_is_no_good_place_hardly_changes_a_count(text):
    whole = Counter(chunk=300_000).count(text[:200_000], O200K)
    assert Counter(chunk=16_384).count(text[:200_000], O200K) == pytest.approx(whole, rel=0.01)


WORDS = [
    "a",
    "I'll",
    "word",
    "123456",
    "f(x);",
    "//",
    "/usr/bin",
    "{",
    "}",
    "\u00e9t\u00e9",
    "\u4e2d\u6587",
    "\u0301",
    "A",
    "\u2028",
]
SPACES = [" ", "  ", "\t", "\n", "\n\n", "\r\n", "\n    ", " \n", "\x1c", "\u00a0", "/"]
mixed = st.lists(st.sampled_from(WORDS + SPACES) | st.text(max_size=3), max_size=60).map("".join)


@given(mixed, st.integers(1, 40))
def test_pieces_put_together_are_the_text_and_none_is_too_long(text, limit):
    cut = list(pieces(text, limit))
    assert "".join(cut) == text
    assert all(0 < len(piece) <= limit for piece in cut) or cut == [""]


@given(mixed, st.sampled_from([O200K, CL100K]))
@examples(400)
def test_a_cut_at_a_good_place_changes_no_token(text, family):
    text = text.encode("utf-8", "replace").decode()
    encode = load(family.vocabulary).encode_ordinary
    for found in _SAFE_CUT.finditer(text):
        assert encode(text[: found.start()]) + encode(text[found.start() :]) == encode(text)


@given(
    st.lists(st.sampled_from(["word", "f(x);", "12345", "\u4e2d\u6587", "I'll"]), min_size=1, max_size=40),
    st.integers(8, 30),
)
def test_a_text_of_words_is_cut_at_good_places_only(words, limit):
    text = " ".join(words)
    assert all(piece.startswith(" ") for piece in list(pieces(text, limit))[1:])
    assert Counter(chunk=limit).count(text, O200K) == Counter().count(text, O200K)


@given(mixed)
def test_a_text_shorter_than_a_chunk_is_counted_as_the_tokenizer_does(text):
    text = text.encode("utf-8", "replace").decode()
    assert Counter().count(text, O200K) == len(load("o200k_base").encode_ordinary(text))


# The memory.


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from([O200K, CL100K])), max_size=40), st.integers(1, 6))
def test_remembering_never_changes_a_count(asked, entries):
    small = Counter(entries)
    for word, family in asked:
        assert small.count(word, family) == len(load(family.vocabulary).encode_ordinary(word))
        assert len(small._young) + len(small._old) <= max(2, entries)


def test_what_is_asked_for_again_is_kept_and_the_rest_forgotten():
    counter = Counter(entries=4)
    for other in "abcdefgh":
        counter.count("kept", O200K)
        counter.count(other, O200K)
    remembered = {digest for _, digest in (*counter._young, *counter._old)}
    assert hashlib.sha256(b"kept").digest() in remembered
    assert hashlib.sha256(b"a").digest() not in remembered


def test_a_remembered_text_is_not_tokenized_again():
    counter, text = Counter(), "some words and more " * 50_000
    counter.count(text, O200K)
    before = load.cache_info()
    for _ in range(10):
        counter.count(text, CLAUDE)
    assert load.cache_info() == before, "the tokenizer was not asked for"


def test_threads_get_the_same_counts():
    texts = [f"{number} apples and {number * 7} pears" for number in range(200)] * 5
    expected = [Counter().count(text, O200K) for text in texts]
    shared = Counter(entries=50)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: shared.count(text, O200K), texts)) == expected


@given(st.integers(0, 10**6), st.floats(0.5, 3))
def test_scaling_is_within_half_a_token(tokens, factor):
    assert abs(Family("f", "o200k_base", factor).scaled(tokens) - tokens * factor) <= 0.5
