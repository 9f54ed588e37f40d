"""Sets text in columns, for people who read it in a terminal."""

from collections.abc import Collection, Iterator, Sequence


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> Iterator[str]:
    """The rows as lines, columns under each other: those numbered in ``left`` to the left, the others to the right.

    Cells are one line each, whatever their text is.
    """
    rows = [[harmless(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.ljust(width) if at in left else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def clipped(text: str, width: int) -> str:
    """The text on one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def harmless(text: str) -> str:
    """A text of somebody else's without anything that a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
