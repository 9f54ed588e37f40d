"""The built-in scripted model: a server that speaks the providers' wire formats and answers by a script."""

from pager.testing.scripted.received import Received
from pager.testing.scripted.script import Drop, Fail, Gated, Overflowing, PageIn, Picky, Reply, Script, Slow, Stumble
from pager.testing.scripted.server import ScriptedModel
from pager.wire.scripted import Call, Say

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
