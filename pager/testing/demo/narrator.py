"""Describes a session in words, from its log, while it runs."""

from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from pager.log.events import CallReceived, LegFinished, Repacked
from pager.log.store import Store
from pager.testing.demo.session import DemoTurn

_INDENT = 10  # columns left of the text
_MANY = 5  # results that leave together are reported at once; fewer are added up until the end of the turn


@dataclass(slots=True)
class Narrator:
    """Reads what a log has new, and prints what a reader should know of it."""

    store: Store
    console: Console
    _seen: int = 0
    _call: int = 0
    _left: int = 0
    _stubs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen = max((stored.seq for stored in self.store.events()), default=0)

    def asked(self, turn: DemoTurn) -> None:
        """The user speaks, after a pause."""
        if turn.is_break:
            self.console.print()
            self._say("coffee", f"{turn.pause:.0f} minutes. {turn.kept}", "yellow")
        self._say("user", turn.text)

    def catch_up(self) -> None:
        """Tell of what was logged since the last time."""
        for stored in self.store.events(after=self._seen):
            self._seen = stored.seq
            match stored.event:
                case CallReceived():
                    self._call += 1
                case Repacked() as repacked if repacked.pages:
                    self._leave(repacked)
                case LegFinished() as leg if leg.pages:
                    self._come_back(leg)

    def answered(self, words: str) -> None:
        """The model is done with what the user asked for."""
        if self._left:
            self._say("", f"{self._left} more results leave, one or two at a time, each as soon as that pays.", "bold")
        self._left = 0
        self._say("agent", words)

    def _leave(self, repacked: Repacked) -> None:
        first = not self._stubs
        self._stubs.update((page.page.partition("#")[0], page.stub) for page in repacked.pages)
        if len(repacked.pages) < _MANY:
            self._left += len(repacked.pages)
            return
        words = f"{len(repacked.pages)} old results leave the prompt: {repacked.saved:,} tokens less in every call."
        self._say(f"call {self._call}", words, "bold")
        if first:
            self._say("", "In place of the first of them the model sees this:")
            self._say("", repacked.pages[0].stub, "cyan")

    def _come_back(self, leg: LegFinished) -> None:
        self._say(
            f"call {self._call}", "The model asks for one back and gets it; the agent sees nothing of it:", "bold"
        )
        for handle in leg.pages:
            self._say("", self._stubs.get(handle, handle), "cyan")

    def _say(self, who: str, words: str, style: str = "") -> None:
        """One paragraph, with who or what it is about at its left."""
        lines = Text(words).wrap(self.console, max(20, self.console.width - _INDENT))
        for at, line in enumerate(lines):
            line.rstrip()
            line.stylize(style)
            self.console.print(Text(f"{who if at == 0 else '':<{_INDENT}}", "dim") + line, soft_wrap=True)
