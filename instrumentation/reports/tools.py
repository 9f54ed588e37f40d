"""Writes the account of tools down: in words and columns for people, as plain values for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from instrumentation.accounting.tool_use import ToolAccount, ToolsAccount
from instrumentation.reports.labels import FORMS
from instrumentation.reports.table import clipped, columns, counted, percent, table

HEAD = ("tool", "form", "full", "sent", "calls", "faults", "invalid", "passed on", "why")
LEFT = (0, 1, 8)
WHY = 80
NAME = 48


def as_text(account: ToolsAccount, *, width: int = 0, color: bool = False) -> str:
    """What all tools took and how calls went, then a line for each tool."""
    rows = [_cells(tool) for tool in ordered(account)]
    lines = [*columns(list(_facts(account)), left={0, 1}, width=width), ""]
    lines += [*table(HEAD, rows, LEFT, width, color=color), "", *_notes(account)]
    return "\n".join(lines) + "\n"


def ordered(account: ToolsAccount) -> list[ToolAccount]:
    """The tools, those that are called most first, then those that take most as the client offers them."""
    return sorted(account.tools.values(), key=lambda one: (-one.calls, -one.offered, one.name))


def _facts(account: ToolsAccount) -> Iterator[tuple[str, str]]:
    calls, prompts = len(account.calls), account.prompts
    yield "sessions", f"{account.sessions:,}, with {calls:,} calls with a decision on tools, in {prompts:,} prompts"
    offered = [one for one in account.tools.values() if one.sessions]
    called = sum(bool(one.called_in) for one in offered)
    yield "tools", f"{len(offered):,} offered: {called:,} called, {len(offered) - called:,} never"
    yield "tokens", _tokens(account)
    if account.in_full:
        yield "in full", f"{account.in_full:,} of these prompts had all tools in full, as they could not be changed"
    short = account.sum("short_calls")
    parts = (
        f"{account.sum('at_once'):,} at once, {account.sum('after_fault'):,} after the model had seen the full tool, "
        f"{account.sum('passed_on'):,} that did not fit and were passed on"
    )
    yield "calls", f"{account.sum('calls'):,}, {short:,} of them of tools that were sent short: {parts}"
    yield (
        "faults",
        f"{account.sum('faults'):,} schemas asked for, {account.sum('invalid'):,} calls caught that did not fit",
    )


def _tokens(account: ToolsAccount) -> str:
    """What tools take in a prompt, as offered and as sent."""
    if not account.prompts:
        return "no prompt with these tools was answered"
    sent = account.sent
    by_form = ", ".join(f"{_each(tokens, account.prompts)} {FORMS[form]}" for form, tokens in sent._asdict().items())
    saved = (account.offered - sent.total) / max(1, account.offered)
    became = (
        f"{_each(account.offered, account.prompts)} in a prompt became {_each(sent.total, account.prompts)} ({by_form})"
    )
    return f"{became}: {percent(saved)} less, {account.offered - sent.total:,} in all"


def _each(tokens: int, prompts: int) -> str:
    return f"{tokens / max(1, prompts):,.0f}"


def forms(tool: ToolAccount) -> list[str]:
    """The forms that a tool was sent in, the most frequent first."""
    counts = tool.prompts._asdict()
    return sorted((form for form in counts if counts[form]), key=lambda form: -counts[form])


def _cells(tool: ToolAccount) -> tuple[str, ...]:
    prompts = tool.prompts.total
    counts = (tool.calls, tool.faults, tool.invalid, tool.passed_on)
    tokens = (_each(tool.offered, prompts), _each(tool.sent.total, prompts))
    form = ", ".join(FORMS[form] for form in forms(tool)) or "none"
    return (clipped(tool.name, NAME), form, *tokens, *(f"{one:,}" for one in counts), clipped(tool.reason, WHY))


def _notes(account: ToolsAccount) -> Iterator[str]:
    yield "Tokens are our own count, of each tool in a prompt; page_in, which ctxpager adds, is not among the tools."
    for count, words in (
        (
            account.undecided,
            f"{counted(account.undecided, 'answered call')} without a decision on tools, by then or at all",
        ),
        (account.without, f"{counted(account.without, 'session')} without a decision on tools"),
    ):
        if count:
            yield f"Left out: {words}."


def as_json(account: ToolsAccount) -> dict[str, Any]:
    """The account as plain values, with every call."""
    counts = ("calls", "short_calls", "at_once", "after_fault", "passed_on", "faults", "invalid")
    return {
        "sessions": account.sessions,
        "sessions_without": account.without,
        "decisions": account.decisions,
        "undecided_calls": account.undecided,
        "prompts": account.prompts,
        "prompts_in_full": account.in_full,
        "tokens": {"offered": account.offered, "sent": account.sent.total, **account.sent._asdict()},
        "tool_calls": {name: account.sum(name) for name in counts},
        "never_called": [one.name for one in ordered(account) if one.sessions and not one.called_in],
        "tools": as_rows(account),
        "calls": [{**asdict(one), "sent": one.sent._asdict()} for one in account.calls],
    }


def as_rows(account: ToolsAccount) -> list[dict[str, Any]]:
    """One row for each tool."""
    return [_tool(one) for one in ordered(account)]


def _tool(tool: ToolAccount) -> dict[str, Any]:
    return {
        **asdict(tool),
        "prompts": tool.prompts._asdict(),
        "sent": tool.sent._asdict(),
        "form": ", ".join(forms(tool)) or "none",
    }
