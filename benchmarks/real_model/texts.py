"""Texts such as an agent's tools give back: source code, search hits, commits, failing tests."""

import random
from collections.abc import Callable, Iterator

NOUNS = ("order", "stock", "price", "basket", "refund", "parcel", "ledger", "invoice", "route", "voucher")
VERBS = ("load", "merge", "check", "round", "split", "apply", "sort", "store", "count", "close")


def line(chance: random.Random) -> str:
    """A line of code."""
    noun, other = chance.sample(NOUNS, 2)
    return f"{noun}.{chance.choice(VERBS)}({other}, {chance.randint(2, 99)})"


def source(chance: random.Random, size: int) -> str:
    """A file of about so many bytes."""
    return _grown(_code(chance), size)


def hits(chance: random.Random, word: str, size: int) -> str:
    """What a search for a word finds."""
    return _grown(_forever(lambda: f"{_place(chance, 200)}: {word}_{chance.choice(NOUNS)}"), size)


def commits(chance: random.Random, size: int) -> str:
    """The history of a file."""
    return _grown(
        _forever(lambda: f"{chance.randrange(16**7):07x} {chance.choice(VERBS)} {chance.choice(NOUNS)}"), size
    )


def failure(chance: random.Random, test: str, size: int) -> str:
    """What a failing test prints: where it came from, then what was wrong."""
    told = f"FAILED {test} - AssertionError: {chance.randint(100, 999)} != {chance.randint(100, 999)}"
    trace = _grown(_forever(lambda: f"{_place(chance, 99)}: in {_called(chance)}"), size - len(told) - 1)
    return f"{trace}\n{told}"


def _code(chance: random.Random) -> Iterator[str]:
    while True:
        noun, other = chance.sample(NOUNS, 2)
        yield f"def {chance.choice(VERBS)}_{noun}({other}, limit={chance.randint(2, 900)}):"
        yield f'    """Returns the {noun} that belongs to this {other}."""'
        for _ in range(chance.randint(2, 5)):
            yield f"    {noun} = {line(chance)}"
        yield f"    return {noun}\n"


def _called(chance: random.Random) -> str:
    noun, other, third = chance.sample(NOUNS, 3)
    return f"{chance.choice(VERBS)}_{noun}\n    return {chance.choice(VERBS)}_{other}({third}, {other}_{noun})"


def _place(chance: random.Random, lines: int) -> str:
    return f"shop/{chance.choice(NOUNS)}.py:{chance.randint(1, lines)}"


def _forever(make: Callable[[], str]) -> Iterator[str]:
    while True:
        yield make()


def _grown(lines: Iterator[str], size: int) -> str:
    """As many lines as have at most so many bytes together, but at least one."""
    text = next(lines)
    for one in lines:
        if len(text) + 1 + len(one) > size:
            break
        text += f"\n{one}"
    return text
