"""Reads from the model server's own log what each request made it compute."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PROMPT = re.compile(r"prompt eval time =\s*([\d.]+) ms /\s*(\d+) tokens")
_ANSWER = re.compile(r"(?<!prompt )eval time =\s*([\d.]+) ms /\s*(\d+) runs")


@dataclass(frozen=True, slots=True)
class ServerWork:
    """What the model computed: tokens of prompts that were not in its cache, tokens of answers, and their seconds."""

    requests: int = 0
    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    answer_tokens: int = 0
    answer_seconds: float = 0.0

    def __add__(self, other: "ServerWork") -> "ServerWork":
        return ServerWork(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.prompt_seconds + other.prompt_seconds,
            self.answer_tokens + other.answer_tokens,
            self.answer_seconds + other.answer_seconds,
        )


def work(log: str) -> ServerWork:
    """What the log tells, all requests together; a request that was refused computed nothing and is not counted."""
    return sum(_requests(log), ServerWork())


def _requests(log: str) -> Iterator[ServerWork]:
    for prompt, answer in zip(_PROMPT.finditer(log), _ANSWER.finditer(log), strict=True):
        yield ServerWork(1, int(prompt[2]), float(prompt[1]) / 1e3, int(answer[2]), float(answer[1]) / 1e3)
