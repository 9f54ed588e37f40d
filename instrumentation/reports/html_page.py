"""Writes a story as one HTML file that holds all it needs: the values, the charts' script and their style."""

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import msgspec

from instrumentation.accounting.story import (
    WASTE,
    CallStory,
    Inflicted,
    KeptWarm,
    Missed,
    MissStory,
    PageStory,
    RepackStory,
    Story,
)
from instrumentation.reports.labels import MISSES, PARTS

SCRIPTS = (
    "values.js",
    "drawing.js",
    "tables.js",
    "context.js",
    "money.js",
    "cells.js",
    "pagemap.js",
    "charts.js",
)
"""The charts, in the order in which they must run; ``report.js`` after them shows the story of the file."""

WITHOUT = "No text of a prompt is in this file."
WITH = "This file holds text of prompts: the content of pages. Share it with care."

IN_A_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""In JSON these occur in strings alone, where an escape means the same; so nothing in it can end the element."""


def page(story: Story, *, with_content: bool = False) -> str:
    """The story as one file; what pages are about and what they hold only on demand.

    The policy in it lets the browser run this script and this style alone, and ask no host for anything.
    """
    code, look = script() + _file("report.js"), style()
    return Template(_file("report.html")).substitute(
        title=html.escape(story.session or "a session"),
        policy=_policy(code, look),
        about=WITH if with_content else WITHOUT,
        style=look,
        script=code,
        story=values(story, with_content=with_content).translate(IN_A_SCRIPT),
    )


def values(story: Story, *, with_content: bool = False) -> str:
    """The story as JSON, which the charts read; without the texts of its pages unless they are asked for."""
    if not with_content:
        pages = [msgspec.structs.replace(page, about="", content="") for page in story.pages]
        story = msgspec.structs.replace(story, pages=pages)
    return json.dumps(msgspec.to_builtins(story), separators=(",", ":"))


def script() -> str:
    """The charts' script, for this file and for the dashboard: the contract with the story first."""
    return f"globalThis.ctxpager = {json.dumps(_contract())};\n" + "".join(map(_file, SCRIPTS))


def _contract() -> dict[str, Any]:
    """The parts of a prompt, and the defaults of fields, which a story leaves out."""
    kinds: dict[str, type[msgspec.Struct]] = {
        "call": CallStory,
        "repack": RepackStory,
        "inflicted": Inflicted,
        "page": PageStory,
        "miss": MissStory,
        "kept_warm": KeptWarm,
        "cold_before": Missed,
    }
    return {
        "MISSES": MISSES,
        "PARTS": [{"name": name, "label": label, "waste": name in WASTE} for name, label in PARTS.items()],
        "DEFAULTS": {
            name: {
                field.name: msgspec.to_builtins(field.default)
                for field in msgspec.structs.fields(kind)
                if field.default is not msgspec.NODEFAULT
            }
            for name, kind in kinds.items()
        },
    }


def style() -> str:
    """The charts' style."""
    return _file("charts.css")


def _policy(code: str, look: str) -> str:
    allowed = {"script-src": _digest(code), "style-src": _digest(look), "img-src": "data:"}
    rest = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
    return "; ".join(f"{name} {source}" for name, source in {**rest, **allowed}.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _file(name: str) -> str:
    return files("instrumentation.reports").joinpath("web", name).read_text(encoding="utf-8")
