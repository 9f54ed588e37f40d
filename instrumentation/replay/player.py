"""Plays a recording under a policy, without any network, with the code that pages live.

The page table, the planner, the stubs and the answers to page_in are the real ones, so that a policy decides here what
it would have decided then. What is played is the model: it says what was recorded, and where that repeats what only
evicted pages had shown, it asks for them first, as many times as a call allows. A tool that was sent without its
parameters it asks for, too, unless the prompt names them; one that was only sent without prose it calls as it is. Every
request is charged, with the tools as they were sent and the one that was added, with stubs and with all that was asked
for.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from typing import NamedTuple

from instrumentation.accounting.billing import (
    Bill,
    Charged,
    Marks,
    Prompt,
    tokens_in,
)
from instrumentation.accounting.item_sizes import item_tokens
from instrumentation.replay.needs import Need
from instrumentation.replay.page_requests import ask
from instrumentation.replay.prepared import Call, Prepared
from pager.log.events import (
    LegFinished,
    Repacked,
    Tokens,
    ToolsDecided,
)
from pager.paging import planner, settle_tools
from pager.paging.conditions import reserve_of
from pager.paging.held_calls import ROUNDS, SMALLEST_REPLY
from pager.paging.page import Page
from pager.paging.page_in import definition
from pager.paging.page_table import Slot, Table, same_slots
from pager.paging.page_tables import Tables
from pager.paging.planner import ROOM, Plan, Terms
from pager.paging.policy import Policy, View
from pager.paging.repack import Stubs, carry_out, text_at
from pager.paging.stub import handle_of
from pager.pricing.mark_cache import FIVE_MINUTES
from pager.pricing.prices import ASKING
from pager.pricing.rates import Models
from pager.pricing.tokens import BYTES_A_TOKEN
from pager.sessions.lineage import Branch, Session
from pager.tools.decide import Sent, Toolset
from pager.wire.dialects import load as load_dialect
from pager.wire.page_spans import stubbed

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
    schemas: int = 0


@dataclass(slots=True)
class _Sent:
    """The prompt of a branch's latest call as it went out, and what it was made of."""

    head: bytes = b""
    slots: list[Slot] = field(default_factory=list)
    prompt: Prompt = field(default_factory=Prompt)
    changed_from: int = 0


@dataclass(slots=True)
class Turn:
    """A call that is being played; ``full`` while it goes out as the client sent it."""

    call: Call
    table: Table
    terms: Terms
    full: bool = True

    @property
    def outside(self) -> int:
        """The bytes of the prompt that stand outside of its items, as it is planned."""
        return self.call.step.outside - self.table.freed

    @property
    def scale(self) -> float:
        """What a token of ours is in the provider's, where that was fewer: what it has answered did fit its window."""
        counted = self.call.step.usage.input if self.call.step.usage is not None else 0
        return min(1.0, counted / self.call.prompt.tokens) if counted else 1.0

    @property
    def tool(self) -> str:
        """The name of the tool that was added, where this call carries it."""
        return "" if self.full or self.call.step.tools is None else self.table.tool

    @property
    def short(self) -> Toolset | None:
        """What was decided of the tools of this call, if any of them goes out short."""
        decided, offers = self.table.tools, self.call.step.offers
        if not self.tool or decided is None or offers is None or decided.digest != offers.digest:
            return None
        return decided if decided.shortened else None


