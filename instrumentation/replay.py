"""Plays a recording under a policy, without any network, with the code that pages live.

The page table, the planner, the stubs and the answers to page_in are the real ones, so that a policy decides here what
it would have decided then. What is played is the model: it says what was recorded, and where that repeats what only
evicted pages had shown, it asks for them first, as many times as a call allows. Every request is charged, with the
tool that was added, with stubs and with all that was asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from instrumentation.asking import ask
from instrumentation.bill import BYTES_A_TOKEN, Bill, Charged, Prompt, tokens_in
from instrumentation.needs import Need
from instrumentation.prepared import Call, Prepared
from pager import planner, sessions
from pager.dialects import load as load_dialect
from pager.events import LegFinished, Repacked, Tokens
from pager.eviction import Stubs, carry_out, text_at
from pager.exchange import ROUNDS, SMALLEST_REPLY
from pager.lineage import Branch, Session
from pager.models import Table as Models
from pager.page import BYTES_A_TOKEN as PLANNED
from pager.page import Page, tokens_of
from pager.page_in import definition
from pager.planner import ROOM, Plan, Terms
from pager.policy import ASKING, Policy, View
from pager.sites import stubbed
from pager.stubs import handle_of
from pager.table import Slot, Table
from pager.tables import Tables
from pager.terms import reserve_of

Watch = Callable[[View], None]
"""Is shown what there is to decide on at every call, also where no page may go and no policy is asked."""

PolicyOf = Callable[[int], Policy]
"""The policy of a branch: the same for all, or one that knows the branch's future."""


@dataclass(slots=True)
class Tally:
    """What happens while a session is played.

    ``page_ins`` counts the requests in which pages were asked for, ``faults`` the tool calls whose pages these were,
    ``asking`` what those requests cost; ``rejected`` the decisions that broke a rule. ``so_far`` is what the
    session had cost after each call.
    """

    page_ins: int = 0
    faults: int = 0
    asking: float = 0.0
    rejected: int = 0
    repacked: list[Repacked] = field(default_factory=list)
    so_far: list[float] = field(default_factory=list)


class Outcome(NamedTuple):
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


@dataclass(slots=True)
class _Sent:
    """The prompt of a branch's latest call as it went out, and what it was made of."""

    head: bytes = b""
    slots: list[Slot] = field(default_factory=list)
    prompt: Prompt = field(default_factory=Prompt)
    changed_from: int = 0


@dataclass(slots=True)
class _Turn:
    """A call that is being played; ``full`` while it goes out as the client sent it."""

    call: Call
    table: Table
    terms: Terms
    full: bool = True


