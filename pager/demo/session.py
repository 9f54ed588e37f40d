"""The sample session: what the scripted model says, and the small agent that does what it is told."""

import json
from typing import TYPE_CHECKING, Any

from pager.demo.project import BUG, FIRST_TRY, FIXED, Project
from pager.scripted import Call, Say, Script

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletionMessage

MODEL = "gpt-5.5"
SYSTEM = (
    "You are a careful programmer at work in a small code base. Look before you change anything: list the files, read "
    "what matters, run the tests. Make the smallest change that solves the task, run the tests again, and say in the "
    "end what was wrong and what you changed. Use one tool call at a time unless calls do not depend on each other."
)
TASK = "A boat that came in the evening and left the next morning was billed no night at all. Find out why and fix it."

SCRIPT = Script(
    [
        Say("I'll look around first.", [Call("list_files")]),
        Say(
            "Billing and its tests, both at once.",
            [
                Call("read_file", {"path": "harbour/billing.py"}),
                Call("read_file", {"path": "tests/test_billing.py"}),
            ],
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
            "none. It now counts the midnights between arrival and departure, and at least one. All ten tests pass."
        ),
    ]
)


def _tool(name: str, words: str, **parameters: str) -> dict[str, Any]:
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


async def play(client: "AsyncOpenAI", project: Project) -> str:
    """Let the agent work until the model calls no more tools; its last words."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    while True:
        said = await _ask(client, messages)
        messages.append(said.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        if not said.tool_calls:
            return said.content or ""
        messages += [_result(project, call) for call in said.tool_calls]


async def _ask(client: "AsyncOpenAI", messages: list[Any]) -> "ChatCompletionMessage":
    request: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": TOOLS}
    async with client.chat.completions.stream(**request, stream_options={"include_usage": True}) as stream:
        return (await stream.get_final_completion()).choices[0].message


def _result(project: Project, call: Any) -> dict[str, Any]:  # noqa: ANN401 - the client's union of calls
    said = project.use(call.function.name, json.loads(call.function.arguments))
    return {"role": "tool", "tool_call_id": call.id, "content": said}
