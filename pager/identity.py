"""Tells whose call it is: the tenant, and the session key that the client itself names.

Clients name their sessions in headers or in the body, or not at all; then the lineage tells (``pager.lineage``). A
sub-agent's calls belong to its parent's session but to a line of history of their own, its ``lane``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Key:
    """What the client calls its session: the value and where it stood, and which agent inside it is speaking.

    ``parent`` is the id of the session that the client says this one belongs to.
    """

    source: str
    value: str
    lane: str = ""
    parent: str = ""


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


def _plain(name: str) -> Callable[[Headers], Key | None]:
    def named(headers: Headers) -> Key | None:
        value = headers.get(name)
        return Key(name, value) if value else None

    return named


SIGNALS: Sequence[Callable[[Headers], Key | None]] = (
    _claude_code,
    _codex,
    _opencode,
    _plain("agent-session-id"),
    _plain("session_id"),
)


def session_key(headers: Headers, hints: Sequence[tuple[str, str]]) -> Key | None:
    """The first session signal in the headers, else in the body's hints, else None. Header names are lower-case."""
    for signal in SIGNALS:
        key = signal(headers)
        if key is not None:
            return key
    return next((Key(source, value) for source, value in hints if value), None)


def credential_of(headers: Headers) -> str:
    """What the client shows as its credential, without the scheme."""
    bearer = headers.get("authorization", "")
    scheme, _, token = bearer.partition(" ")
    return (token.strip() if scheme.lower() == "bearer" else bearer) or headers.get("x-api-key", "")


def tenant_of(
    headers: Headers, *, keys: Mapping[str, str], account_headers: Sequence[str], loopback: bool
) -> str | None:
    """The tenant a call belongs to; None when the proxy has keys of its own and the client shows none of them.

    ``keys`` maps a key of the proxy's own to its tenant. On a loopback bind the user's credential does not tell tenants
    apart, because it is refreshed in mid-session.
    """
    credential = credential_of(headers)
    if keys:
        return keys.get(credential)
    for name in account_headers:
        if headers.get(name):
            return f"{name}:{headers[name]}"
    if loopback:
        return LOCAL
    return "key:" + sha256(credential.encode()).hexdigest()[:16]
