"""Knows where agents keep their logs, and how to point them at the proxy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from instrumentation.analyze.analysis import Found

_CODEX = """in ~/.codex/config.toml:
model_provider = "ctxpager"
[model_providers.ctxpager]
name = "ctxpager"
base_url = "{base}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses\""""
_OPENCODE = """in opencode.json, for a provider with "npm": "@ai-sdk/openai-compatible":
"options": {{"baseURL": "{base}/v1"}}"""
_GOOSE = "OPENAI_HOST={base} OPENAI_BASE_PATH=v1/chat/completions goose"

CLIENTS: Mapping[str, str] = {
    "claude": "ANTHROPIC_BASE_URL={base} ENABLE_TOOL_SEARCH=true claude",
    "codex": _CODEX,
    "opencode": _OPENCODE,
    "qwen": "OPENAI_BASE_URL={base}/v1 qwen --auth-type openai",
    "goose": _GOOSE,
}
"""How clients are pointed at the proxy, by how the names of their harness begin."""

ANY = "base_url = {base}/v1 in any OpenAI client, {base} in any of Anthropic's"


class Usual(NamedTuple):
    """Where logs are mostly found: all places that were looked at, and those that are there."""

    looked: Sequence[Path]
    there: Sequence[Path]


def usual(data_dir: Path, env: Mapping[str, str], home: Path) -> Usual:
    """The places of Claude Code, of Codex and of our own log."""
    claude = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
    codex = Path(env.get("CODEX_HOME") or home / ".codex") / "sessions"
    looked = (claude, codex, data_dir)
    return Usual(looked, [place for place in looked if place.is_dir()])


def starting(sessions: Sequence[Found], base: str) -> list[str]:
    """How to point the clients of these sessions at a proxy, that with most calls first; any, if none is known."""
    calls: dict[str, int] = {}
    for one in sessions:
        client = client_of(one)
        calls[client] = calls.get(client, 0) + one.session.totals.calls
    known = sorted((client for client in calls if client in CLIENTS), key=lambda client: (-calls[client], client))
    return [CLIENTS[client].format(base=base) for client in known] or [ANY.format(base=base)]


def client_of(found: Found) -> str:
    """The client that a session is of; empty if it is none of ours."""
    name = (found.session.harness or found.format).lower()
    return next((client for client in CLIENTS if name.startswith(client)), "")
