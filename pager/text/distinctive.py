"""Distinctive text: lines of some length, and words that nobody writes by chance, such as paths, ids and addresses.

A text that has one of another's distinctive lines or words quotes it. The page table recognises by them which pages an
answer used, the replay what an answer needs to see.
"""

import re

# What tools put before a line to number it: "  12→", "12|", "12:" and "12-" of searches, "12" and a tab.
_NUMBERED = re.compile(r"\n[ \t]*[0-9]{1,9}[→|:\t-]")
_NUMBERED_BY_IDS = re.compile(r"\n[ \t]*[0-9]+[→|:\t-]")
_TELLING = re.compile(r"(?:[\W_]*+[^\W_]){12}")
_MARKED = re.compile(rb"[0-9/_@]")
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_OF_A_WORD = frozenset(_LETTERS + b"0123456789_-./:@#")
_WORDS = bytes(byte if byte in _OF_A_WORD else 32 for byte in range(256))
_SHORTEST, _LONGEST = 10, 80  # bytes of a word


# Both give each once, in the order of the text: a set's order would not be the same in every process.


def lines_of(text: str, *, ids: bool = False) -> list[str]:
    """The lines of a length that may be distinctive, without numbers before them.

    ``ids`` takes longer numbers off, too, which are ids of something: an answer that repeats a line without its id
    needs it just as much. The page table keeps them, by which it knows the line alone.
    """
    plain = (_NUMBERED_BY_IDS if ids else _NUMBERED).sub("\n", "\n" + text)
    return list(dict.fromkeys(line for line in map(str.strip, plain.split("\n")) if 24 <= len(line) <= 400))


def words_of(text: str, *, split: bool = False) -> list[bytes]:
    """The words of a length that may be distinctive: runs of the characters of paths and ids.

    Of a very long run it is the beginning, by which the page table knows a page as well; ``split`` gives all its pieces
    instead, as the replay must find whatever part of it an answer needs.
    """
    runs = [run for run in encoded(text).translate(_WORDS).split() if len(run) >= _SHORTEST]
    if split:
        runs = [run[at : at + _LONGEST] for run in runs for at in range(0, len(run), _LONGEST)]
    return list(dict.fromkeys(run[:_LONGEST].strip(b".:-/") for run in runs))


def is_telling(line: str) -> bool:
    """Whether a line has enough letters and digits to be distinctive."""
    return _TELLING.match(line) is not None


def is_marked(word: bytes) -> bool:
    """Whether a word has a character that plain words lack."""
    return len(word) >= _SHORTEST and _MARKED.search(word) is not None


def distinctive(text: str) -> set[str]:
    """All distinctive lines and words of a text."""
    words = {word.decode() for word in words_of(text, split=True) if is_marked(word)}
    return words | {line for line in lines_of(text, ids=True) if is_telling(line)}


def encoded(text: str) -> bytes:
    """A text as bytes, also one with half an emoji."""
    return text.encode("utf-8", "surrogatepass")
