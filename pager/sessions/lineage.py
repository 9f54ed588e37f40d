"""Finds the session and branch of a call by what it repeats of earlier calls.

A request carries its whole history, so a call continues the branch whose latest request it begins with. What is
compared is the normalised hash of each message, never its bytes: clients re-serialise and decorate what they resend.

- It begins with a branch's latest request: the next call of that branch; if nothing was added, another attempt at it.
- It names the answer that it follows, because the provider keeps the rest: the branch of that answer.
- Its newest tool call is the newest of a branch, under the same system prompt, and they part before that call: the same
  branch with a history that the client rewrote (goose does so on every turn).
- It shares only a part: a new branch that forks where they part (a rewind, an edit, a compaction).
- It repeats a branch under another system prompt (``claude -c``): a new branch that forks where their messages part.
- It shares nothing: another line in the session that the key names, or a new session.

A history without a session key is of a session whose messages it repeats: a whole request at its beginning, or a run of
calls of the session with their results (``shares``). The ids of tool calls only say where to look: many models number
theirs from 0 in every conversation.

The fingerprint of a history is the hash of all of it. It is stored with each call, so that a call without a session key
finds its session again after a restart, or on another instance.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from typing import NamedTuple

from pager.log.events import BranchOpened, BranchReason
from pager.paging.pages.page_table import common_length
from pager.paging.pages.session_pages import SessionPages
from pager.request_values import Message, Request
from pager.sessions.identity import Key

WINDOW = 64  # messages a call usually adds at the most; longer steps back are looked for only when these find nothing
FORKS_COMPARED = 64  # newest branches that a history with no continuation is compared to
ROOT = 4  # messages at the beginning by which a session is looked for first
RUN = 6  # messages in a row that make or answer calls of a session, which prove that a history was copied from it
MANY = 64  # branches above which they are looked up by their fingerprints instead of one by one
NOWHERE = (-1, -1)


@dataclass(frozen=True)
class History:
    """The messages of a request by their normalised hashes, ``norms``.

    ``seed`` is the hash of what two requests of one branch share: session key, lane, dialect, tools or none, and system
    prompt; ``kin`` the same without the system prompt. ``follows`` is the answer's id that the request names, or empty.
    """

    seed: bytes
    kin: bytes
    norms: list[bytes]
    messages: Sequence[Message]
    lane: str
    dialect: str
    has_tools: bool
    follows: str = ""

    @property
    def family(self) -> bytes:
        """The seed and the system messages at the head: what a rewritten history keeps."""
        return sha256(self.seed + b"".join(self.norms[: self.head])).digest()

    @cached_property
    def head(self) -> int:
        """How many system messages this history begins with."""
        return sum(1 for _ in takewhile(lambda message: message.role in ("system", "developer"), self.messages))

    @property
    def root(self) -> bytes:
        """The hash of how this history begins: what most sessions that are not the same differ in."""
        return sha256(self.seed + b"".join(self.norms[:ROOT])).digest()

    def begins_with(self, norms: list[bytes]) -> bool:
        """Whether this history begins with these messages; False for no messages."""
        return 0 < len(norms) <= len(self.norms) and self.norms[: len(norms)] == norms

    @cached_property
    def fingerprint(self) -> bytes:
        """The hash of the whole history."""
        return fingerprint_of(self.seed, self.norms)

    def fingerprints(self) -> Iterator[bytes]:
        """The fingerprints of all beginnings of this history, the longest first, the likely ones before the others."""
        near = max(0, len(self.norms) - WINDOW)
        yield from reversed(self._fingerprints(near, len(self.norms)))
        yield from reversed(self._fingerprints(1, near - 1))

    def _fingerprints(self, first: int, last: int) -> list[bytes]:
        running = sha256(self.seed + b"".join(self.norms[:first]))
        fingerprints = [running.digest()] if 0 < first <= last else []
        for norm in self.norms[first:last]:
            running.update(norm)
            fingerprints.append(running.digest())
        return fingerprints

    def call_ids(self) -> Iterator[str]:
        """The ids of tool calls in this history, the newest first."""
        return (call_id for message in reversed(self.messages) for call_id in reversed(message.call_ids))

    def last_mention(self, call_id: str) -> int:
        """The position of the last message that makes or answers this tool call."""
        return max(at for at, message in enumerate(self.messages) if call_id in message.call_ids)


def history(request: Request, messages: Sequence[Message], key: Key | None) -> History:
    """The history of a request; branches are only ever compared within one key, lane, dialect and kind of request."""
    lane = key.lane if key else ""
    scope = f"{key.source}\0{key.value}" if key else ""
    facts = "\0".join([scope, lane, request.dialect, "tools" if request.has_tools else "bare"]).encode()
    seed, kin = sha256(facts + request.system).digest(), sha256(facts).digest()
    norms = [message.norm for message in messages]
    return History(seed, kin, norms, messages, lane, request.dialect, request.has_tools, request.follows)


def fingerprint_of(seed: bytes, norms: Sequence[bytes]) -> bytes:
    """The hash of a whole history."""
    return sha256(seed + b"".join(norms)).digest()


@dataclass(slots=True)
class Branch:
    """One line of history: its latest request, and how many messages each of its calls had.

    ``head`` counts the system messages at its beginning; ``kin`` is empty in logs from before it was kept.
    """

    number: int
    lane: str
    seed: bytes
    family: bytes
    kin: bytes = b""
    head: int = 0
    call: int = 0
    attempt: int = 0
    body: str = ""
    fingerprint: bytes = b""
    raws: list[bytes] = field(default_factory=list)
    norms: list[bytes] = field(default_factory=list)
    lengths: dict[int, int] = field(default_factory=dict)
    newest_issuer: int = 0
    finished: bool = False

    def receive(self, call: int, attempt: int, body: str, raws: list[bytes], length: int) -> None:
        """Make a call of this many messages the latest of the branch; ``raws`` is empty where they are no list."""
        self.call, self.attempt, self.body, self.raws = call, attempt, body, raws
        self.lengths[call] = length
        self.finished = False

    def inherit(self, parent: "Branch | None") -> None:
        """Share the parent's calls up to where this branch forks."""
        if parent is not None:
            more = self.head - parent.head if parent.kin else 0
            self.lengths = {call: length + more for call, length in parent.lengths.items() if call <= self.call}