class Player:
    """Plays one session under the policies of its branches; ``brought`` says, by handles, which pages a reply held."""

    def __init__(self, prepared: Prepared, policy_of: PolicyOf, models: Models, watch: Watch | None = None) -> None:
        self._prepared = prepared
        self._dialect = prepared.dialect
        self._policy_of = policy_of
        self._watch = watch
        self._models = models
        self._session = Session(prepared.recording.name, prepared.recording.tenant)
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
            schemas=tally.schemas,
        )

    def _play(self, call: Call, needs: Sequence[Need]) -> None:
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
        turn = Turn(call, table, self._terms(call, table, by_marks=by_marks))
        self._decide(turn)
        prompt = self._fitting(turn)
        if step.answered:
            answered = self._page_in(turn, prompt, needs)
            usage = self._charge(call, answered, step.output, turn)
            size = round(usage.input * BYTES_A_TOKEN) if answered is prompt else 0
            table.learn_usage(usage, size, call.number)
        table.catch_up()

    def _table(self, call: Call) -> Table:
        """The page table of a call's branch; a new one for its first call."""
        step, tables = call.step, self._session.tables
        if step.branch not in tables:
            self._open_branches(step.branch)
            dialect = self._dialect.name
            self._tables.open_branch(self._session, step.branch, step.parent, dialect, step.fork_call)
            tables[step.branch].read = self._prepared.read
            tables[step.branch].yardstick.fixed = True  # the provider that is played counts as we do
            self._sent[step.branch] = _Sent()
        return tables[step.branch]

    def _open_branches(self, number: int) -> None:
        """Have a branch of this number, which tells what it has in common with others."""
        branches, families = self._session.branches, self._prepared.recording.families
        for at in range(len(branches), number + 1):
            branches.append(Branch(at, "", b"", families.get(at, b"")))

    def _terms(self, call: Call, table: Table, *, by_marks: bool) -> Terms:
        """What a call is planned under; where nothing is marked, the provider that is played caches any prefix."""
        step, models = call.step, self._models
        model, prices = models.find(step.model), self._prepared.prices(call, models)
        return Terms(
            prices if models.fixed else table.evidence.believed(prices),
            model.window,
            reserve_of(model, step.reserve, model.window),
            model.binds_thinking,
            cacheable=models.cache(step.model).minimum,
            experience=self._prepared.recording.experience,
            harness=self._prepared.recording.harness,
            grace=self._prepared.grace,
            by_marks=by_marks,
        )

    def _charge(self, call: Call, prompt: Prompt, output: int, turn: Turn | None = None) -> Tokens:
        """Charge one request; what the provider reports of it."""
        step, models = call.step, self._models
        if turn is not None and turn.terms.by_marks:
            prices, marks = models.prices(step.model), _marks(turn.table, prompt)
        else:
            prices, marks = self._prepared.prices(call, models), None
        charged = self.bill.charge(prompt, step.at, output, prices, marks)
        return Tokens(charged.input, charged.cached, output=output, tells_cached=True)

    # ---- what is sent short, and what is evicted

    def _decide(self, turn: Turn) -> None:
        """Decide on the tools and ask the policy, where the request can carry the tool; as it is done live."""
        table, names = turn.table, turn.call.step.tools
        if names is None:
            return
        turn.full = False
        self._decide_tools(turn, names)
        if self._watch:
            self._watch(planner.view(table, turn.outside, turn.terms))
        policy = self._policy_of(turn.call.step.branch)
        plan = planner.propose(policy, table, turn.outside, turn.terms)
        self.tally.rejected += bool(plan.rejected)
        table.set_marks(ends=False, anchors=plan.anchors, legs=turn.terms.by_marks)
        plan = plan if plan.pages else planner.unasked(table, names)
        if plan.cause:
            self._repack(turn, plan)

    def _decide_tools(self, turn: Turn, names: Collection[str]) -> None:
        step = turn.call.step
        if step.offers is None:
            return
        where = (step.branch, turn.call.number, step.attempt)
        decided = settle_tools.settle(self._session, where, step.offers, names, turn.terms, self._prepared.tools)
        if decided is not None:
            self.tally.tools.append(decided.event)

    def _repack(self, turn: Turn, plan: Plan) -> None:
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

    def _fitting(self, turn: Turn) -> Prompt:
        """The prompt as it goes out; where it would not fit the window, pages go until it does."""
        prompt, terms = self._prompt(turn), turn.terms
        if prompt.tokens * turn.scale <= terms.window:
            return prompt
        room = (terms.window - terms.reserve) * ROOM
        plan = planner.rescue(turn.table, turn.outside, terms, round(prompt.tokens - room))
        if not plan.pages:
            return prompt
        turn.full = False
        self._repack(turn, plan)
        return self._prompt(turn)

    # ---- what goes out

    def _prompt(self, turn: Turn) -> Prompt:
        """The prompt as it goes out now; what it has in common with the one before is not looked at again."""
        table, step = turn.table, turn.call.step
        if turn.full or not (table.tool or table.changed or table.expanded):
            return turn.call.prompt
        sent, (head, size) = self._sent[step.branch], self._head(turn)
        keep = min(same_slots(sent.slots, table.slots), sent.changed_from) if head == sent.head else 0
        if not keep:
            sent.prompt = Prompt.of([head], [tokens_in(size)])
        items = [self._as_sent(at, table) for at in range(keep, len(table.slots))]
        keys, tokens = [key for key, _ in items], [tokens for _, tokens in items]
        sent.prompt = sent.prompt.grown(keys, tokens, keep + 1)
        sent.head, sent.slots, sent.changed_from = head, list(table.slots), len(table.slots)
        return sent.prompt

    def _head(self, turn: Turn) -> tuple[bytes, int]:
        """What stands outside of the items as it goes out: what it is known by in the bill, and its bytes."""
        tool = definition(self._dialect.name, turn.tool) if turn.tool else b""
        key, size = turn.call.prompt.first + tool, turn.call.step.outside + len(tool)
        return (key + _forms(turn.short), size - turn.short.freed) if turn.short else (key, size)

    def _as_sent(self, at: int, table: Table) -> tuple[bytes, int]:
        """What an item is known by in the bill, and its tokens; stubs make it another one."""
        slot = table.slots[at]
        if at not in table.changed:
            return slot.digest, self._prepared.tokens(slot.digest, self._raw(slot))
        item = self._item(at, table)
        return sha256(item).digest(), item_tokens(item, self._dialect.name)

    def _item(self, at: int, table: Table) -> bytes:
        """An item with its stubs."""
        slot = table.slots[at]
        raw, stubs = self._raw(slot), {page.key: page.stub for page in slot.pages if page.stub}
        return stubbed(raw, self._dialect.sites(raw), stubs) if stubs else raw

    # ---- what is asked for

    def _page_in(self, turn: Turn, prompt: Prompt, needs: Sequence[Need]) -> Prompt:
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
            text_of, room = partial(self._text, table), self._room(turn, prompt)
            leg, replies = ask(self._dialect, table.tool, [*wanted, *schemas], text_of, room, rounds)
            table.apply(_finished(turn, rounds, usage, replies.pages), leg)
            items = self._dialect.appended(leg)
            tokens = [item_tokens(raw, self._dialect.name) for raw in items]
            prompt = prompt.grown([sha256(raw).digest() for raw in items], tokens)
            self.brought |= {handle_of(text.encode()): replies.pages for text in replies.texts}
            brought.update(replies.pages)
            (wanted, calls), schemas = self._missing(table, needs, brought), self._unknown(turn, brought)
        return prompt

    def _unknown(self, turn: Turn, brought: Collection[str]) -> list[str]:
        """The handles of the tools that the answer calls and whose parameters the prompt names nowhere."""
        short = turn.short.shortened if turn.short else {}
        called = [short[name] for name in dict.fromkeys(turn.call.step.called) if name in short]
        deferred = [one for one in called if one.form == "deferred" and one.handle not in brought]
        return [one.handle for one in deferred if not self._names_parameters(turn.table, one)]

    def _names_parameters(self, table: Table, tool: Sent) -> bool:
        """Whether the prompt names a tool and all its parameters, in an earlier call or since it was asked for."""
        left = _names(tool)
        for at in range(len(table.slots)):
            blocks = self._dialect.decode(self._item(at, table)).blocks
            text = "\n".join(part for block in blocks for part in (block.name, block.text))
            left = [name for name in left if name not in text]
            if not left:
                return True
        return False

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

    def _room(self, turn: Turn, prompt: Prompt) -> int:
        """How many characters of pages still fit the model's window."""
        left = turn.terms.window - turn.terms.reserve - prompt.tokens
        return max(SMALLEST_REPLY, round(left * BYTES_A_TOKEN * ROOM))

    def _text(self, table: Table, handle: str) -> str | None:
        if handle in table.schemas:
            return bytes(table.schemas[handle].whole).decode()
        source = table.shown[handle]
        return text_at(self._dialect, self._blobs[source.message], source.key)


