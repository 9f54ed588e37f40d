"""Publishes the figures of policies: as tables, as pictures, and in the files that quote them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks.optimum.oracles import (
    BELADY,
    BOUND,
    IDEAL,
    OPTIMUM,
    ORACLES,
)
from benchmarks.policies.play import GRACES, OURS, Graces, Point, PolicyFigures
from benchmarks.policies.plots import Axis, PlotLine, plot, thinned, ticks
from instrumentation.replay.knowing_policy import KNOWING
from instrumentation.reports.replay import YARDSTICKS, as_json, comparison_table, played
from pager.paging.policy_choice import UNCHANGED

ROOT = Path(__file__).parents[2]
MARK = "policies"
COMMAND = "CTXPAGER_RECORDINGS=DIR python -m benchmarks.policies --write"
IMAGES = "docs/images"
_DRAWN_APART = {one.name for one in ORACLES}
_LEGEND = f"""\
The provider is taken to find any prefix again for as long as the price list says (`--caching prefix`). The rows from
`{KNOWING}` on know the future: `{KNOWING}` is `{OURS}` with the truth in place of its estimates, `{OPTIMUM}` the
cheapest schedule that was found, and below `{BOUND}` there can be none ([optimum.md](optimum.md)).
"""
_LEFT_OUT = {BELADY, BOUND, IDEAL}
"""Oracles that are in the tables only, so that lines can be told from each other."""


def section(figures: PolicyFigures) -> str:
    """A set's table, with what was played above it and what our policy does without a cache below."""
    left_out = figures.comparison.left_out
    shorter = f" {left_out} shorter sessions are left out." if left_out else ""
    table = comparison_table(figures.rows, {**YARDSTICKS, OPTIMUM: "of the optimum"})
    return (
        f"{played(figures.comparison)}{shorter}\n\n{table}\n"
        f"Where nothing is cached (`--prices none`), `{OURS}` changes the tokens by {100 * figures.uncached:+.1f} %.\n"
    )


def for_docs(every: Sequence[PolicyFigures], prices: str, most: int = 0) -> str:
    """All sets; of each at most so many sessions, if it is not 0."""
    some = f" --sessions {most}" if most else ""
    head = f"Made by `{COMMAND} --prices {prices}{some}`.\n\n{_LEGEND}"
    return "\n".join([head, *(f"### {one.name}\n\n{section(one)}" for one in every), *_images("images")])


def _images(folder: str) -> list[str]:
    return [
        f"![Cost against calls, one line a policy]({folder}/cost.svg)\n",
        f"![Saving against grace]({folder}/grace.svg)\n",
    ]


def replaced(text: str, block: str, mark: str = MARK) -> str:
    """The text with this block between its two marks; raises ValueError if it has not each of them once, in order."""
    first, last = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, _, rest = text.partition(first)
    _, closing, after = rest.partition(last)
    if not closing or first in rest or last in before + after:
        raise ValueError(f"there must be one {first.strip()} on a line of its own, and one {last} after it")
    return f"{before}{first}\n{block}\n{closing}{after}"


def cost_picture(figures: PolicyFigures) -> str:
    """What each policy has cost after so many calls, as a share of what doing nothing costs in the end."""
    curves = {name: points for name, points in figures.curves().items() if name not in _LEFT_OUT}
    named = sorted(curves, key=lambda name: -curves[name][-1][1])
    highest = max(points[-1][1] for points in curves.values())
    return plot(
        f"Cost so far, as a share of what doing nothing costs ({figures.name})",
        Axis("calls played", ticks(0, figures.comparison.calls)),
        Axis("cost", [100 * tick for tick in ticks(0, highest)], " %"),
        [_line(name, [(x, 100 * y) for x, y in thinned(curves[name])]) for name in named],
    )


def grace_picture(name: str, graces: Graces) -> str:
    """What policies save if new pages stay for so many calls."""
    savings = {policy: [(x, -100 * y) for x, y in points] for policy, points in graces.changes.items()}
    values = [y for points in savings.values() for _, y in points]
    named = sorted(savings, key=lambda policy: -savings[policy][0][1])
    return plot(
        f"Saving against grace ({graces.sessions} sessions of {name})",
        Axis("calls for which a new page stays", GRACES, is_log=True),
        Axis("saving", ticks(min(0.0, *values), max(values)), " %"),
        [_line(policy, savings[policy]) for policy in named],
    )


def _line(name: str, points: Sequence[Point]) -> PlotLine:
    """A line that looks the same in every picture: known policies have their colours, others share what is left."""
    colours = (OURS, "fifo_age", KNOWING, "clear_oldest", "lru", "mask_recent", "watermark", OPTIMUM, UNCHANGED)
    colour = colours.index(name) if name in colours else len(colours)
    return PlotLine(name, points, colour, dashed=name in _DRAWN_APART, bold=name == OURS)


def as_values(every: Sequence[PolicyFigures], graces: Graces) -> dict[str, Any]:
    """All figures as plain values, with every session."""
    sets = {one.name: {**as_json(one.comparison), "uncached_token_change": one.uncached} for one in every}
    return {"sets": sets, "graces": {name: dict(points) for name, points in graces.changes.items()}}


def write(root: Path, texts: Mapping[str, str], pictures: Mapping[str, str]) -> None:
    """Put blocks into the files that have marks for them, and pictures beside the docs."""
    changed = {name: replaced((root / name).read_text(), block) for name, block in texts.items()}
    (root / IMAGES).mkdir(parents=True, exist_ok=True)
    for name, text in {**changed, **{f"{IMAGES}/{name}": text for name, text in pictures.items()}}.items():
        (root / name).write_text(text)


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write plain values to a file."""
    path.write_bytes(orjson.dumps(values, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
