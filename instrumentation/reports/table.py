"""Writes tables and numbers for people who read them in a terminal: the one writer, and number formats, of reports."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap

NARROWEST = 16
"""Characters that a column of words keeps, however narrow the terminal is."""

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
Row = Sequence[str]


# ---------------------------------------------------------------- tables


def table(
    head: Row, rows: Sequence[Row], left: Collection[int] = (0,), width: int = 0, *, color: bool = False
) -> Iterator[str]:
    """Rows below a head and a rule; an empty row is an empty line. A line break in the head makes it several lines."""
    heads = list(zip_longest(*(reversed(cell.split("\n")) for cell in head), fillvalue=""))[::-1]
    lines = list(columns([*heads, *rows], left, width))
    yield from (f"{BOLD}{line}{PLAIN}" if color else line for line in lines[: len(heads)])
    yield "─" * max(map(len, lines))
    yield from lines[len(heads) :]


def columns(rows: Sequence[Row], left: Collection[int] = (0,), width: int = 0) -> Iterator[str]:
    """The rows, columns under each other: those in ``left`` are words, at the left, the others numbers, at the right.

    Words go on in the next line where a row is wider than ``width``, 0 for any; numbers are never cut.
    """
    cells = [[one_line(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*filter(None, cells), strict=True)]
    over = sum(widths) + 2 * (len(widths) - 1) - width if width else 0
    for at in sorted(left, key=lambda at: -widths[at]):
        narrower = max(0, min(over, widths[at] - NARROWEST))
        widths[at] -= narrower
        over -= narrower
    for row in cells:
        parts = [wrap(text, size) if len(text) > size else [text] for text, size in zip(row, widths, strict=False)]
        for line in zip_longest(*parts, fillvalue="") if parts else [()]:
            aligned = (
                text.ljust(size) if at in left else text.rjust(size)
                for at, (text, size) in enumerate(zip(line, widths, strict=False))
            )
            yield "  ".join(aligned).rstrip()


def markdown(head: Row, rows: Sequence[Row]) -> Iterator[str]:
    """A Markdown table, columns under each other: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for at, row in enumerate((head, *rows)):
        first, *others = zip(row, widths, strict=True)
        yield "| " + " | ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]) + " |"
        if at == 0:
            yield "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"


def folded(lines: Iterable[str], width: int, indent: int = 0) -> Iterator[str]:
    """Sentences, each in as many lines as it needs to fit; those after its first are indented."""
    for line in lines:
        yield from wrap(
            one_line(line), width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        ) or [""]


def one_line(text: str) -> str:
    """The text without line breaks, and without anything else that a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def clipped(text: str, width: int) -> str:
    """The text on one line of at most this width."""
    line = " ".join(one_line(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


# ---------------------------------------------------------------- numbers


def counted(count: int, noun: str) -> str:
    """1 session, 2 sessions, 3 branches."""
    many = f"{noun}es" if noun.endswith(("ch", "sh")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def short(count: float) -> str:
    """A count in a few characters: 9,999, 12.3k, 4.5M."""
    count = round(count)
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(count) >= least:
            return f"{count / size:,.1f}{unit}"
    return f"{count:,}"


def percent(share: float) -> str:
    """12.3 %, never -0.0 %."""
    return f"{round(100 * share, 1) + 0.0:.1f} %"


def share_of(part: float, whole: float) -> str:
    """The share of a whole in percent; empty where there is no whole."""
    return percent(part / whole) if whole else ""


def signed(change: float) -> str:
    """+12.3 % or -12.3 %."""
    return f"{round(100 * change, 1) + 0.0:+.1f} %"


def dollars(amount: float) -> str:
    """An amount to the cent, one below a dollar to the hundredth of a cent; without the sign."""
    return f"{amount + 0.0:,.2f}" if abs(amount) >= 1 else f"{amount + 0.0:,.4f}"


def size(count: int) -> str:
    """Bytes in MB or kB."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"
