"""Writes any report in any of its formats.

A report is a module with functions of what it reports on: ``as_text(found, width=..., color=...)``, ``as_json(found)``
with plain values, and, where it has these formats, ``as_rows(found)`` for csv and ``as_html(found)``. Its width is that
of the terminal, 0 where the text goes to a file or another program.
"""

import csv
import io
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

FUNCTIONS = {"text": "as_text", "json": "as_json", "csv": "as_rows", "html": "as_html"}


def formats(report: ModuleType) -> list[str]:
    """The formats that a report can be written in."""
    return [name for name, function in FUNCTIONS.items() if hasattr(report, function)]


def written(report: ModuleType, found: object, form: str, *, width: int = 0, color: bool = False, **own: Any) -> str:  # noqa: ANN401
    """What was found as ``text``, ``json``, ``csv`` or ``html``; ``own`` are options of its text."""
    if form == "text":
        text: str = report.as_text(found, width=width, color=color, **own)
        return text
    if form == "html":
        page: str = report.as_html(found)
        return page
    if form == "csv":
        return _csv([_flat(row) for row in report.as_rows(found)])
    return json.dumps(report.as_json(found)) + "\n"


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Plain values without tables in them: ``{"sent": {"whole": 1}}`` becomes ``{"sent_whole": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= _flat(value, f"{prefix}{name}_") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
