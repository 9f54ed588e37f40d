"""Takes a request body apart into content that is stored once, and puts it together again to the same bytes.

The body of a call is mostly the body of the call before it. What is logged is a skeleton (the body with its large
values and its messages cut out), the digests of what was cut, and of the messages only those that the parent call did
not have. Everything cut out is a blob by its SHA-256, so a value that comes again costs its digest, not its bytes.

The body's own digest is taken over the digests of its parts: as strong a proof as a hash of the bytes, without reading
a known history a second time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from pager.errors import StoreCorrupt
from pager.log.events import CallReceived, Cut
from pager.request_values import Request, Span

WORTH_CUTTING = 512  # bytes: below this a value costs less inside the skeleton than as a blob of its own


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to put one body together again; ``messages`` are the digests of the new messages, hexadecimal.

    ``values`` are the digests of the members that were cut out, by name.
    """

    body: str
    size: int
    skeleton: str
    cuts: list[Cut]
    keep: int
    messages: list[str]
    separator: str
    values: dict[str, str]


def take_apart(request: Request, keep: int) -> tuple[Recipe, dict[bytes, bytes]]:
    """The recipe of a request whose first ``keep`` messages are the parent's, and the blobs that it needs."""
    blobs: dict[bytes, bytes] = {}
    skeleton, cuts, values = _skeleton(request, blobs)
    listed = request.separator is not None
    separator = (request.separator or b"").decode()
    digests = request.digests if listed else ()
    blobs.update((digest, bytes(item)) for digest, item in zip(digests[keep:], request.items[keep:], strict=False))
    recipe = Recipe(
        body=_digest(skeleton, cuts, digests, separator),
        size=len(request.body),
        skeleton=skeleton,
        cuts=cuts,
        keep=keep if listed else 0,
        messages=[digest.hex() for digest in digests[keep:]],
        separator=separator,
        values=values,
    )
    return recipe, blobs


def put_together(call: CallReceived, messages: Sequence[bytes], fetch: Callable[[bytes], bytes]) -> bytes:
    """The body of a logged call whose messages have these digests; raises StoreCorrupt unless it is the same again.

    ``fetch`` gives the blob with a digest, and has verified it.
    """
    listed = messages if any(not cut.digest for cut in call.cuts) else ()
    if _digest(call.skeleton, call.cuts, listed, call.separator) != call.body:
        raise StoreCorrupt(f"call {call.call} of branch {call.branch} is not made of the parts it was logged with")
    skeleton = fetch(bytes.fromhex(call.skeleton))
    pieces, at = [], 0
    for cut in call.cuts:
        pieces.append(skeleton[at : cut.offset])
        at = cut.offset
        if cut.digest:
            pieces.append(fetch(bytes.fromhex(cut.digest)))
        else:
            pieces.append(call.separator.encode().join(fetch(digest) for digest in messages))
    return b"".join([*pieces, skeleton[at:]])


def digests_of(call: CallReceived, parent: Sequence[bytes]) -> list[bytes]:
    """The digests of all messages of a logged call, from those of the latest call of its parent branch."""
    kept = parent[: call.keep] if call.parent_branch is not None else ()
    return [*kept, *(bytes.fromhex(digest) for digest in call.messages)]


def around_items(cuts: Iterable[Cut]) -> str:
    """The digests of the larger values around a call's messages, such as tools and a system prompt."""
    return " ".join(cut.digest for cut in cuts if cut.digest)


def _skeleton(request: Request, blobs: dict[bytes, bytes]) -> tuple[str, list[Cut], dict[str, str]]:
    """The digest of the body without its large values, what was cut where, and what by name; adds to ``blobs``."""
    kept, cuts, at, length = [], [], 0, 0
    values: dict[str, str] = {}
    for name, span in _spans_to_cut(request):
        kept.append(request.body[at : span.start])
        length += span.start - at
        if name != request.items_key or request.separator is None:
            values[name] = _blob(blobs, request.body[span.start : span.end])
        cuts.append(Cut(length, values.get(name, "")))
        at = span.end
    return _blob(blobs, b"".join([*kept, request.body[at:]])), cuts, values


def _digest(skeleton: str, cuts: Sequence[Cut], messages: Sequence[bytes], separator: str) -> str:
    frame = "|".join([skeleton, separator, *(f"{cut.offset}:{cut.digest}" for cut in cuts), ""])
    return sha256(frame.encode() + b"".join(messages)).hexdigest()


def _spans_to_cut(request: Request) -> list[tuple[str, Span]]:
    spans = [
        (name, span)
        for name, span in request.members.items()
        if name != request.items_key and span.end - span.start >= WORTH_CUTTING
    ]
    if request.items:
        spans.append((request.items_key, Span(request.starts[0], request.starts[-1] + len(request.items[-1]))))
    return sorted(spans, key=lambda cut: cut[1])


def _blob(blobs: dict[bytes, bytes], content: bytes) -> str:
    digest = sha256(content)
    blobs[digest.digest()] = content
    return digest.hexdigest()
