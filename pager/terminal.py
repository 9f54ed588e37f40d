"""Writes text for people: the one place through which all of it passes on its way to a terminal.

Names of tools, sessions, models and files, and what errors quote, are other people's: a terminal must not obey them. So
control characters, and those that turn the direction of writing, are shown by their number.
"""

import codecs
import io
import logging
import re
import sys
from typing import TextIO

# C0 but for tab and line feed, DEL and C1, marks of direction, separators of lines, and halves of letters.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_STYLE = re.compile("\x1b\\[[0-9;]*m")


_SPARKS = dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True))
_PLAIN = {**_SPARKS, "─": "-", "━": "-", "│": "|", "…": "~", "→": ">", "·": "."}
"""Signs of reports, and what replaces each where a terminal lacks it."""

_LIKENESS = "ctxpager.likeness"


def printable() -> None:
    """Print a likeness of letters that standard output, or standard error, does not have, instead of failing."""
    codecs.register_error(_LIKENESS, _likeness)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=_LIKENESS)


def _likeness(error: UnicodeError) -> tuple[str, int]:
    """Letters of the same number that every terminal has."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def harmless(text: str) -> str:
    """The text with everything that a terminal would obey shown by its number; tabs and line feeds stay."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def say(text: str, *, end: str = "\n", error: bool = False, styled: bool = False, flush: bool = False) -> None:
    """Write a text to standard output, or to standard error; ``styled`` keeps the colours that we have put there."""
    out: TextIO = sys.stderr if error else sys.stdout
    if styled:
        plain, styles = _STYLE.split(text), [*_STYLE.findall(text), ""]
        shown = "".join(harmless(part) + style for part, style in zip(plain, styles, strict=True))
    else:
        shown = harmless(text)
    print(shown, end=end, file=out, flush=flush)


class Formatter(logging.Formatter):
    """Formats records of the log for standard error: a message is one line, whatever a client has put into it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging names it
        """The record without what was raised."""
        return super().formatMessage(record).replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return harmless(super().format(record))