@dataclass(slots=True)
class Session:
    """A session's branches, and what its calls were answered."""

    id: str
    tenant: str
    head: bytes = b""  # the hash over all its logged calls
    branches: list[Branch] = field(default_factory=list)
    tips: dict[bytes, int] = field(default_factory=dict)  # branches by the fingerprints of their latest requests
    issued: dict[str, tuple[int, int]] = field(default_factory=dict)  # branch and call that issued a tool call
    answers: dict[str, tuple[int, int]] = field(default_factory=dict)  # branch and call of an answer
    pages: SessionPages = field(default_factory=SessionPages)
    unpaged: str = ""  # why its page tables could not be made, or empty
    gone: bool = False  # its log is gone: nothing more is written of it
    harness: str = ""
    arm: str = ""  # the policy of an experiment, fixed when it was opened
    learned: str = ""  # the version of what other sessions taught, fixed when it was opened

    def move_tip(self, branch: Branch, fingerprint: bytes) -> None:
        """Let this fingerprint, and no longer the one before, lead to the branch."""
        if self.tips.get(branch.fingerprint) == branch.number:
            del self.tips[branch.fingerprint]
        branch.fingerprint = fingerprint
        self.tips[fingerprint] = branch.number

    def answered(self, branch: int, call: int, answer_id: str, call_ids: Iterable[str] = ()) -> None:
        """Note a call's answer and the tool calls in it; an id that two calls have leads nowhere."""
        if branch >= len(self.branches):
            return  # the call itself never made it into the log
        here = (branch, call)
        if answer_id:
            self.answers[answer_id] = here if self.answers.get(answer_id, here) == here else NOWHERE
        for call_id in call_ids:
            self.issued[call_id] = here if self.issued.get(call_id, here) == here else NOWHERE
            self.branches[branch].newest_issuer = call
        if self.branches[branch].call == call:
            self.branches[branch].finished = True


class Placement(NamedTuple):
    """A call's branch, number and attempt; ``opened`` and ``parent`` are None where there is none."""

    branch: Branch
    call: int
    attempt: int
    opened: BranchOpened | None = None
    parent: Branch | None = None


def place(session: Session, past: History) -> Placement:
    """Find the branch that this history continues, or open one. Changes the session only by adding the branch."""
    tip = continued(session, past)
    if tip is not None and tip.norms == past.norms and not past.follows:
        return Placement(tip, tip.call, tip.attempt + 1, parent=tip)
    if tip is not None:
        return Placement(tip, tip.call + 1, 1, parent=tip)
    return _open(session, past)


def receive(session: Session, placement: Placement, past: History, raws: list[bytes], body: str) -> None:
    """Make this call the latest of its branch."""
    branch = placement.branch
    branch.receive(placement.call, placement.attempt, body, raws, len(past.norms))
    branch.norms = past.norms
    session.move_tip(branch, past.fingerprint)


def continued(session: Session, past: History) -> Branch | None:
    """The branch that this history continues, also with a rewritten history; None where it continues none."""
    return _grown(session, past) or (None if past.follows else _rewritten(session, past))


def grows(session: Session, past: History) -> bool:
    """Whether this history begins with the latest request of a branch, or follows its latest answer."""
    return _grown(session, past) is not None


def shares(session: Session, past: History) -> bool:
    """Whether a history without a session key repeats enough of a session's messages to be of it."""
    parent, fork = _forked(session, past)
    if parent is not None and fork:
        return True
    issued = frozenset(call_id for call_id, issuer in session.issued.items() if issuer != NOWHERE)
    telling = [not issued.isdisjoint(message.call_ids) for message in past.messages]
    if sum(telling) < RUN:
        return False
    newest = session.branches[-FORKS_COMPARED:]
    return any(_longest_run(branch.norms, past.norms, telling) >= RUN for branch in newest)


