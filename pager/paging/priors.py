"""What past sessions teach: which tools' pages are needed again, and how long sessions last.

All of it is a few numbers that anybody can check: for each tool how often its pages were needed again, beside how often
pages of their sizes and ages usually are; and how many sessions of a harness lasted how long. What is shipped was
counted on recorded sessions of coding agents; what is learned from a log stands beside it with the weight of what was
seen. An experience has a version, the digest of its content, so that a session can go on with the one it began with.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from pager.errors import StoreCorrupt
from pager.log.events import Learned
from pager.log.store import Stored
from pager.paging.warmth.returns import Returns, WaitsFor
from pager.tools.known_agents import plain_name

SIZE = 1_300
"""Tokens of a page for which the usual strength of demand holds."""

STRENGTH = 0.075
"""The chance that such a page is needed in the call after its use; in the n-th call after, it is one n-th of that."""

GROWTH = 0.6
"""The power of a page's size with which that chance grows: there is more in it to be needed."""

WEIGHT = 20.0
"""Needs that the shipped numbers count as: what is seen soon outweighs them."""

OFFERS = 5.0
"""Sessions that the shipped chance of a tool to be called counts as: a few sessions of one's own tell more."""

ENOUGH = 20
"""Sessions that must have lasted as long before anything is said of how long such sessions go on."""

LONGEST = 4
"""How many times the calls had so far a session is at most taken to go on for."""

NAME = 64
"""Letters of a client program's name by which it is told from others."""

LOG = "learned"
"""The session of the log that says what was learned, and when."""

# How often results of these tools were needed again, as a multiple of what is usual; names in small letters only.
_SHIPPED = {
    **dict.fromkeys(("grep", "search", "searchfiles", "grepsearch", "ripgrep", "rg"), 0.4),
    **dict.fromkeys(("bash", "shell", "exec", "execcommand", "runcommand", "runshellcommand", "localshell"), 0.7),
    **dict.fromkeys(("webfetch", "fetch", "taskoutput"), 0.5),
    **dict.fromkeys(("task", "agent", "todowrite"), 1.6),
    **dict.fromkeys(("glob", "ls", "listdir", "listdirectory", "list"), 2.0),
}
_SHIPPED_OTHERS = 1.0
_SHIPPED_ARGUMENTS = 2.0

# In how many sessions tools are called that coding agents bring themselves, and whose descriptions say how to work. Of
# 284 recorded sessions of one such agent 82 to 96 % read files, edited them, searched in them and ran commands.
_CALLED = dict.fromkeys((
    "applydiff", "applypatch", "bash", "developershell", "developertexteditor", "edit", "editfile", "editor",
    "exec", "execcommand", "executebash", "executecommand", "grep", "grepsearch", "localshell", "multiedit",
    "patch", "read", "readfile", "readfiles", "readmanyfiles", "replace", "replacestringinfile", "ripgrep",
    "runcommand", "runcommands", "runinterminal", "runshellcommand", "runterminalcmd", "searchcodebase",
    "searchfilecontent", "shell", "strreplacebasededittool", "strreplaceeditor", "terminal", "texteditor",
    "viewfile",
), 0.9)  # fmt: skip
# A third to a half of them listed files, wrote new ones or kept a list of what to do; few did what else is here, but
# what these tools say is how such an agent plans, asks and waits.
_CALLED |= dict.fromkeys((
    "askfollowupquestion", "askquestion", "askuserquestion", "attemptcompletion", "bashoutput", "checklist",
    "codebasesearch", "enterplanmode", "exitplanmode", "fetch", "fetchwebcontent", "filesearch", "find", "finish",
    "glob", "googlewebsearch", "inserteditintofile", "killbash", "killshell", "list", "listdir", "listdirectory",
    "loadskill", "ls", "managetodolist", "newtask", "notebookedit", "requestuserinput", "search", "taskcreate",
    "taskoutput", "taskupdate", "think", "todo", "todoread", "todotodowrite", "todowrite", "tree", "updateplan",
    "updatetodolist", "viewimage", "webfetch", "websearch", "write", "writefile", "writestdin", "writetodos",
    "writetofile",
), 0.5)  # fmt: skip
# In many clients their descriptions list what there is to choose from. A model that does not see that can't choose, so
# that few calls say nothing against them.
_CHOICES = frozenset({
    "agent", "delegate", "skill", "skills", "slashcommand", "spawnagent", "task",
})  # fmt: skip
_CALLED |= dict.fromkeys(_CHOICES, 0.5)


def family_of_harness(harness: str) -> str:
    """The client program without its version: a new version goes on with what the one before has taught."""
    return harness.partition("/")[0][:NAME]


def strength(tokens: float) -> float:
    """The demand for a page of so many tokens that nothing else is known of."""
    return STRENGTH * math.pow(max(tokens, 1.0) / SIZE, GROWTH)


def expected(tokens: float, calls: float) -> float:
    """How likely a page of so many tokens is needed at least once, up to so many calls after its grace of two."""
    return 1.0 - math.pow(2.0 / max(2.0, calls), min(strength(tokens), 0.95))


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """How many of a tool's pages were needed again, and how many pages like them usually are."""

    needed: float = 0.0
    expected: float = 0.0


