"""Plays a recording under a policy, without any network, with the code that pages live.

The page table, the planner, the stubs and the answers to page_in are the real ones, so that a policy decides here what
it would have decided then. What is played is the model: it says what was recorded, and where that repeats what only
evicted pages had shown, it asks for them first, as many times as a call allows. A tool that was sent without its
parameters it asks for, too, unless the prompt names them; one that was only sent without prose it calls as it is. Every
request is charged, with the tools as they were sent and the one that was added, with stubs and with all that was asked
for.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from math import inf
from typing import NamedTuple

from instrumentation.accounting.billing import Bill, Charged, Marks, Prompt
from instrumentation.replay.known_pauses import KnownPauses
from instrumentation.replay.page_needs import Need
from instrumentation.replay.paged_prompts import PagedPrompts, added_tool, followed_by, short_tools
from instrumentation.replay.prepared_recording import Prepared, PreparedCall, lasting
from pager.log.bypass_reasons import BypassReason
from pager.log.events import BranchOpened, Bypassed, Event, LegFinished, RepackCause, Repacked, ToolsDecided
from pager.paging import held_calls, planner
from pager.paging.conditions import terms_under
from pager.paging.credit import NOTHING, SessionMoney
from pager.paging.held_calls import ROUNDS, Refusal, Replies
from pager.paging.pages.page import Page
from pager.paging.pages.page_table import PageTable, Refresh, Slot
from pager.paging.pages.session_pages import SessionPages, TableSource
from pager.paging.pages.stub import handle_of
from pager.paging.plan_call import CallPlan, text_at
from pager.paging.planner import Terms
from pager.paging.policy import Policy, View
from pager.paging.policy_choice import NamedPolicy
from pager.paging.render import with_stubs
from pager.paging.warmth.choose_lifetime import chosen
from pager.paging.warmth.keep_warm import KeepWarm, Resting
from pager.paging.warmth.returns import WaitsFor
from pager.pricing.mark_cache import FIVE_MINUTES
from pager.pricing.prices import ASKING
from pager.pricing.rates import Models
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.request_values import CallAddress, Usage
from pager.tools.decide_forms import ToolAsSent, Toolset
from pager.wire.dialect import Dialect
from pager.wire.dialects import load as load_dialect
from pager.wire.stitching import PASSING, Leg

Watch = Callable[[View], None]
"""Is shown what there is to decide on at every call, also where no page may go and no policy is asked."""

PolicyOf = Callable[[int], Policy]
"""The policy of a branch: the same for all, or one that knows the branch's future."""


@dataclass(slots=True)
class Tally:
    """What happens while a session is played.

    ``page_ins`` counts the requests in which pages or tools were asked for, ``faults`` the tool calls whose pages these
    were and ``schemas`` the tools, ``asking`` what those requests cost; ``rejected`` the decisions that broke a rule.
    ``so_far`` is what the session had cost after each call.
    """

    page_ins: int = 0
    faults: int = 0
    schemas: int = 0
    asking: float = 0.0
    rejected: int = 0
    repacked: list[Repacked] = field(default_factory=list)
    tools: list[ToolsDecided] = field(default_factory=list)
    refreshes: int = 0
    refreshing: float = 0.0  # what the refreshes cost
    wrote: int = 0  # refreshes that wrote instead of reading
    so_far: list[float] = field(default_factory=list)

    def count(self, events: Iterable[Event]) -> None:
        """Count what was decided of a call."""
        for event in events:
            match event:
                case Repacked() if event.cause != RepackCause.READY:
                    self.repacked.append(event)
                case ToolsDecided():
                    self.tools.append(event)
                case Bypassed(reason=BypassReason.DECISION_REJECTED):
                    self.rejected += 1
                case _:
                    pass


class PolicyOutcome(NamedTuple):
    """What became of one session under one policy; costs are in units of one uncached input token.

    ``so_far`` is what it had cost after each call, empty where it was not played but reckoned.
    """

    policy: str
    charged: Charged
    page_ins: int = 0
    faults: int = 0
    repacks: int = 0
    asking: float = 0.0
    rejected: int = 0
    so_far: tuple[float, ...] = ()
    schemas: int = 0
    refreshes: int = 0
    refreshing: float = 0.0
    wrote: int = 0
    totals: SessionMoney = NOTHING  # as the user's account has them


