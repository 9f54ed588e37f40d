"""Makes problems out of a recording: one for each line of calls that continue each other.

Only evictions are chosen here. Tools are sent in the forms that were decided on, as in every play, and nobody asks for
the rest of one.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from benchmarks.optimum.problem import (
    Problem,
    ProblemCall,
    ProblemNeed,
    ProblemPage,
)
from benchmarks.optimum.views import (
    Moment,
    PageSize,
    Recorder,
    problem_from,
)
from instrumentation.accounting.billing import (
    REMEMBERED,
    Bill,
    Prompt,
    tokens_in,
)
from instrumentation.accounting.item_sizes import item_tokens
from instrumentation.replay.page_needs import Need as Seen
from instrumentation.replay.paged_prompts import head_as_sent
from instrumentation.replay.player import PlayedCall, Player
from instrumentation.replay.prepared_recording import Prepared
from instrumentation.replay.prepared_recording import PreparedCall as Sent
from pager.log.events import Evicted
from pager.paging.pages.duplicates import handle_in
from pager.paging.pages.page_table import common_length
from pager.paging.policy import Decision, View
from pager.pricing.rates import Models
from pager.wire.page_spans import stubbed

SIGN = 1
"""Tokens of a page of no content, at the very beginning of a prompt whose tools are short: see ``_with_the_tool``."""


class _All:
    """A policy that lets everything go that may: so every page gets its stub."""

    def choose(self, view: View) -> Decision:
        return Decision(tuple(page.handle for page in view.pages if page.evictable), None, "everything")


class _Nothing:
    """A policy that lets nothing go."""

    def choose(self, view: View) -> Decision:
        return Decision(reason=f"nothing goes at call {view.call}")


class _Untouched(Player):
    """Plays a session from which nothing goes; ``sent`` are all calls, with their tools as they were sent.

    ``short`` are the branches whose tools were sent short.
    """

    def __init__(self, prepared: Prepared, models: Models, recorder: Recorder) -> None:
        super().__init__(prepared, lambda _: _Nothing(), models, recorder.see)
        self.sent: list[Sent] = []
        self.short: set[int] = set()

    def _play(self, call: Sent, needs: Sequence[Seen]) -> None:
        self.sent.append(call)
        super()._play(call, needs)

    def _fitting(self, turn: PlayedCall) -> Prompt:
        if turn.short:
            self.short.add(turn.call.step.branch)
            head, size = head_as_sent(turn.dialect, turn.call, turn.table)
            self.sent[-1] = turn.call._replace(prompt=_behind(head, tokens_in(size) + SIGN, turn.call.prompt))
        return super()._fitting(turn)

    def _unknown(self, turn: PlayedCall, brought: Collection[str]) -> list[str]:  # noqa: ARG002
        return []


def _behind(head: bytes, tokens: int, prompt: Prompt) -> Prompt:
    """The prompt with another beginning, of so many tokens, before its items."""
    longer = tokens - prompt.ends[0]
    return Prompt([head, *prompt.keys[1:]], [end + longer for end in prompt.ends])


def unpaged(prepared: Prepared, models: Models) -> float:
    """What a session costs if nothing is evicted from it."""
    if not prepared.shortens:
        return prepared.unpaged(models).cost
    player, bill = _Untouched(prepared, models, Recorder()), Bill()
    player.play()
    for call in player.sent:
        if call.step.answered:
            bill.charge(call.prompt, call.step.at, call.step.output, prepared.prices(call, models))
    return bill.charged.cost


def problems(prepared: Prepared, models: Models) -> list[Problem]:
    """The problems of a session, in the tokens that it is charged by.

    A branch that begins where another ends goes on with that one's prompt, and is one problem with it: that is what a
    compaction looks like. Any other branch is a problem of its own. What its parent has let go before it began would
    be gone for it, too; so its first call is taken to be cold, and everything may go then for free.
    """
    stubs = _stubs(prepared, models)
    sizes = {content: _size(prepared, gone) for content, gone in stubs.items()}
    recorder = Recorder()
    player = _Untouched(prepared, models, recorder)
    player.play()
    line_of, views = _lines(prepared), iter(recorder.views)
    lines: dict[int, list[Moment]] = defaultdict(list)
    recent: dict[int, list[Sent]] = defaultdict(list)
    for call, needs in zip(player.sent, prepared.needs, strict=True):
        if not call.items or call.step.tools is None:  # no policy was asked
            continue
        view, at = next(views), line_of[call.step.branch]
        if call.step.answered:
            charged = _charged(call, recent[at], view.prices.ttl_seconds)
            lines[at].append(Moment(view, charged, unsaid(len(lines[at]) + 1, needs, stubs)))
            recent[at] = [*recent[at][1 - REMEMBERED :], call]
    made = {at: problem_from(line, sizes) for at, line in lines.items()}
    short = {line_of[branch] for branch in player.short}
    return [_with_the_tool(problem) if at in short else problem for at, problem in made.items()]


def _with_the_tool(problem: Problem) -> Problem:
    """The problem of a prompt that has the tool from its first call on, as short tools are sent with it.

    The tool comes with the first page that goes. So there is a page more than there was, which may go at once, when
    everything is written anyway, and costs something as long as it does not.
    """
    sign = ProblemPage("", SIGN, 0, before=0, first=1, free=1, until=problem.end)
    return replace(problem, pages=[sign, *problem.pages], tool=0)


def _stubs(prepared: Prepared, models: Models) -> dict[str, Evicted]:
    """The stub of every content, in the client's own item where it stands in one."""
    player = Player(prepared, lambda _: _All(), models)
    player.play()
    every = [gone for repacked in player.tally.repacked for gone in repacked.pages]
    every.sort(key=lambda gone: bytes.fromhex(gone.message) in prepared.blobs)
    return {handle_in(gone.page): gone for gone in every}


