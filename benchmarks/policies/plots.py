"""Draws lines over axes as SVG: small, the same bytes for the same figures, readable on light and on dark ground."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log, log10
from typing import NamedTuple

WIDTH, HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 40, 52
# Neither light nor dark, so that they stand out from both.
_INK = "#76808c"
_COLOURS = (
    *("#2f81f7", "#e5534b", "#2da44e", "#bf8700", "#8957e5"),
    *("#d0679d", "#1b9aaa", "#e36209", "#6e7fa8", "#9a7a5a"),
)

Point = tuple[float, float]


class PlotLine(NamedTuple):
    """A line with its name; one of a single point is drawn as a dot. Lines of the same ``colour`` look the same."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """What is counted, from the first tick to the last; ``unit`` follows each tick's number."""

    title: str
    ticks: Sequence[float]
    unit: str = ""
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a value stands between the first tick, 0, and the last, 1."""
        low, high, at = self.ticks[0], self.ticks[-1], value
        if self.is_log:
            low, high, at = log(low), log(high), log(at)
        return (at - low) / (high - low)

    def words(self, tick: float) -> str:
        """A tick as it is written."""
        return f"{tick:,.10g}{self.unit}"


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers, about so many, from below the lowest value to above the highest."""
    rough = ((high - low) or 1.0) / about
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def thinned(points: Sequence[Point], most: int = 240) -> list[Point]:
    """At most so many of the points and one more, evenly spread, the first and the last among them."""
    every = max(1, ceil(len(points) / most))
    kept = list(points[::every])
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]


def plot(title: str, x: Axis, y: Axis, lines: Sequence[PlotLine]) -> str:
    """The picture; its legend has the lines in their order."""
    parts = [_text(_LEFT, 22, title, 'font-size="14" font-weight="bold"'), *_grid(x, y)]
    for at, line in enumerate(lines):
        parts += [*_drawn(line, x, y), *_named(line, _TOP + 8 + 20 * at)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="sans-serif" font-size="12" fill="{_INK}">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"


def _across(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _down(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _grid(x: Axis, y: Axis) -> Iterable[str]:
    """The ticks of both axes with faint lines, and what they count."""
    for tick in y.ticks:
        at = _down(y.place(tick))
        yield _stroke([(_LEFT, at), (_across(1), at)], _INK, 'stroke-width="1" stroke-opacity="0.3"')
        yield _text(_LEFT - 8, at + 4, y.words(tick), 'text-anchor="end"')
    for tick in x.ticks:
        at = _across(x.place(tick))
        yield _stroke([(at, _down(0)), (at, _down(0) + 5)], _INK, 'stroke-width="1"')
        yield _text(at, _down(0) + 19, x.words(tick), 'text-anchor="middle"')
    yield _text(_across(0.5), HEIGHT - 12, x.title, 'text-anchor="middle"')
    yield _text(16, _down(0.5), y.title, f'text-anchor="middle" transform="rotate(-90 16 {_down(0.5):.1f})"')


def _drawn(line: PlotLine, x: Axis, y: Axis) -> Iterable[str]:
    places = [(_across(x.place(one)), _down(y.place(other))) for one, other in line.points]
    if len(places) == 1:
        yield _dot(places[0], line)
    elif places:
        yield _stroke(places, _colour(line), _style(line))


def _named(line: PlotLine, at: float) -> Iterable[str]:
    """The line's entry in the legend."""
    left = WIDTH - _RIGHT + 16
    if len(line.points) == 1:
        yield _dot((left + 12, at), line)
    else:
        yield _stroke([(left, at), (left + 24, at)], _colour(line), _style(line))
    yield _text(left + 32, at + 4, line.name, "")


def _colour(line: PlotLine) -> str:
    return _COLOURS[line.colour % len(_COLOURS)]


def _style(line: PlotLine) -> str:
    return f'stroke-width="{3 if line.bold else 1.5}"' + (' stroke-dasharray="6 4"' if line.dashed else "")


def _stroke(points: Sequence[Point], colour: str, style: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-linejoin="round" {style}/>'


def _dot(place: Point, line: PlotLine) -> str:
    return f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="4" fill="{_colour(line)}"/>'


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
