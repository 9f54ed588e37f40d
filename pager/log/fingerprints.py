"""The hashes under which calls are found again, whatever session they are of.

Each is kept with the place that last claimed it, so that a call without a session key finds its session after a
restart, or on another instance. The fingerprint of a history is made by ``pager.sessions.lineage``.
"""

from hashlib import sha256


def tool_call_fingerprint(call_id: str) -> bytes:
    """The fingerprint under which the call that issued a tool call is found."""
    return sha256(b"call\0" + call_id.encode()).digest()


def answer_fingerprint(answer_id: str) -> bytes:
    """The fingerprint under which the call with this answer is found."""
    return sha256(b"answer\0" + answer_id.encode()).digest()


def session_key_fingerprint(source: str, value: str) -> bytes:
    """The fingerprint under which a session that the client named is found."""
    return sha256(f"key\0{source}\0{value}".encode()).digest()