def _marks(table: Table, prompt: Prompt) -> Marks:
    """The marks of a request as it goes out; hidden legs behind the table's slots end at one of their own."""
    ends = {slots + 1: asked for slots, asked in table.sent_marks().items()}
    parts = len(prompt.keys)
    if parts > len(table.slots) + 1:
        ends[parts] = table.anchor_lifetime(parts)
    return Marks(ends, lambda part: table.positions(part - 1) if part else 1)


def _finished(turn: Turn, rounds: int, usage: Tokens, brought: Sequence[str]) -> LegFinished:
    """What would be logged of a leg in which the model asked for pages, but for the leg itself."""
    call, known = turn.call, turn.table.schemas
    where = (call.step.branch, call.number, call.step.attempt)
    pages, schemas = [one for one in brought if one not in known], [known[one].name for one in brought if one in known]
    return LegFinished(*where, leg=rounds, said="", body="", size=0, usage=usage, pages=pages, schemas=schemas)


@lru_cache(64)
def _forms(decided: Toolset) -> bytes:
    """What tells the tools as they are sent from the same ones in other forms."""
    forms = sorted(f"{one.handle} {one.form}" for one in decided.shortened.values())
    return sha256("\n".join(forms).encode()).digest()


def _names(tool: Sent) -> list[str]:
    """A tool's name, and the names of its parameters as they stand in JSON."""
    schema = tool.schema
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return [tool.name, *(f'"{name}"' for name in properties or ())]


def _is_new_result(table: Table, page: Page) -> bool:
    """Whether a page is a result that the client has sent with the latest call."""
    return page.born == table.call and page.kind == "result" and table.slots[page.slot].item >= 0


def _unseen(need: Need, stubs: str) -> bool:
    return any(sign not in stubs for sign in need.signs)
