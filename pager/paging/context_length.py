"""Recognises the provider's error for a prompt that does not fit the model's window.

There is no common form: some providers have a code for it, most have a sentence, with or without numbers. Only what an
error says of itself is looked at, never parts of the request that it repeats. Wording is compared without regard to
case, and apart from numbers: one provider's limit is in another's sentence.

An overflow is what evicting can mend. A body with too many bytes is one, too. A rate limit, a bill, or a limit on the
answer alone is none, even where the message advises a shorter prompt.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

LONGEST = 20_000
"""Characters of an error that are looked at."""

# 500 is that of local servers; 200 an error inside a stream that has begun.
_STATUSES = frozenset({200, 400, 413, 422, 500})

# Where errors say what they say; anything else may be a copy of the request.
_TOLD = {"code", "detail", "details", "error", "errorMessage", "error_message", "errors", "message", "metadata", "msg"}
_TOLD |= {"__type", "n_ctx", "n_prompt_tokens", "raw", "reason", "response", "title", "type"}


_NUMBER = r"(\d[\d,]*+)(?!\s*(?:[kmg]i?b\b|bytes?\b))"  # of tokens, not of bytes


def _any(*forms: str) -> re.Pattern[str]:
    """A pattern for any of these forms; # is a number."""
    return re.compile("|".join(forms).replace("#", _NUMBER), re.IGNORECASE)


_NOT_THE_WINDOW = _any(
    r"rate.?limit",
    r"tokens per (?:min|hour|day)",
    r"per.minute",
    r"\bTPM\b",
    r"throttl",
    r"too many requests",
    r"quota",
    r"billing",
    r"credit balance",
    r"insufficient.{0,20}(?:balance|funds|credit)",
    r"overloaded",
)

# Behind each: whose error it is, from public issues of agents and servers from 2023 to 2026.
_OVERFLOW = _any(
    r"context_(?:length|window)_exceeded",  # OpenAI, Azure, Groq, OpenRouter
    r"exceed_context_size_error",  # llama.cpp
    r"model_max_prompt_tokens_exceeded",  # GitHub Copilot
    r"request_too_large",  # Anthropic, for more than 32 MB
    r"string value length .{0,30}exceeds",  # DashScope, for more than 20 MB in one text
    r"(?:maximum|model) context length",  # OpenAI, DeepSeek, vLLM, SGLang, OpenRouter, Fireworks, Mistral
    r"maximum prompt length",  # xAI
    r"prompt (?:is )?too long",  # Anthropic, Bedrock, Fireworks, Ollama, oMLX
    r"exceed context limit",  # Anthropic, for the prompt and max_tokens together
    r"exceed(?:s|ed)? (?:the |this |model |model's |max |maximum |available )*+context (?:window|size|length)",  # many
    r"context (?:window|size|length) (?:is |was )?exceed",  # MiniMax
    r"input token count .{0,40}(?:exceeds|only supports)",  # Gemini, Vertex
    r"input tokens exceed",  # OpenAI, Azure
    r"input is too long",  # Bedrock
    r"input length .{0,30}exceeds",  # SGLang, Poolside, Ollama
    r"is longer than the (?:model|maximum)",  # SGLang, vLLM
    r"too long to fit into the model",  # vLLM
    r"too large for model with",  # Mistral
    r"exceeded model token limit",  # Kimi
    r"prompt token count of \d+ exceeds",  # GitHub Copilot
    r"reduce (?:the length of the (?:messages|input|prompt)|your prompt)",  # OpenAI, Groq, Cerebras
    r"range of input length should be",  # DashScope
    r"prompt exceeds max(?:imum)? length",  # GLM
    r"greater than the context length",  # LM Studio
    r"when context the overflows",  # LM Studio
    r"tokens \+ `?max_new_tokens`? must be",  # text-generation-inference
    r"too many tokens: total",  # Cohere
)

_LIMIT = _any(
    r"(?:context|prompt|allowed|allowed input|model) length(?: is| of(?: only)?|:)? \(?#",
    r"> #",
    r"\b# maximum",
    r"tokens allowed \(?#",
    r"supports up to #",
    r"limit(?: is| of|:) #(?! ?\+)",
    r"context (?:size|window)(?: of)? \(?#",
    r"\[\d+, ?#\]",
    r"must be <= #",
    r"cannot exceed #",
    r"n_ctx: #",
)
_TOTAL = _any(r"requested (?:a total of )?(?:about )?# tokens", r"for a total of (?:at least )?#")
_PROMPT = _any(
    r"resulted in # tokens",
    r"too long: #",
    r"limit: # \+",
    r"token count (?:of |is |\()#",
    r"input (?:length )?\(?# ?(?:tokens|\)|exceeds)",
    r"contains # tokens",
    r"has # input tokens",
    r"requested: #",
    r"current length is #",
    r"keep the first #",
    r"given: #",
    r"received #",
    r"\((?:total )?length #\)",
    r"tokens \(#\) exceed",
    r"request \(# tokens\)",
    r"(?:n_prompt_tokens|n_keep): #",
)
_RESERVED = _any(
    r"# (?:tokens )?(?:in|for) the (?:completion|output)",
    r"requested # output tokens",
    r"\+ # >",
    r"plus # ",
    r"and # `?max_new_tokens",
    r"is too large: #",
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """The window that upstream named for a prompt that does not fit; 0 where it did not.

    ``tokens`` is what the request would take: the prompt and, where upstream counts it, what is ``reserved`` for the
    answer. It is more than ``limit`` by what has to go.
    """

    limit: int = 0
    tokens: int = 0
    reserved: int = 0


def overflow(status: int, body: bytes) -> Overflow | None:
    """What an error says of the window, or None if it is about anything else.

    ``body`` is the body of the response; of an error inside a stream, status 200, it is the event or its message alone.
    Every 413 that is no rate limit counts, whatever it says: the body is too large for someone on the way.
    """
    if status not in _STATUSES:
        return None
    message = "\n".join(_said(body))[:LONGEST]
    if _NOT_THE_WINDOW.search(message):
        return None
    if status != 413 and not _OVERFLOW.search(message):
        return None
    reserved = _first(_RESERVED, message)
    prompt = _first(_PROMPT, message)
    return Overflow(_first(_LIMIT, message), _first(_TOTAL, message) or (prompt and prompt + reserved), reserved)


def _first(pattern: re.Pattern[str], message: str) -> int:
    found = pattern.search(message)
    return int(found[found.lastindex or 0].replace(",", "")) if found else 0


def _said(body: bytes) -> Iterator[str]:
    """What the error says, with the errors that are written inside of its texts."""
    left: list[tuple[str, object]] = [("", body.decode("utf-8", "replace"))]
    while left:
        name, value = left.pop()
        if isinstance(value, str):
            inner = _decoded(value)
            if inner is None:
                yield value
            else:
                left.append(("", inner))
        elif isinstance(value, dict):
            left.extend((key, one) for key, one in reversed(value.items()) if key in _TOLD)
        elif isinstance(value, list):
            left.extend(("", one) for one in reversed(value))
        elif name:
            yield f"{name}: {value}"


def _decoded(text: str) -> object:
    """The object or list that a text holds, as an event of a stream or alone; None for any other text."""
    start = text.strip()
    if start.startswith(("data:", "event:")):
        start = start[start.find("data:") + 5 :].strip()
    if not start.startswith(("{", "[")):
        return None
    try:
        return orjson.loads(start)
    except orjson.JSONDecodeError:
        return None