@dataclass(slots=True, kw_only=True)
class PlayedCall(CallPlan):
    """A call that is being played."""

    call: PreparedCall

    @property
    def scale(self) -> float:
        """What a token of ours is in the provider's, where that was fewer: what it has answered did fit its window."""
        counted = self.call.step.usage.input if self.call.step.usage is not None else 0
        return min(1.0, counted / self.call.prompt.tokens) if counted else 1.0

    @property
    def tool(self) -> str:
        """The name of the tool that was added, where this call carries it."""
        return "" if self.full else added_tool(self.call, self.table)

    @property
    def short(self) -> Toolset | None:
        """The decision on the tools of this call; None if none of them goes out short."""
        return None if self.full else short_tools(self.call, self.table)


class DueRefreshes(NamedTuple):
    """The refreshes of a branch that rests: when they are due, and what is sent again."""

    times: Sequence[float]
    prompt: Prompt
    turn: PlayedCall
    resting: Resting


class Player:
    """Plays one session under the policies of its branches; ``brought`` says, by handles, which pages a reply held.

    With ``keep_warm``, branches that rest are kept in the provider's cache by that rule, or by one that knows when they
    go on. ``credit`` are the dollars that the session is lent by its user's account; None where it must pay for itself.
    """

    def __init__(
        self,
        prepared: Prepared,
        policy_of: PolicyOf,
        models: Models,
        watch: Watch | None = None,
        keep_warm: KeepWarm | KnownPauses | None = None,
        credit: float | None = None,
    ) -> None:
        self._keep_warm = keep_warm
        self._credit = credit
        self._due: dict[int, DueRefreshes] = {}  # by branch
        self._prepared = prepared
        self._dialect = prepared.dialect
        self._policy_of = policy_of
        self._watch = watch
        self._models = models
        self.pages = SessionPages()
        self._blobs: dict[bytes, bytes] = {}
        self._tables = TableSource(load_dialect, self._blobs.get)
        self.prompts = PagedPrompts(self._raw, prepared.counted)
        self.brought: dict[str, tuple[str, ...]] = {}
        self.bill = Bill()
        self.tally = Tally()

    def play(self) -> None:
        """Play all calls."""
        for call, needs in zip(self._prepared.calls, self._prepared.needs, strict=True):
            self._refresh(call.step.at)
            self._go_on(call)
            self._play(call, needs)
            self.tally.so_far.append(self.bill.charged.cost)
        self._refresh(inf)

    def outcome(self, policy: str) -> PolicyOutcome:
        """What became of the session so far, under a policy of this name."""
        tally = self.tally
        return PolicyOutcome(
            policy=policy,
            charged=self.bill.charged,
            page_ins=tally.page_ins,
            faults=tally.faults,
            repacks=len(tally.repacked),
            asking=tally.asking,
            rejected=tally.rejected,
            so_far=tuple(tally.so_far),
            schemas=tally.schemas,
            refreshes=tally.refreshes,
            refreshing=tally.refreshing,
            wrote=tally.wrote,
            totals=self.pages.totals,
        )

    def _play(self, call: PreparedCall, needs: Sequence[Need]) -> None:
        step = call.step
        table = self._table(call)
        if not call.items:  # a request that could not be read
            self._charge(call, call.prompt, step.output)
            return
        items, size, prepared = self._prepared.items(call), self._prepared.size(call), self._prepared
        by_marks = prepared.by_marks(call, self._models)
        if by_marks:  # those that the client is taken to set, for all wire formats alike
            asked = prepared.lifetime(call) or FIVE_MINUTES
            items = items._replace(head_marks=(asked,), auto_mark=asked)
        system = self._prepared.recording.families.get(step.branch, b"").hex()
        around = system + (step.offers.digest if step.offers else "")
        table.advance(call.number, step.attempt, step.at, items, size, step.model, around)
        if by_marks and not table.held.alive(step.at):
            self._choose_lifetime(call, table)
        turn = PlayedCall(
            dialect=self._dialect,
            pages=self.pages,
            table=table,
            where=CallAddress(step.branch, call.number, step.attempt),
            terms=self._terms(call, table, by_marks=by_marks),
            rule=NamedPolicy("", self._policy_of(step.branch)),
            client_outside=step.outside,
            raw=self._raw,
            call=call,
        )
        self.pages.add_up(turn.terms.prices, self._models.dollars(step.model))
        self._decide(turn)
        prompt = self._fitting(turn)
        self._blobs |= turn.blobs
        self.tally.count(turn.events)
        if step.answered:
            answered = self._page_in(turn, prompt, needs)
            usage = self._charge(call, answered, step.output, turn)
            size = round(usage.input * BYTES_A_TOKEN) if answered is prompt else 0
            table.learn_usage(usage, size, call.number)
            self._rest(turn, answered)
        table.catch_up()

    # ---- what keeps the cache warm

    def _rest(self, turn: PlayedCall, prompt: Prompt) -> None:
        """Note the refreshes that keep this prompt cached until the branch goes on, if they pay."""
        if self._keep_warm is None:
            return
        step = turn.call.step
        waits_for = WaitsFor.TOOL if step.called else WaitsFor.USER
        policy = self._policy_of(step.branch)
        resting = planner.resting(policy, turn.table, turn.outside, turn.terms, waits_for)
        resting = replace(resting, tokens=prompt.tokens)
        rule = self._keep_warm
        times = (rule.after(turn.call) if isinstance(rule, KnownPauses) else rule).refreshes(resting)
        if times:
            self._due[step.branch] = DueRefreshes([step.at + after for after in times], prompt, turn, resting)

    def _go_on(self, call: PreparedCall) -> None:
        """End the rest of what a call goes on with: its branch, the one it forks from, those it stands in place of."""
        step, families = call.step, self._prepared.recording.families
        here = (families.get(step.branch), step.model)
        for branch, rest in list(self._due.items()):
            if branch in (step.branch, step.parent) or (families.get(branch), rest.turn.call.step.model) == here:
                del self._due[branch]

    def _refresh(self, until: float) -> None:
        """Send the refreshes that are due before this time, of all branches in the order of time."""
        due = sorted((at, branch) for branch, rest in self._due.items() for at in rest.times if at < until)
        for at, branch in due:
            rest = self._due[branch]
            step, table = rest.turn.call.step, rest.turn.table
            marks = _marks(table, rest.prompt) if rest.turn.terms.by_marks else None
            prices = self._models.prices(step.model) if marks else self._prepared.prices(rest.turn.call, self._models)
            charged = self.bill.refresh(rest.prompt, at, prices, marks)
            self.tally.refreshes += 1
            self.tally.refreshing += charged.cost
            self.tally.wrote += charged.cached < charged.input
            table.warm(Refresh(at, rest.resting.stake, rest.resting.prices.ttl_seconds), charged.cost)
        self._due = {
            branch: rest._replace(times=left)
            for branch, rest in self._due.items()
            if (left := [at for at in rest.times if at >= until])
        }

    def _table(self, call: PreparedCall) -> PageTable:
        """The page table of a call's branch; a new one for its first call."""
        step, tables = call.step, self.pages.tables
        if step.branch not in tables:
            family = self._prepared.recording.families.get(step.branch, b"").hex()
            opened = BranchOpened(
                step.branch, "", self._dialect.name, parent=step.parent, fork_call=step.fork_call, family=family
            )
            table = self.pages.open(opened, self._tables)
            table.read = self._prepared.read
            table.yardstick.fixed = True  # the provider that is played counts as we do
        return tables[step.branch]

    def _choose_lifetime(self, call: PreparedCall, table: PageTable) -> None:
        """Choose what the client's marks ask for, as it is done live where the whole prompt is written."""
        recording, prices, rule = (
            self._prepared.recording,
            self._models.prices(call.step.model),
            self._prepared.cache.rule,
        )
        if rule == "auto" and table.call == 1:  # the provider has not said yet how long it keeps anything
            return
        to_go = recording.experience.to_go(recording.harness, table.call)
        table.ask_for(chosen(rule, table, prices, to_go, kept_warm=self._keep_warm is not None))

    def _terms(self, call: PreparedCall, table: PageTable, *, by_marks: bool) -> Terms:
        """What a call is planned under, at the prices of the provider that is played."""
        step, models, recording = call.step, self._models, self._prepared.recording
        prices = lasting(self._prepared.prices(call, models), table.lifetime)
        return replace(
            terms_under(prices if models.fixed else table.evidence.believed(prices), models, step.model, step.reserve),
            experience=recording.experience,
            tenant=recording.tenant,
            harness=recording.harness,
            grace=self._prepared.grace,
            by_marks=by_marks,
            credit=None if self._credit is None else self._credit / models.dollars(step.model),
        )

    def _charge(self, call: PreparedCall, prompt: Prompt, output: int, turn: PlayedCall | None = None) -> Usage:
        """Charge one request; what the provider reports of it."""
        step, models = call.step, self._models
        if turn is not None and turn.terms.by_marks:
            prices, marks = models.prices(step.model), _marks(turn.table, prompt)
        else:
            prices, marks = self._prepared.prices(call, models), None
        charged = self.bill.charge(prompt, step.at, output, prices, marks)
        return Usage(charged.input, charged.cached, output=output, tells_cached=True)

    # ---- what is sent short, and what is evicted

    def _decide(self, turn: PlayedCall) -> None:
        """Decide on tools and pages, where the request can carry the tool; as it is done live."""
        step, table = turn.call.step, turn.table
        if step.tools is None:
            return
        if step.offers is not None:
            turn.decide_tools(step.tools, step.offers, self._prepared.tools)
        if self._watch:
            self._watch(planner.view(table, turn.outside, turn.terms))
        anchors = turn.decide_pages(step.tools)
        table.set_marks(ends=False, anchors=anchors, legs=turn.terms.by_marks)

    def _raw(self, slot: Slot) -> bytes:
        return slot.raw if slot.raw is not None else self._prepared.blobs[slot.digest]

    def _fitting(self, turn: PlayedCall) -> Prompt:
        """The prompt as it goes out; where it would not fit the window, pages go until it does."""
        prompt = self._prompt(turn)
        if prompt.tokens * turn.scale <= turn.terms.window:
            return prompt
        rescued = turn.rescue(turn.call.step.tools, round(prompt.tokens - turn.room))
        return self._prompt(turn) if rescued else prompt

    def _prompt(self, turn: PlayedCall) -> Prompt:
        """The prompt as it goes out now."""
        table = turn.table
        if turn.full or not (table.tool or table.changed or table.expanded):
            return turn.call.prompt
        return self.prompts.paged(self._dialect, turn.call, table)

    # ---- what is asked for

    def _page_in(self, turn: PlayedCall, prompt: Prompt, needs: Sequence[Need]) -> Prompt:
        """Ask for what the answer needs and the prompt does not show; the prompt with what was brought."""
        table = turn.table
        if not turn.tool:
            return prompt
        brought: set[str] = set()
        rounds, (wanted, calls), schemas = 0, self._missing(table, needs, brought), self._unknown(turn, brought)
        while (wanted or schemas) and rounds < ROUNDS:
            rounds += 1
            self.tally.page_ins += 1
            self.tally.faults += calls
            self.tally.schemas += len(schemas)
            before = self.bill.charged.cost
            usage = self._charge(turn.call, prompt, ASKING, turn)
            self.tally.asking += self.bill.charged.cost - before
            text_of, room = partial(self._text, table), turn.reply_limit(prompt.tokens)
            leg, replies = _asked(self._dialect, table.tool, [*wanted, *schemas], text_of, room, rounds)
            table.apply(_finished(turn, rounds, usage, replies.pages), leg)
            prompt = followed_by(prompt, self._dialect.appended(leg), self._dialect)
            self.brought |= {handle_of(text.encode()): replies.pages for text in replies.texts}
            brought.update(replies.pages)
            (wanted, calls), schemas = self._missing(table, needs, brought), self._unknown(turn, brought)
        return prompt

    def _unknown(self, turn: PlayedCall, brought: Collection[str]) -> list[str]:
        """The handles of the tools that the answer calls and whose parameters the prompt names nowhere."""
        short = turn.short.shortened if turn.short else {}
        called = [short[name] for name in dict.fromkeys(turn.call.step.called) if name in short]
        deferred = [one for one in called if one.form == "deferred" and one.handle not in brought]
        return [one.handle for one in deferred if not self._names_parameters(turn.table, one)]

    def _names_parameters(self, table: PageTable, tool: ToolAsSent) -> bool:
        """Whether the prompt names a tool and all its parameters, in an earlier call or since it was asked for."""
        left = _names(tool)
        for at in range(len(table.slots)):
            blocks = self._dialect.decode(with_stubs(self._dialect, table.slots[at], self._raw)).blocks
            text = "\n".join(part for block in blocks for part in (block.name, block.text))
            left = [name for name in left if name not in text]
            if not left:
                return True
        return False

    def _missing(self, table: PageTable, needs: Sequence[Need], brought: Iterable[str]) -> tuple[list[str], int]:
        """The evicted pages that the model asks for: those of the calls that showed what is needed last, and how many.

        Results that nobody has answered yet are needed in any case.
        """
        evicted = [page for page in table.pages if page.stub]
        new = {page.handle for page in evicted if _is_new_result(table, page)}
        if not evicted or not (needs or new):
            return [], 0
        there = {page.handle for page in table.pages if not page.stub}.union(brought)
        there = there.union(*(self.brought.get(handle, ()) for handle in there))
        stubs = "\n".join(page.stub for page in evicted)
        asked = {need.asked for need in needs if there.isdisjoint(need.shown) and _unseen(need, stubs)}
        newest = {page.handle: page for page in evicted if page.handle in (asked | new) - there}
        calls = {page.call_id for page in newest.values()}
        return list(dict.fromkeys(page.handle for page in evicted if page.call_id in calls)), len(calls)

    def _text(self, table: PageTable, handle: str) -> str | None:
        if handle in table.schemas:
            return bytes(table.schemas[handle].whole).decode()
        source = table.shown[handle]
        raw = self._blobs.get(source.message) or self._prepared.blobs[source.message]
        return text_at(self._dialect, raw, source.key)