def _size(prepared: Prepared, gone: Evicted) -> PageSize:
    """What is charged for a page and for its stub, by the bytes of the item with the one and the other."""
    raw = prepared.blobs.get(bytes.fromhex(gone.message), b"")
    stub = tokens_in(len(gone.stub.encode()))
    without = stubbed(raw, prepared.dialect.page_spans(raw), {gone.key: gone.stub}) if raw else b""
    with_page, with_stub = (item_tokens(item, prepared.dialect.name) for item in (raw, without))
    return PageSize(with_page - with_stub + stub, stub)


def unsaid(number: int, needs: Sequence[Seen], stubs: Mapping[str, Evicted]) -> list[ProblemNeed]:
    """What the answer needs that the stubs do not say."""
    found = []
    for need in needs:
        told = "\n".join(stubs[content].stub for content in need.shown if content in stubs)
        if any(sign not in told for sign in need.signs):
            found.append(ProblemNeed(number, need.asked, need.shown))
    return found


def _charged(call: Sent, recent: Sequence[Sent], ttl: float) -> ProblemCall:
    """A call as a provider sees it after those before, of which it remembers as many as a bill does."""
    output = call.step.output
    if not recent:
        return ProblemCall(call.prompt.tokens, 0, cold=True, output=output)
    same = max(common_length(before.prompt.keys, call.prompt.keys) for before in recent)
    kept = call.prompt.ends[same - 1] if same else 0
    return ProblemCall(call.prompt.tokens, kept, cold=call.step.at - recent[-1].step.at > ttl, output=output)


def _lines(prepared: Prepared) -> dict[int, int]:
    """The line of each branch: its parent's, if that has ended and goes on in no other branch; else its own."""
    steps = prepared.recording.steps
    last = {step.branch: at for at, step in enumerate(steps)}
    lines: dict[int, int] = {}
    continued: set[int] = set()
    for at, step in enumerate(steps):
        if step.branch in lines:
            continue
        parent = step.parent
        if parent is None or parent not in lines or last[parent] > at or parent in continued:
            lines[step.branch] = step.branch
        else:
            lines[step.branch] = lines[parent]
            continued.add(parent)
    return lines