def _longest_run(norms: Sequence[bytes], past: Sequence[bytes], telling: Sequence[bool]) -> int:
    """The most telling messages in any run of messages that two histories share."""
    places = {norm: at for at, norm in enumerate(norms)}
    longest = run = 0
    at = -1
    for norm, counts in zip(past, telling, strict=True):
        follows = 0 <= at < len(norms) - 1 and norms[at + 1] == norm
        at = at + 1 if follows else places.get(norm, -1)
        run = (run if follows else 0) + counts if at >= 0 else 0
        longest = max(longest, run)
    return longest


def _grown(session: Session, past: History) -> Branch | None:
    return _followed(session, past) if past.follows else _extended(session, past)


def _followed(session: Session, past: History) -> Branch | None:
    """The branch whose latest answer this call names as the one it follows."""
    number, call = session.answers.get(past.follows, NOWHERE)
    return session.branches[number] if number >= 0 and session.branches[number].call == call else None


def _extended(session: Session, past: History) -> Branch | None:
    """The branch with the longest latest request that this history begins with, the newest of several."""
    if len(session.branches) > MANY:
        tips = session.tips
        found = (session.branches[tips[key]] for key in past.fingerprints() if key in tips)
        return next((branch for branch in found if past.begins_with(branch.norms)), None)
    best: Branch | None = None
    for branch in reversed(session.branches):
        longer = best is None or len(branch.norms) > len(best.norms)
        if longer and branch.seed == past.seed and past.begins_with(branch.norms):
            best = branch
    return best


def _rewritten(session: Session, past: History) -> Branch | None:
    """The branch whose newest tool call is this history's newest, and which parts from it before that call."""
    known = (call_id for call_id in past.call_ids() if session.issued.get(call_id, NOWHERE) != NOWHERE)
    newest = next(known, None)
    if newest is None:
        return None
    number, call = session.issued[newest]
    branch = session.branches[number]
    same = branch.newest_issuer == call and branch.family == past.family
    return branch if same and common_length(branch.norms, past.norms) <= past.last_mention(newest) else None


def _open(session: Session, past: History) -> Placement:
    parent, fork = _forked(session, past)
    kin, deeper = _under_another_prompt(session, past)
    if deeper > fork:
        parent, fork = kin, deeper
    branch = Branch(len(session.branches), past.lane, past.seed, past.family, past.kin, past.head, call=fork)
    branch.inherit(parent)
    session.branches.append(branch)
    opened = BranchOpened(
        branch=branch.number,
        reason=_reason(session, past, parent),
        dialect=past.dialect,
        lane=past.lane,
        parent=parent.number if parent else None,
        fork_call=fork,
        seed=branch.seed.hex(),
        family=branch.family.hex(),
        kin=branch.kin.hex(),
        head=branch.head,
    )
    return Placement(branch, fork + 1, 1, opened, parent)


def _forked(session: Session, past: History) -> tuple[Branch | None, int]:
    """The branch that this history parts from, and the last call that they share."""
    number, call = session.answers.get(past.follows, NOWHERE)
    if number >= 0:
        return session.branches[number], call
    common, parent = _closest(session, past)
    if parent is None:
        return None, 0
    return parent, max((call for call, length in parent.lengths.items() if length <= common), default=0)


def _closest(session: Session, past: History) -> tuple[int, Branch | None]:
    """The branch that shares most of this history, the newest of several, and how many messages they share."""
    alike = [branch for branch in session.branches[-FORKS_COMPARED:] if branch.seed == past.seed]
    shared = [(common_length(branch.norms, past.norms), branch.number, branch) for branch in alike]
    common, _, branch = max(shared, key=lambda row: row[:2], default=(0, 0, None))
    return (common, branch) if common else (0, None)


def _under_another_prompt(session: Session, past: History) -> tuple[Branch | None, int]:
    """The branch whose messages this history repeats under another system prompt, and the last call that they share."""
    shared = [
        (common_length(branch.norms[branch.head :], past.norms[past.head :]), branch.number, branch)
        for branch in session.branches[-FORKS_COMPARED:]
        if branch.kin == past.kin
    ]
    common, _, parent = max(shared, key=lambda row: row[:2], default=(0, 0, None))
    if parent is None:
        return None, 0
    beyond = len(past.norms) - past.head  # a call that already had all of these messages is no call before this one
    ends = {call: length - parent.head for call, length in parent.lengths.items()}
    fork = max((call for call, end in ends.items() if 0 < end <= common and end < beyond), default=0)
    return (parent, fork) if fork else (None, 0)


def _reason(session: Session, past: History, parent: Branch | None) -> BranchReason:
    if parent is not None:
        return BranchReason.FORK
    if past.lane and all(branch.lane != past.lane for branch in session.branches[:-1]):
        return BranchReason.SUBAGENT
    copied = any(call_id in session.issued for call_id in past.call_ids())
    is_side = len(session.branches) > 1 and (copied or not past.has_tools)
    return BranchReason.SIDE if is_side else BranchReason.ROOT


def shared_messages(branch: Branch, digests: Sequence[bytes]) -> int:
    """How many messages of the branch's latest request this request repeats byte for byte at its beginning."""
    return common_length(branch.raws, digests)
