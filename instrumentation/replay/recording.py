"""A session that can be played again: its calls, each with its new messages and its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pager.paging.priors import SHIPPED, Experience
from pager.request_values import Usage
from pager.tools.definitions import Offers


class RecordedCall(NamedTuple):
    """One call of a session, or a further attempt at it.

    It repeats the first ``keep`` items of the latest call of its branch, or, as the first call of a branch that forks,
    of its parent's at ``fork_call``; ``new`` are the raw items after them. ``outside`` are the bytes of the prompt
    outside of its items, ``said`` is the whole text of the answer, which shows what it needed to see, and
    ``output`` the tokens of the answer. ``tools`` are the names of the tools offered, None where no tool can be added,
    and ``reserve`` the tokens that the client leaves for the answer, 0 where it does not say. A call that brought no
    whole answer was not ``answered``: nothing is charged for it. ``offers`` are the tools as the client sent them, None
    where none of them could be sent shorter, and ``called`` the names of those that the answer calls. ``usage`` is what
    the provider counted, as far as it is known. ``head`` is the hash of what of the prompt is outside of the items,
    without options such as ``stream``; it is empty where only its size is known. ``lifetime`` are the seconds that the
    request's cache marks ask for, the most where they differ, and 0 where it has none. ``served`` is the model that the
    provider says answered, empty where it does not. ``unpaged`` is what it would have counted for the client's own
    prompt, where another one went out or nothing was reported, and None where that was not worked out. ``settings`` are
    names and digests of what the request sets beside its messages and a provider's cache depends on, ``system`` and
    ``tools`` included; empty where it is not known. ``cache_miss`` is the provider's own word on why its cache did not
    hold the prompt, empty where it gives none.
    """

    at: float
    keep: int
    new: tuple[bytes, ...]
    outside: int
    said: str = ""
    output: int = 0
    branch: int = 0
    parent: int | None = None
    fork_call: int = 0
    model: str = ""
    attempt: int = 1
    tools: frozenset[str] | None = frozenset()
    reserve: int = 0
    answered: bool = True
    offers: Offers | None = None
    called: tuple[str, ...] = ()
    usage: Usage | None = None
    head: bytes = b""
    lifetime: float = 0.0
    served: str = ""
    unpaged: Usage | None = None
    settings: tuple[tuple[str, bytes], ...] = ()
    cache_miss: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded session: its steps in the order in which they happened, in one wire format.

    ``experience`` is what it went by of what other sessions had taught, also those of its ``tenant``; ``families`` say
    by a branch's number which branches have the same beginning.
    """

    name: str
    dialect: str
    steps: Sequence[RecordedCall]
    harness: str = ""
    experience: Experience = SHIPPED
    families: Mapping[int, bytes] = field(default_factory=dict)
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Future:
    """What an oracle knows of one branch before it happens.

    ``cold`` says of each call, from the first, whether it found the cache cold; ``needs`` are, by a page's handle, the
    calls (from 1) whose answer repeats something that only pages had shown, this one, or one with the same content, as
    the last of them. A branch that forks begins with the calls of its parent up to there.
    """

    cold: Sequence[bool]
    needs: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """How many calls the branch has."""
        return len(self.cold)
