"""The sample session: what the user asks for, what the scripted model answers, and the small agent between them.

The agent speaks OpenAI's Chat Completions. Of all providers' caches the one behind that is the easiest to follow: it
keeps every prompt by itself, for half an hour after its last use.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pager.errors import PagerError
from pager.testing.demo.project import BUG, FIRST_TRY, FIXED, Project
from pager.testing.demo.services import SERVICES, Service
from pager.testing.scripted import Call, PageIn, Say, Script
from pager.testing.scripted.prompt_cache import HALF_AN_HOUR

if TYPE_CHECKING:
    from aiohttp import ClientSession

MODEL = "gpt-5.6"
SECONDS_A_CALL = 20.0
"""How long the model and a tool take together, by the clock of the session."""

SYSTEM = (
    "You are a careful programmer at work in a small code base. Look before you change anything: list the files, read "
    "what matters, run the tests. Make the smallest change that solves the task, run the tests again, and say in the "
    "end what was wrong and what you changed. Use one tool call at a time unless calls do not depend on each other."
)

Json = dict[str, Any]
Answer = Say | PageIn


class DemoTurn(NamedTuple):
    """What the user says after a pause of some minutes, and what the model answers, call by call."""

    text: str
    answers: Sequence[Answer]
    pause: float = 0.0

    @property
    def is_break(self) -> bool:
        """Whether the pause is longer than the provider keeps the prompt in its cache."""
        return 60 * self.pause > HALF_AN_HOUR

    @property
    def kept(self) -> str:
        """What the pause does to the provider's cache, in words."""
        return f"The provider keeps an idle prompt for {HALF_AN_HOUR / 60:.0f}: its cache is empty now."


def _fix() -> list[Answer]:
    return [
        Say("The rules of the harbour first.", [Call("read_file", {"path": "docs/rules.md"})]),
        Say("I'll look around.", [Call("list_files")]),
        Say(
            "Billing and its tests, both at once.",
            [Call("read_file", {"path": "harbour/billing.py"}), Call("read_file", {"path": "tests/test_billing.py"})],
        ),
        Say("Now the tests, to see the fault for myself.", [Call("run_tests")]),
        Say(
            "The berth line uses `nights`. Where is it defined, and who else uses it?",
            [Call("grep", {"pattern": "nights"})],
        ),
        Say(calls=[Call("read_file", {"path": "harbour/stays.py"})]),
        Say("The price per night may play a part, too.", [Call("read_file", {"path": "harbour/tariffs.py"})]),
        Say(
            "Tariffs are fine. `nights` counts full days of 24 hours and rounds down; started days should count.",
            [Call("edit_file", {"path": "harbour/stays.py", "old": BUG, "new": FIRST_TRY})],
        ),
        Say(calls=[Call("run_tests")]),
        Say(
            "Better, but a late departure now costs a further night. Once more the code.",
            [Call("read_file", {"path": "harbour/stays.py"})],
        ),
        Say(
            "A night is a change of date, not a length of time.",
            [Call("edit_file", {"path": "harbour/stays.py", "old": FIRST_TRY, "new": FIXED})],
        ),
        Say(calls=[Call("run_tests")]),
        Say(
            "Fixed. `nights` in harbour/stays.py counted full days of 24 hours, so a stay from evening to morning was "
            "none. It now counts the midnights between arrival and departure, and at least one. All tests pass."
        ),
    ]


def _moved(services: Sequence[Service]) -> list[Answer]:
    """Read, change and test one service after the other."""
    steps: list[Answer] = []
    for service in services:
        change = {"path": service.path, "old": service.in_floats, "new": service.in_decimals}
        steps += [
            Say(f"Next: {service.name}.", [Call("read_file", {"path": service.path})]),
            Say(f"A price per {service.unit} as a float.", [Call("edit_file", change)]),
            Say(calls=[Call("run_tests")]),
        ]
    names = ", ".join(service.name for service in services)
    return [*steps, Say(f"Moved to exact decimals, all tests pass: {names}.")]


def _asking_first(answers: list[Answer]) -> list[Answer]:
    """The same answers; before the first of them the model wants to see again what the rules say."""
    return [PageIn(answers[0], search="[Hh]alf a cent"), *answers[1:]]


TURNS = (
    DemoTurn(
        "A boat that came in the evening and left the next morning was billed no night at all. Find out why, fix it.",
        _fix(),
    ),
    DemoTurn(
        "Good. The services still reckon in floats: move them to Decimal, as billing does.", _moved(SERVICES[:12]), 2
    ),
    DemoTurn("I'm back. Go on, and mind what the rules say of rounding.", _asking_first(_moved(SERVICES[12:21])), 40),
    DemoTurn("Back again. The rest, please.", _moved(SERVICES[21:]), 45),
)

SCRIPT = Script([answer for turn in TURNS for answer in turn.answers])


def _tool(name: str, words: str, **parameters: str) -> Json:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": words, "parameters": schema}}


TOOLS = [
    _tool("list_files", "All files of the project with their sizes in bytes."),
    _tool("read_file", "The text of a file, with line numbers.", path="The file's path, as list_files shows it."),
    _tool("grep", "The lines of all files that match a pattern.", pattern="A regular expression."),
    _tool(
        "edit_file",
        "Replace a text that occurs exactly once in a file.",
        path="The file's path.",
        old="The text to replace, word for word.",
        new="The text to put in its place.",
    ),
    _tool("run_tests", "Run all tests and show which fail."),
]


@dataclass(slots=True)
class Clock:
    """The time of the session, in seconds; it moves when it is set."""

    now: float

    def __call__(self) -> float:
        """The time now."""
        return self.now


@dataclass(slots=True)
class DemoAgent:
    """Sends the messages so far, does what the model calls for, and so on until it calls for nothing."""

    http: "ClientSession"
    root: str
    clock: Clock
    headers: Mapping[str, str]
    project: Project = field(default_factory=Project)
    messages: list[Json] = field(default_factory=lambda: [{"role": "system", "content": SYSTEM}])

    async def work(self, text: str, after_call: Callable[[], Awaitable[None]]) -> str:
        """Work on what the user says until the model is done; its last words."""
        self.messages.append({"role": "user", "content": text})
        while True:
            said = await self._ask()
            await after_call()
            self.messages.append(said)
            if "tool_calls" not in said:
                return str(said["content"])
            self.messages += [self._result(call) for call in said["tool_calls"]]

    async def _ask(self) -> Json:
        self.clock.now += SECONDS_A_CALL
        headers = {**self.headers, "user-agent": "demo-agent", "x-pager-now": f"{self.clock.now:.0f}"}
        request = {"model": MODEL, "messages": self.messages, "tools": TOOLS}
        async with self.http.post(f"{self.root}/v1/chat/completions", json=request, headers=headers) as response:
            answer = await response.json()
            if response.status != 200:
                raise PagerError(f"the proxy answered {response.status}: {answer}")
            message = answer["choices"][0]["message"]
            return {key: message[key] for key in ("role", "content", "tool_calls") if key in message}

    def _result(self, call: Mapping[str, Any]) -> Json:
        done = self.project.use(call["function"]["name"], json.loads(call["function"]["arguments"]))
        return {"role": "tool", "tool_call_id": call["id"], "content": done}