def _marks(table: PageTable, prompt: Prompt) -> Marks:
    """The marks of a request as it goes out; hidden legs behind the table's slots end at one of their own."""
    ends = {slots + 1: asked for slots, asked in table.sent_marks().items()}
    parts = len(prompt.keys)
    if parts > len(table.slots) + 1:
        ends[parts] = table.anchor_lifetime(parts)
    return Marks(ends, lambda part: table.positions(part - 1) if part else 1)


def _finished(turn: PlayedCall, rounds: int, usage: Usage, brought: Sequence[str]) -> LegFinished:
    """What would be logged of a leg in which the model asked for pages, but for the leg itself."""
    call, known = turn.call, turn.table.schemas
    where = CallAddress(call.step.branch, call.number, call.step.attempt)
    pages, schemas = [one for one in brought if one not in known], [known[one].name for one in brought if one in known]
    return LegFinished(*where, leg=rounds, said="", body="", size=0, usage=usage, pages=pages, schemas=schemas)


def _names(tool: ToolAsSent) -> list[str]:
    """A tool's name, and the names of its parameters as they are written in JSON."""
    schema = tool.schema
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return [tool.name, *(f'"{name}"' for name in properties or ())]


def _is_new_result(table: PageTable, page: Page) -> bool:
    """Whether a page is a result that the client has sent with the latest call."""
    return page.born == table.call and page.kind == "result" and table.slots[page.slot].item >= 0


def _unseen(need: Need, stubs: str) -> bool:
    return any(sign not in stubs for sign in need.signs)


def _asked(
    dialect: Dialect, tool: str, handles: Sequence[str], resolve: Callable[[str], str | None], limit: int, rounds: int
) -> tuple[Leg, Replies]:
    """A hidden leg in which the model asks for these pages, in the given round of its call, and the answer to it."""
    stitcher = dialect.stitcher(tool, PASSING)
    number = sha256(f"{rounds} {' '.join(handles)}".encode()).hexdigest()[:16]
    stitcher.take(dialect.tool_call(number, tool, {"pages": list(handles)}))
    replies = held_calls.reply(
        stitcher.held(), tool, resolve, lambda call: Refusal("imitated", call.name), limit=limit, rounds=rounds
    )
    return stitcher.leg(replies.texts), replies
