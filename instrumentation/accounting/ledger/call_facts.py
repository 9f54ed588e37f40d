"""What a session's log says of its calls, put together call by call."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from instrumentation.accounting.story import RepackStory
from pager.log.bypass_reasons import WENT_IN_FULL
from pager.log.events import (
    AnswerFinished,
    AttemptFailed,
    BranchOpened,
    Bypassed,
    CallReceived,
    LegFinished,
    Marked,
    PromptCounted,
    RepackCause,
    Repacked,
    SessionOpened,
    ToolCalled,
    ToolsDecided,
    Warmed,
)
from pager.log.store import Stored
from pager.request_values import CallAddress


@dataclass(slots=True)
class AttemptFacts:
    """One attempt at a call: what came in, what was decided, what came back; ``full`` if it went out in full.

    ``lengthened`` if its cache marks asked for an hour by our choice, where the client's own get five minutes.
    """

    received: CallReceived
    at: float
    full: bool = False
    answer: AnswerFinished | None = None
    estimate: int = 0
    legs: list[LegFinished] = field(default_factory=list)
    refreshes: list[Warmed] = field(default_factory=list)  # of its prompt, in the pause after it
    repacks: list[RepackStory] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    lengthened: bool = False

    @property
    def paged(self) -> bool:
        """Whether what went out may differ from what the client sent by more than cache marks."""
        return self.answer is not None and bool(self.answer.sent) and not self.full

    @property
    def hidden(self) -> list[LegFinished]:
        """The requests before the one that was answered; a leg beside calls of the client's own is no request."""
        return [leg for leg in self.legs if not leg.mixed]


@dataclass(slots=True)
class SessionFacts:
    """One session: its attempts by their places, in the order in which they came, and those with whole answers."""

    key: str = ""
    harness: str = ""
    policy: str = ""
    failed: int = 0
    told: dict[CallAddress, AttemptFacts] = field(default_factory=dict)
    answered: list[CallAddress] = field(default_factory=list)


def facts(log: Iterable[Stored]) -> SessionFacts:
    """What is in the log of one session."""
    found = SessionFacts()
    latest: dict[tuple[int | None, int], AttemptFacts] = {}
    lengthened: dict[int | None, bool] = {}
    for row in log:
        match row.event:
            case BranchOpened(branch=branch, parent=parent):
                lengthened[branch] = lengthened.get(parent, False)
            case Marked() as marked:
                lengthened[marked.branch] = marked.lifetime > 0
                if (marked.branch, marked.call) in latest:
                    latest[marked.branch, marked.call].lengthened = marked.lifetime > 0
            case SessionOpened() as opened:
                found.key, found.harness, found.policy = opened.key, opened.harness, opened.arm
            case CallReceived() as call:
                told = AttemptFacts(call, row.at, lengthened=lengthened.get(call.branch, False))
                latest[call.branch, call.call] = told
                found.told[CallAddress.of(call)] = told
            case Bypassed(reason=reason, branch=branch, call=number) if (branch, number) in latest:
                latest[branch, number].full |= reason in WENT_IN_FULL
            case AttemptFailed():
                found.failed += 1
            case event:
                _take(found, event)
    return found


def _take(found: SessionFacts, event: object) -> None:
    """Take what is said of one attempt; of one that the log does not have, nothing."""
    match event:
        case AnswerFinished() | LegFinished() | ToolCalled() | PromptCounted() | Repacked() | ToolsDecided() | Warmed():
            where = CallAddress.of(event)
        case _:
            return
    told = found.told.get(where)
    if told is None:
        return
    match event:
        case AnswerFinished():
            if told.answer is None and event.status < 400 and not event.error:
                found.answered.append(where)
            told.answer, told.estimate = event, event.estimate or told.estimate
        case LegFinished():
            told.legs.append(event)
        case Warmed():
            told.refreshes.append(event)
        case ToolCalled():
            told.calls.append(event.tool)
        case PromptCounted():
            told.estimate = event.estimate
        case _:
            told.repacks.extend(_changes(event))
            told.full &= not (isinstance(event, Repacked) and event.cause == RepackCause.RESCUE)
            found.policy = (event.policy if isinstance(event, Repacked) else "") or found.policy


def _changes(event: Repacked | ToolsDecided) -> Iterator[RepackStory]:
    """A change of the prompt before its end; what is decided before there was a prompt changes none."""
    if isinstance(event, Repacked):
        if event.cause == RepackCause.READY:
            return
        counts = (len(event.pages), event.saved, event.rewritten, event.price)
        yield RepackStory(event.cause, event.reason, *counts, event.warm)
    elif event.price:
        yield RepackStory("tools", event.reason, 0, event.whole - event.sent, 0, event.price, warm=True)


def together(repacks: Sequence[RepackStory]) -> RepackStory | None:
    """All changes that were made at one call as one."""
    if len(repacks) < 2:
        return repacks[0] if repacks else None
    return RepackStory(
        " and ".join(dict.fromkeys(one.cause for one in repacks)),
        "; ".join(one.reason for one in repacks),
        sum(one.pages for one in repacks),
        sum(one.saved for one in repacks),
        sum(one.rewritten for one in repacks),
        sum(one.price for one in repacks),
        any(one.warm for one in repacks),
    )
