"""The built-in scripted model: a server that speaks the providers' wire formats and says what a script tells it to."""

from pager.testing.scripted.received import Received
from pager.testing.scripted.script import (
    Call,
    Drop,
    Fail,
    Gated,
    Overflowing,
    PageIn,
    Picky,
    Reply,
    Say,
    Script,
    Slow,
    Stumble,
)
from pager.testing.scripted.server import ScriptedModel

__all__ = [
    "Call",
    "Drop",
    "Fail",
    "Gated",
    "Overflowing",
    "PageIn",
    "Picky",
    "Received",
    "Reply",
    "Say",
    "Script",
    "ScriptedModel",
    "Slow",
    "Stumble",
]
