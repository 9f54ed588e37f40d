"""Accounts for the tools in prompts: what they took as offered and as sent, and how calls of short ones went.

A prompt is what the provider answered: one for each call, and one more for each hidden leg, as every leg sends the
tools again. Hidden legs have the tools as they were decided. The last leg has them so unless what went out was the
client's own request, of which the log keeps no digest, or one that could not carry the tool for asking.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from instrumentation.accounting.call_addresses import meant
from instrumentation.accounting.tool_log import (
    NONE,
    ByForm,
    LogContents,
    ToolDecision,
    in_form,
)
from pager.log.bypass_reasons import BypassReason
from pager.log.events import (
    AnswerFinished,
    BranchOpened,
    Bypassed,
    CallReceived,
    Event,
    LegFinished,
    ToolCalled,
    ToolsDecided,
)
from pager.log.store import Store, Stored
from pager.request_values import CallAddress
from pager.tools.check_arguments import check
from pager.tools.decide_forms import ToolAsSent, Toolset
from pager.wire.dialect import Dialect

ALL = "all"
"""What a user calls all sessions of the log."""


@dataclass(slots=True)
class ToolsOfCall:
    """The tools in the prompts of one attempt at a call, in tokens; ``in_full`` prompts had short ones whole."""

    session: str
    branch: int
    call: int
    attempt: int
    prompts: int = 0
    in_full: int = 0
    offered: int = 0
    sent: ByForm = NONE


@dataclass(slots=True)
class ToolAccount:
    """One tool: ``prompts`` that had it, by form, its tokens in them as ``offered`` and as ``sent``, and its calls.

    Calls of it while it was sent short were made ``at_once``, or ``after_fault``: the first after the model had seen
    the whole of it, because it asked (``faults``) or was corrected (``invalid``). Those that did not fit, and which the
    client got all the same, are ``passed_on``. ``reason`` is that of the latest decision, ``sessions`` are those that
    offered it, ``called_in`` those of them that called it.
    """

    name: str
    reason: str = ""
    prompts: ByForm = NONE
    offered: int = 0
    sent: ByForm = NONE
    sessions: int = 0
    called_in: int = 0
    calls: int = 0
    at_once: int = 0
    after_fault: int = 0
    passed_on: int = 0
    faults: int = 0
    invalid: int = 0

    @property
    def short_calls(self) -> int:
        """The calls of it that were made while it was sent short."""
        return self.at_once + self.after_fault + self.passed_on

    def add(self, other: "ToolAccount") -> None:
        """Count what another session says of the tool of this name; its decision is taken to be the later one."""
        self.reason = other.reason or self.reason
        self.prompts, self.sent = self.prompts.plus(other.prompts), self.sent.plus(other.sent)
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNTS = (
    "offered", "sessions", "called_in", "calls", "at_once", "after_fault", "passed_on", "faults", "invalid",
)  # fmt: skip


@dataclass(slots=True)
class ToolsAccount:
    """The tools of some sessions. ``undecided`` counts answered calls for whose tools no decision held.

    ``without`` counts the sessions that have no decision at all; they are in no other number.
    """

    sessions: int = 0
    without: int = 0
    decisions: int = 0
    undecided: int = 0
    calls: list[ToolsOfCall] = field(default_factory=list)
    tools: dict[str, ToolAccount] = field(default_factory=dict)

    @property
    def prompts(self) -> int:
        """How many prompts had tools that were decided on."""
        return sum(one.prompts for one in self.calls)

    @property
    def in_full(self) -> int:
        """How many of them had tools whole that were to be short."""
        return sum(one.in_full for one in self.calls)

    @property
    def offered(self) -> int:
        """The tokens of tools in these prompts, as the client offered them."""
        return sum(one.offered for one in self.calls)

    @property
    def sent(self) -> ByForm:
        """The tokens of tools in these prompts, as they were sent."""
        total = NONE
        for one in self.calls:
            total = total.plus(one.sent)
        return total

    def sum(self, name: str) -> int:
        """A count of all tools together."""
        return sum(getattr(one, name) for one in self.tools.values())

    def add(self, other: "ToolsAccount") -> None:
        """Count another session."""
        self.sessions, self.without = self.sessions + other.sessions, self.without + other.without
        self.decisions, self.undecided = self.decisions + other.decisions, self.undecided + other.undecided
        self.calls += other.calls
        for name, tool in other.tools.items():
            self.tools.setdefault(name, ToolAccount(name)).add(tool)


def chosen(store: Store, named: Sequence[str], since: float = 0.0) -> list[str]:
    """The sessions that a user means and that began at ``since`` or later, the oldest first; raises ConfigError."""
    opened = {row.session: row.at for row in store.sessions()}
    wanted = set(opened) if not named or ALL in named else {meant(store, name) for name in named}
    return [name for name in sorted(wanted, key=lambda one: (opened[one], one)) if opened[name] >= since]


def account(store: Store, names: Iterable[str], load_dialect: Callable[[str], Dialect]) -> ToolsAccount:
    """The tools of these sessions together; raises StoreCorrupt."""
    total, source = ToolsAccount(), LogContents(store.blob, load_dialect)
    for name in names:
        reader = ToolUseReader(name, source)
        reader.read(store.events(name))
        total.add(reader.account())
    return total


# ---------------------------------------------------------------- what is in the log


class ToolUseReader:
    """Reads one session; ``decisions`` are those of its log, in order."""

    def __init__(self, session: str, source: LogContents) -> None:
        self.decisions: list[ToolDecision] = []
        self._session = session
        self._source = source
        self._dialects: dict[int, str] = {}
        self._decided: dict[int, ToolDecision] = {}
        self._received: dict[CallAddress, CallReceived] = {}
        self._latest: dict[tuple[int, int], CallAddress] = {}
        self._held: dict[CallAddress, ToolDecision] = {}
        self._uncarried: set[CallAddress] = set()
        self._short: dict[CallAddress, Toolset] = {}
        self._seen: set[tuple[int, str]] = set()
        self._prompts: Counter[tuple[str, bool]] = Counter()
        self._undecided = 0
        self._calls: dict[CallAddress, ToolsOfCall] = {}
        self._tools: dict[str, ToolAccount] = {}

    def read(self, log: Iterable[Stored]) -> None:
        """Read events, in order."""
        for row in log:
            self._take(row.event)

    def in_force(self, where: CallAddress) -> ToolDecision | None:
        """The decision that held in its branch at a call; the call may have offered other tools."""
        return self._held.get(where)

    def offers(self, where: CallAddress) -> bool:
        """Whether a call offered the tools that were decided on."""
        decision, call = self._held.get(where), self._received.get(where)
        return decision is not None and call is not None and self._source.offered(call) == decision.decided.digest

    def in_full(self, where: CallAddress) -> bool:
        """Whether a call had tools whole that were to be short."""
        return where in self._calls and self._calls[where].in_full > 0

    def account(self) -> ToolsAccount:
        """What was read so far."""
        if not self.decisions:
            return ToolsAccount(without=1)
        tools = {
            name: replace(tool, called_in=tool.sessions if tool.calls else 0) for name, tool in self._tools.items()
        }
        latest = {one.event.decision: one.decided for one in self.decisions}
        for (digest, short), times in self._prompts.items():
            for one in latest[digest].sent:
                _count_prompts(tools[one.name], one, times, short=short)
        return ToolsAccount(1, 0, len(self.decisions), self._undecided, list(self._calls.values()), tools)

    def _take(self, event: Event) -> None:
        match event:
            case BranchOpened(branch=branch, parent=parent, dialect=dialect):
                self._dialects[branch] = dialect
                if parent is not None and parent in self._decided and self._dialects.get(parent) == dialect:
                    self._decided[branch] = self._decided[parent]  # as the fork's page table does
            case CallReceived():
                where = CallAddress.of(event)
                self._received[where] = event
                self._latest[event.branch, event.call] = where
                if event.branch in self._decided:
                    self._held[where] = self._decided[event.branch]
            case ToolsDecided():
                self._decide(event)
            case Bypassed(reason=reason, branch=branch) if reason == BypassReason.CANNOT_CARRY and branch is not None:
                self._uncarried.add(self._latest.get((branch, event.call), CallAddress(branch, event.call)))
            case LegFinished():
                self._ask(event)
            case AnswerFinished():
                self._answer(event)
            case ToolCalled():
                self._call(event)
            case _:
                pass

    def _decide(self, event: ToolsDecided) -> None:
        decision = self._source.decision(event)
        self.decisions.append(decision)
        self._decided[event.branch] = self._held[CallAddress.of(event)] = decision
        for one in decision.decided.sent:
            tool = self._tool(one.name)
            tool.reason, tool.sessions = one.reason, 1

    def _ask(self, leg: LegFinished) -> None:
        for name in leg.schemas:
            self._tool(name).faults += 1
        for name in leg.invalid:
            self._tool(name).invalid += 1
        self._seen.update((leg.branch, name) for name in (*leg.schemas, *leg.invalid))
        if not leg.mixed:  # else it is the last leg, which the answer's own event describes
            self._send(CallAddress.of(leg), short=True)

    def _answer(self, answer: AnswerFinished) -> None:
        where = CallAddress.of(answer)
        short = bool(answer.sent) and where not in self._uncarried
        if not self._send(where, short=short):
            self._undecided += 1
        elif short:
            self._short[where] = self._held[where].decided

    def _call(self, called: ToolCalled) -> None:
        tool = self._tool(called.tool)
        tool.calls += 1
        decided = self._short.get(CallAddress.of(called))
        short = decided.shortened.get(called.tool) if decided is not None else None
        if short is None:
            return
        key = (called.branch, called.tool)
        if not self._fits(called, short):
            tool.passed_on += 1
        elif key in self._seen:
            tool.after_fault += 1
        else:
            tool.at_once += 1
        self._seen.discard(key)

    def _fits(self, called: ToolCalled, short: ToolAsSent) -> bool:
        """Whether arguments fit the whole schema; those that are lost are taken to."""
        arguments = self._source.fetch(bytes.fromhex(called.arguments))
        return arguments is None or not check(arguments.decode("utf-8", "replace"), short.schema)

    def _send(self, where: CallAddress, *, short: bool) -> bool:
        """Count a prompt; False where no decision held for its tools."""
        if not self.offers(where):
            return False
        decision = self._held[where]
        short = short or not decision.decided.shortened
        call = self._calls.setdefault(where, ToolsOfCall(self._session, *where))
        call.prompts += 1
        call.in_full += not short
        call.offered += decision.offered
        call.sent = call.sent.plus(decision.sent if short else ByForm(whole=decision.offered))
        self._prompts[decision.event.decision, short] += 1
        return True

    def _tool(self, name: str) -> ToolAccount:
        return self._tools.setdefault(name, ToolAccount(name))


def _count_prompts(tool: ToolAccount, one: ToolAsSent, times: int, *, short: bool) -> None:
    """Count ``times`` prompts with this tool, as it was decided or, where they were not ``short``, whole."""
    prompts, sent = in_form(one.form, times), in_form(one.form, times * one.tokens)
    if not short:
        prompts, sent = ByForm(whole=times), ByForm(whole=times * one.whole_tokens)
    tool.prompts, tool.sent = tool.prompts.plus(prompts), tool.sent.plus(sent)
    tool.offered += times * one.whole_tokens


# ---------------------------------------------------------------- at one call


@dataclass(frozen=True, slots=True)
class SentTool:
    """How one tool was sent, and why; ``handle`` is empty for one that was sent whole."""

    name: str
    form: str
    reason: str
    offered: int
    sent: int
    handle: str


@dataclass(frozen=True, slots=True)
class Tooling:
    """The decision on tools that held at a call: made at call ``call`` of branch ``branch``, for a ``price``.

    ``before`` says what was decided of the same tools before in the session, where that was taken over. ``tools``
    counts them by form, with their tokens as ``offered`` and as ``sent``. ``unused`` says why this call's tools did not
    go out so, if they did not.
    """

    branch: int
    call: int
    reason: str
    before: str
    tool: str
    price: float
    tools: ByForm
    offered: ByForm
    sent: ByForm
    unused: str
    each: Sequence[SentTool]


def tooling(log: Iterable[Stored], where: CallAddress, source: LogContents) -> Tooling | None:
    """What held for the tools at a call of a session; None where nothing was decided by then."""
    reader = ToolUseReader("", source)
    reader.read(log)
    decision = reader.in_force(where)
    if decision is None:
        return None
    event, offered = decision.event, NONE
    for one in decision.decided.sent:
        offered = offered.plus(in_form(one.form, one.whole_tokens))
    return Tooling(
        event.branch,
        event.call,
        event.reason,
        _before(reader.decisions, event),
        event.tool,
        event.price,
        decision.tools,
        offered,
        decision.sent,
        _unused(reader, where),
        [
            SentTool(one.name, one.form, one.reason, one.whole_tokens, one.tokens, one.handle)
            for one in decision.decided.sent
        ],
    )


def _before(decisions: Iterable[ToolDecision], event: ToolsDecided) -> str:
    first = next(one.event for one in decisions if one.event.decision == event.decision)
    return "" if first.reason == event.reason else f"call {first.branch}:{first.call}: {first.reason}"


def _unused(reader: ToolUseReader, where: CallAddress) -> str:
    if not reader.offers(where):
        return "it offers other tools, or none"
    return "it went out with all of its tools whole" if reader.in_full(where) else ""
