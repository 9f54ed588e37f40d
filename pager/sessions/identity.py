"""Whose call it is: the tenant, and the session key that the client itself names.

Clients name their sessions in headers or in the body, or not at all; then the lineage decides
(``pager.sessions.lineage``). A sub-agent's calls belong to its parent's session but to a line of history of their own,
its ``lane``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from pager.wire.dialects import load as load_dialect
from pager.wire.dialects import names

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Key:
    """The client's name for its session, and for the agent in it."""

    source: str  # the header or the part of the body that has it
    value: str
    lane: str = ""  # the sub-agent's id, empty for the main agent
    parent: str = ""  # the id of the session that this session belongs to, or empty


Headers = Mapping[str, str]


def _claude_code(headers: Headers) -> Key | None:
    session = headers.get("x-claude-code-session-id")
    return Key("x-claude-code-session-id", session, headers.get("x-claude-code-agent-id", "")) if session else None


def _codex(headers: Headers) -> Key | None:
    """Codex: sub-agents share ``session-id`` with their parent; only ``thread-id`` differs."""
    thread = headers.get("thread-id")
    if not thread:
        return None
    session = headers.get("session-id") or thread
    return Key("thread-id", session, lane="" if thread == session else thread)


def _opencode(headers: Headers) -> Key | None:
    """OpenCode: a sub-agent has a session id of its own and names its parent's."""
    session, parent = headers.get("x-session-id"), headers.get("x-parent-session-id", "")
    return Key("x-session-id", session, lane=session if parent else "", parent=parent) if session else None


class Signal(NamedTuple):
    """Headers by which a client names its session, and how its key is read from them."""

    names: tuple[str, ...]
    key: Callable[[Headers], Key | None]


def _plain(name: str) -> Signal:
    def named(headers: Headers) -> Key | None:
        value = headers.get(name)
        return Key(name, value) if value else None

    return Signal((name,), named)


SIGNALS: Sequence[Signal] = (
    Signal(("x-claude-code-session-id", "x-claude-code-agent-id"), _claude_code),
    Signal(("session-id", "thread-id"), _codex),
    Signal(("x-session-id", "x-parent-session-id"), _opencode),
    _plain("agent-session-id"),
    _plain("session_id"),
)
SESSION_HEADERS = tuple(name for signal in SIGNALS for name in signal.names)


def session_key(headers: Headers, hints: Sequence[tuple[str, str]]) -> Key | None:
    """The first session signal in the headers, else in the body's hints, else None. Header names are lower-case."""
    for signal in SIGNALS:
        key = signal.key(headers)
        if key is not None:
            return key
    return next((Key(source, value) for source, value in hints if value), None)


@cache
def credential_headers() -> tuple[str, ...]:
    """Headers that hold a credential, best first: those of the dialects, then those of others who speak them."""
    own = (load_dialect(name).credential("")[0] for name in names())
    return tuple(dict.fromkeys(("authorization", *own, "api-key", "x-goog-api-key")))


def credentials_of(headers: Headers) -> list[str]:
    """The client's credentials, without the scheme; empty where it sends none."""
    bearer = headers.get("authorization", "")
    scheme, _, token = bearer.partition(" ")
    shown = [token.strip() if scheme.lower() == "bearer" else bearer, *map(headers.get, credential_headers()[1:])]
    return [credential for credential in shown if credential]


def credential_of(headers: Headers) -> str:
    """The client's best credential; empty where it sends none."""
    return next(iter(credentials_of(headers)), "")


def is_subscription(headers: Headers) -> bool:
    """Whether a call is paid by a subscription: by a token of Claude's or ChatGPT's login, and not by an API key."""
    return "chatgpt-account-id" in headers or any(
        credential.startswith(("sk-ant-oat", "eyJ")) for credential in credentials_of(headers)
    )


def tenant_of(
    headers: Headers, *, keys: Mapping[str, str], account_headers: Sequence[str], loopback: bool
) -> str | None:
    """The tenant of a call; None where the proxy has keys of its own and the client sends none of them.

    ``keys`` maps each key of the proxy's own to its tenant. On a loopback bind the user's credential is no mark of a
    tenant, because it is refreshed in mid-session. Elsewhere a header that names an account is no proof, as anybody can
    send it; a credential is.
    """
    if keys:
        return keys.get(credential_of(headers))
    if not loopback:
        return "key:" + sha256("\n".join(credentials_of(headers)).encode()).hexdigest()[:16]
    account = next((name for name in account_headers if headers.get(name)), None)
    return f"{account}:{headers[account]}" if account else LOCAL