class Use(msgspec.Struct, frozen=True, array_like=True):
    """In how many sessions a tool was offered, and in how many of them it was called."""

    offered: int = 0
    called: int = 0


class Harness(msgspec.Struct, frozen=True, omit_defaults=True):
    """What sessions of one client program teach of its tools' results and arguments; its branches' calls, sorted."""

    results: Mapping[str, Seen] = {}
    arguments: Mapping[str, Seen] = {}
    lengths: Sequence[int] = ()


_NOTHING = Harness()


class Experience(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known, by the client program; which tools are called, by the tenant and the client program.

    What a tenant's tools are called is nobody else's business. ``lifetimes`` are the longest pauses, in seconds, that a
    cached prompt was seen to outlive, by the tenant, the wire format and the model. ``pauses`` says how often resting
    sessions went on, by the tenant and the client program, and by what they waited for.
    """

    harnesses: Mapping[str, Harness] = {}
    tools: Mapping[str, Mapping[str, Use]] = {}
    lifetimes: Mapping[str, float] = {}
    pauses: Mapping[str, Mapping[str, Returns]] = {}

    def encode(self) -> bytes:
        """The same content always as the same bytes."""
        return msgspec.json.encode(self, order="deterministic")

    @property
    def version(self) -> str:
        """The name of this content; empty for the one that is shipped."""
        return sha256(self.encode()).hexdigest() if self != SHIPPED else ""

    def usual(self, harness: str, tool: str, *, argument: bool) -> float:
        """How often pages of this tool are needed again, as a multiple of what is usual for their sizes and ages."""
        known = self._known(harness)
        seen = (known.arguments if argument else known.results).get(tool, Seen())
        return (seen.needed + WEIGHT * shipped(tool, argument=argument)) / (seen.expected + WEIGHT)

    def to_go(self, harness: str, calls: int) -> float | None:
        """The calls that a branch of this harness still has after so many; None where too few have got so far."""
        lengths = self._known(harness).lengths
        longer = lengths[bisect_right(lengths, calls) :]
        if len(longer) < ENOUGH:
            return None
        return min(math.fsum(longer) / len(longer) - calls, float(LONGEST * calls))

    def calls(self, harness: str) -> float | None:
        """The calls that a branch of this harness has in all; None where too few were seen."""
        lengths = self._known(harness).lengths
        return math.fsum(lengths) / len(lengths) if len(lengths) >= ENOUGH else None

    def use(self, tenant: str, harness: str, tool: str, usual: float) -> float:
        """How likely a session calls a tool that it is offered; ``usual`` is what to take of one that is not known."""
        seen = self.tools.get(owner(tenant, harness), {}).get(tool, Use())
        name = plain_name(tool)
        before = _CALLED.get(name, usual)
        chance = (seen.called + OFFERS * before) / (seen.offered + OFFERS)
        return max(chance, before) if name in _CHOICES else chance

    def lifetime(self, tenant: str, dialect: str, model: str) -> float:
        """The longest pause that this tenant's cached prompts to a model were seen to outlive; 0 where none was."""
        return self.lifetimes.get(cache_of(tenant, dialect, model), 0.0)

    def returns(self, tenant: str, harness: str, waits_for: WaitsFor) -> float:
        """How many times as likely as shipped a session of this tenant's program goes on after a pause."""
        return self.pauses.get(owner(tenant, harness), {}).get(waits_for, Returns()).multiple

    def _known(self, harness: str) -> Harness:
        return self.harnesses.get(family_of_harness(harness), _NOTHING)


def owner(tenant: str, harness: str) -> str:
    """Whose tools these are: the tenant's, in one client program.

    The program is one word behind the last space, so that no two tenants are ever taken for one.
    """
    return f"{tenant} {family_of_harness(harness).partition(' ')[0]}"


def cache_of(tenant: str, dialect: str, model: str) -> str:
    """Whose cache it is: the tenant's at the provider of a model, of which the last two words are one each."""
    return f"{tenant} {dialect} {model.replace(' ', '_')[:NAME]}"


def shipped(tool: str, *, argument: bool) -> float:
    """The shipped multiple for a tool of this name."""
    if argument:
        return _SHIPPED_ARGUMENTS
    return _SHIPPED.get(plain_name(tool), _SHIPPED_OTHERS)


class Version(NamedTuple):
    """A version that was learned, and when."""

    name: str
    at: float


def newest(log: Iterable[Stored]) -> Version | None:
    """What was last learned, by the events of the session ``LOG``; None if nothing was yet."""
    known = [Version(row.event.content, row.at) for row in log if isinstance(row.event, Learned)]
    return known[-1] if known else None


def decode(content: bytes) -> Experience:
    """An experience from its content."""
    return msgspec.json.decode(content, type=Experience)


SHIPPED = Experience()
"""What a fresh install knows."""


def recalled(version: str, fetch: Callable[[bytes], bytes | None]) -> Experience:
    """What was learned by a version, out of the log's contents; raises StoreCorrupt where that can't be read."""
    if not version:
        return SHIPPED
    try:
        content = fetch(bytes.fromhex(version))
        if content is not None:
            return decode(content)
    except (ValueError, msgspec.MsgspecError) as error:
        raise StoreCorrupt(f"what was learned as version {version[:12]} can't be read: {error}") from error
    raise StoreCorrupt(f"what was learned as version {version[:12]} is not in the log any more")