class Player:
    """Plays one session under the policies of its branches; ``brought`` says, by handles, which pages a reply held."""

    def __init__(self, prepared: Prepared, policy_of: PolicyOf, models: Models, watch: Watch | None = None) -> None:
        self._prepared = prepared
        self._dialect = prepared.dialect
        self._policy_of = policy_of
        self._watch = watch
        self._models = models
        self._session = Session(prepared.recording.name, "")
        self._blobs: dict[bytes, bytes] = {}
        self._tables = Tables(load_dialect, self._blobs.get)
        self._stubs = Stubs()
        self._sent: dict[int, _Sent] = {}
        self.brought: dict[str, tuple[str, ...]] = {}
        self.bill = Bill()
        self.tally = Tally()

    def play(self) -> None:
        """Play all calls."""
        for call, needs in zip(self._prepared.calls, self._prepared.needs, strict=True):
            self._play(call, needs)
            self.tally.so_far.append(self.bill.charged.cost)

    def outcome(self, policy: str) -> Outcome:
        """What became of the session so far, under a policy of this name."""
        tally = self.tally
        return Outcome(
            policy=policy,
            charged=self.bill.charged,
            page_ins=tally.page_ins,
            faults=tally.faults,
            repacks=len(tally.repacked),
            asking=tally.asking,
            rejected=tally.rejected,
            so_far=tuple(tally.so_far),
        )

    def _play(self, call: Call, needs: Sequence[Need]) -> None:
        step = call.step
        table = self._table(call)
        if not call.items:  # a request that could not be read
            self._charge(call, call.prompt, step.output)
            return
        table.advance(
            call.number, step.attempt, step.at, self._prepared.items(call), self._prepared.size(call), step.model
        )
        turn = _Turn(call, table, self._terms(call, table))
        self._decide(turn)
        prompt = self._fitting(turn)
        if step.answered:
            answered = self._page_in(turn, prompt, needs)
            usage = self._charge(call, answered, step.output)
            size = round(usage.input * BYTES_A_TOKEN) if answered is prompt else 0
            sessions.learn_usage(table, usage, size)
        table.catch_up()

    def _table(self, call: Call) -> Table:
        """The page table of a call's branch; a new one for its first call."""
        step, tables = call.step, self._session.tables
        if step.branch not in tables:
            self._open_branches(step.branch)
            dialect = self._dialect.name
            sessions.open_table(self._session, step.branch, step.parent, dialect, self._tables, step.fork_call)
            tables[step.branch].read = self._prepared.read
            self._sent[step.branch] = _Sent()
        return tables[step.branch]

    def _open_branches(self, number: int) -> None:
        """Have a branch of this number, which tells what it has in common with others."""
        branches, families = self._session.branches, self._prepared.recording.families
        for at in range(len(branches), number + 1):
            branches.append(Branch(at, "", b"", families.get(at, b"")))

    def _terms(self, call: Call, table: Table) -> Terms:
        """What a call is planned under; the provider that is played caches without being asked to."""
        step, models = call.step, self._models
        model, prices = models.find(step.model), models.prices(step.model)
        return Terms(
            prices if models.fixed else table.evidence.believed(prices),
            model.window,
            reserve_of(model, step.reserve, model.window),
            planner.binds_thinking(step.model),
            cacheable=models.cache(step.model).minimum,
            experience=self._prepared.recording.experience,
            harness=self._prepared.recording.harness,
            grace=self._prepared.grace,
        )

    def _charge(self, call: Call, prompt: Prompt, output: int) -> Tokens:
        """Charge one request; what the provider reports of it."""
        charged = self.bill.charge(prompt, call.step.at, output, self._models.prices(call.step.model))
        return Tokens(charged.input, charged.cached, output=output, tells_cached=True)

    # ---- what is evicted

    def _decide(self, turn: _Turn) -> None:
        """Ask the policy, where the request can carry the tool; as it is done live."""
        table, names = turn.table, turn.call.step.tools
        if names is None:
            return
        turn.full = False
        if self._watch:
            self._watch(planner.view(table, turn.call.step.outside, turn.terms))
        policy = self._policy_of(turn.call.step.branch)
        plan = planner.propose(policy, table, turn.call.step.outside, turn.terms)
        self.tally.rejected += bool(plan.rejected)
        plan = plan if plan.pages else planner.unasked(table, names)
        if plan.cause:
            self._repack(turn, plan)

    def _repack(self, turn: _Turn, plan: Plan) -> None:
        table, step = turn.table, turn.call.step
        where = (step.branch, turn.call.number, step.attempt)
        repacked = carry_out(plan, table, where, step.tools, partial(self._stub, table))
        self.tally.repacked.append(repacked)
        sent = self._sent[step.branch]
        sent.changed_from = min([sent.changed_from, *(page.slot for page in plan.pages)])

    def _stub(self, table: Table, page: Page, tool: str) -> str:
        raw = self._raw(table.slots[page.slot])
        self._blobs[table.slots[page.slot].digest] = raw
        return self._stubs.make(self._dialect, table, page, raw, tool)

    def _raw(self, slot: Slot) -> bytes:
        return slot.raw if slot.raw is not None else self._prepared.blobs[slot.digest]

    def _fitting(self, turn: _Turn) -> Prompt:
        """The prompt as it goes out; where it would not fit the window, pages go until it does."""
        prompt, terms = self._prompt(turn), turn.terms
        if prompt.tokens <= terms.window:
            return prompt
        room = (terms.window - terms.reserve) * ROOM
        excess = tokens_of(round((prompt.tokens - room) * BYTES_A_TOKEN))
        plan = planner.rescue(turn.table, turn.call.step.outside, terms, excess)
        if not plan.pages:
            return prompt
        turn.full = False
        self._repack(turn, plan)
        return self._prompt(turn)

    # ---- what goes out

    def _prompt(self, turn: _Turn) -> Prompt:
        """The prompt as it goes out now; what it has in common with the one before is not looked at again."""
        table, step = turn.table, turn.call.step
        if turn.full or not (table.tool or table.changed or table.expanded):
            return turn.call.prompt
        sent = self._sent[step.branch]
        tool = definition(self._dialect.name, table.tool) if table.tool and step.tools is not None else b""
        head = turn.call.prompt.keys[0] + tool
        keep = min(_same(sent.slots, table.slots), sent.changed_from) if head == sent.head else 0
        if not keep:
            sent.prompt = Prompt.of([head], [tokens_in(step.outside + len(tool))])
        items = [self._as_sent(at, table) for at in range(keep, len(table.slots))]
        keys, tokens = [key for key, _ in items], [tokens_in(size) for _, size in items]
        sent.prompt = sent.prompt.grown(keys, tokens, keep + 1)
        sent.head, sent.slots, sent.changed_from = head, list(table.slots), len(table.slots)
        return sent.prompt

    def _as_sent(self, at: int, table: Table) -> tuple[bytes, int]:
        """What an item is known by in the bill, and its bytes; stubs make it another one."""
        slot = table.slots[at]
        if at not in table.changed:
            return slot.digest, slot.size
        raw = self._raw(slot)
        item = stubbed(raw, self._dialect.sites(raw), {page.key: page.stub for page in slot.pages if page.stub})
        return sha256(item).digest(), len(item)

    # ---- what is asked for

    def _page_in(self, turn: _Turn, prompt: Prompt, needs: Sequence[Need]) -> Prompt:
        """Ask for what the answer needs and the prompt does not show; the prompt with what was brought."""
        table = turn.table
        if turn.full or not table.tool or turn.call.step.tools is None:
            return prompt
        brought: set[str] = set()
        rounds, (wanted, calls) = 0, self._missing(table, needs, brought)
        while wanted and rounds < ROUNDS:
            rounds += 1
            self.tally.page_ins += 1
            self.tally.faults += calls
            before = self.bill.charged.cost
            usage = self._charge(turn.call, prompt, ASKING)
            self.tally.asking += self.bill.charged.cost - before
            text_of, room = partial(self._text, table), self._room(turn, prompt)
            leg, replies = ask(self._dialect, table.tool, wanted, text_of, room, rounds)
            sessions.keep_leg(table, _finished(turn.call, rounds, usage, replies.pages), leg)
            items = self._dialect.appended(leg)
            prompt = prompt.grown([sha256(raw).digest() for raw in items], [tokens_in(len(raw)) for raw in items])
            self.brought |= {handle_of(text.encode()): replies.pages for text in replies.texts}
            brought.update(replies.pages)
            wanted, calls = self._missing(table, needs, brought)
        return prompt

    def _missing(self, table: Table, needs: Sequence[Need], brought: Iterable[str]) -> tuple[list[str], int]:
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

    def _room(self, turn: _Turn, prompt: Prompt) -> int:
        """How many characters of pages still fit the model's window."""
        used = tokens_of(round(prompt.tokens * BYTES_A_TOKEN))
        return max(SMALLEST_REPLY, round((turn.terms.window - turn.terms.reserve - used) * PLANNED * ROOM))

    def _text(self, table: Table, handle: str) -> str | None:
        source = table.shown[handle]
        return text_at(self._dialect, self._blobs[source.message], source.key)


def _finished(call: Call, rounds: int, usage: Tokens, pages: Sequence[str]) -> LegFinished:
    """What would be logged of a leg in which the model asked for pages, but for the leg itself."""
    where = (call.step.branch, call.number, call.step.attempt)
    return LegFinished(*where, leg=rounds, said="", body="", size=0, usage=usage, pages=list(pages))


def _is_new_result(table: Table, page: Page) -> bool:
    """Whether a page is a result that the client has sent with the latest call."""
    return page.born == table.call and page.kind == "result" and table.slots[page.slot].item >= 0


def _unseen(need: Need, stubs: str) -> bool:
    return any(sign not in stubs for sign in need.signs)


def _same(old: Sequence[Slot], new: Sequence[Slot]) -> int:
    """How many slots are the very same at the beginning: a table only ever cuts its slots off and adds others."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[middle - 1] is new[middle - 1] else (low, middle - 1)
    return low
