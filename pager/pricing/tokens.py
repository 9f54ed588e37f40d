"""Counts tokens, offline, by the family of the model that will read them.

OpenAI publishes its vocabularies; two of them are shipped in ``pager/pricing/data`` and give exact counts. Anthropic
and most others publish none, so their counts are estimates: o200k's count times a factor. A count is a pure function of
text and model, so it may be logged and replayed. What providers report corrects what decisions go by: see
``pager.pricing.token_scale``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from pager.request_values import Block, Kind, Message

if TYPE_CHECKING:
    import tiktoken

CHUNK = 65_536
"""Longest text, in characters, that is handed to the tokenizer at once."""

BYTES_A_TOKEN = 2.7
"""Bytes of a prompt for each token of its model, where nothing better is known.

Measured on recorded sessions of Claude models: how many bytes a prompt grew by for each token that was reported more.
"""

MESSAGE_OVERHEAD = 4
"""Tokens around a message: its start, role, separator and end."""

CALL_OVERHEAD = 6
"""Tokens around a tool call: the channel, the addressee's prefix, the format and the end of the call."""

RESULT_OVERHEAD = 3
"""Tokens around a tool result beyond those of a message: who it is from and to whom it goes."""

MEDIA_TOKENS = 1_000
"""Tokens of an image or a file, whose size isn't known here: one of about 1,000 x 1,000 pixels costs 765 to 1,334."""

# How a text is split before tokens are merged; published with the vocabularies (see pager/pricing/data/NOTICE).
_PATTERNS = {
    "o200k_base": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k_base": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
    r"|\s*[\r\n]|\s+(?!\S)|\s",
}


@dataclass(frozen=True, slots=True)
class Family:
    """Models that count alike: a vocabulary, and the factor by which their own counts are larger than its.

    ``bytes_a_token`` is how many bytes of a request there are to a token, roughly.
    """

    name: str
    vocabulary: str
    factor: float = 1.0
    estimate: bool = False
    bytes_a_token: float = BYTES_A_TOKEN

    def scaled(self, tokens: int) -> int:
        """The vocabulary's count as this family's."""
        return tokens if self.factor == 1.0 else round(tokens * self.factor)


O200K = Family("o200k", "o200k_base", bytes_a_token=3.8)
CL100K = Family("cl100k", "cl100k_base", bytes_a_token=3.8)
UNKNOWN = Family("unknown", "o200k_base", estimate=True)
# Sources are in docs/models.md. With Claude Opus 4.7 Anthropic changed its tokenizer, to about 1.3 times the tokens.
CLAUDE = Family("claude", "o200k_base", factor=1.2, estimate=True)
CLAUDE_SINCE_4_7 = Family("claude", "o200k_base", factor=1.56, estimate=True, bytes_a_token=2.1)

FAMILIES: Mapping[str, Family] = {
    "o200k": O200K,
    "cl100k": CL100K,
    "claude": CLAUDE,
    "claude-4.7": CLAUDE_SINCE_4_7,
}
"""The families by the names that the catalogue of models has for them."""


def read_vocabulary(name: str) -> bytes:
    """A shipped vocabulary: the one place here that reads a file.

    It holds the number of tokens (4 bytes, little-endian), the length of each (1 byte), then all of them, by rank.
    """
    import lzma  # these take a while to import, and most commands count nothing
    from importlib import resources

    return lzma.decompress(resources.files("pager.pricing").joinpath("data", f"{name}.ranks.xz").read_bytes())


@cache
def load(name: str) -> "tiktoken.Encoding":
    """The encoder of a shipped vocabulary; slow the first time (0.2 s), so a server calls it before it listens."""
    import tiktoken

    data = read_vocabulary(name)
    first = 4 + int.from_bytes(data[:4], "little")
    ends = accumulate(data[4:first], initial=first)
    ranks = {data[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}
    return tiktoken.Encoding(name, pat_str=_PATTERNS[name], mergeable_ranks=ranks, special_tokens={})


_LOOK_BACK = 4_096
# Where both patterns always begin a new token, so that a cut changes no count: at a space or tab after what is none,
# and at a line that begins with neither a space nor a slash (which o200k joins to the line break before it).
_SAFE_CUT = re.compile(r"(?<=\S)(?=[ \t])|(?<=\n)(?=[^\s/])")


def pieces(text: str, limit: int = CHUNK) -> Iterator[str]:
    """The text in pieces of at most ``limit`` characters, cut where no count changes, or anywhere if there is no such.

    The tokenizer's pattern backtracks, and its time on one long run may grow faster than the run.
    """
    start = 0
    while len(text) - start > limit:
        end = start + limit
        for found in _SAFE_CUT.finditer(text, max(start + 1, end - _LOOK_BACK), end):
            end = found.start()  # the last one counts
        yield text[start:end]
        start = end
    yield text[start:]


class Counter:
    """Counts texts, and remembers them by their hash.

    The memory has two generations: a full young one becomes the old one, and what is asked for again is young again. It
    holds at most ``entries`` counts, forgets what was not asked for longest, and needs no lock: every step is a single
    read or write, and a step lost to another thread costs a count done twice.
    """

    def __init__(self, entries: int = 65_536, chunk: int = CHUNK) -> None:
        self._half = max(1, entries // 2)
        self._chunk = chunk
        self._young: dict[tuple[str, bytes], int] = {}
        self._old: dict[tuple[str, bytes], int] = {}

    def count(self, text: str, family: Family) -> int:
        """The tokens of a text; special tokens in it count as the plain text they are."""
        return family.scaled(self._plain(text, family.vocabulary)) if text else 0

    def count_block(self, block: Block, family: Family) -> int:
        """The tokens of a block, with those that its kind costs around its text."""
        if block.kind is Kind.MEDIA:
            return MEDIA_TOKENS
        tokens = self.count(block.text, family)
        if block.kind is Kind.CALL:
            tokens += self.count(block.name, family) + CALL_OVERHEAD
        elif block.kind is Kind.RESULT:
            tokens += RESULT_OVERHEAD
        return tokens

    def count_message(self, message: Message, family: Family) -> int:
        """The tokens of a message: its blocks' and its own overhead."""
        return MESSAGE_OVERHEAD + sum(self.count_block(block, family) for block in message.blocks)

    def _plain(self, text: str, vocabulary: str) -> int:
        key = _key(text, vocabulary)
        known = self._young.get(key)
        if known is None:
            known = self._old.get(key)
            known = self.encoded(self.pieces(text), vocabulary) if known is None else known
            self._remember(key, known)
        return known

    def pieces(self, text: str) -> Iterator[str]:
        """The pieces that a text is counted in."""
        return pieces(text, self._chunk)

    def encoded(self, parts: Iterable[str], vocabulary: str) -> int:
        """The tokens of some of a text's pieces, unscaled."""
        encode = load(vocabulary).encode_ordinary
        return sum(len(encode(part)) for part in parts)

    def learn(self, text: str, vocabulary: str, tokens: int) -> None:
        """Remember the count of a text whose pieces were counted one by one."""
        self._remember(_key(text, vocabulary), tokens)

    def _remember(self, key: tuple[str, bytes], tokens: int) -> None:
        if len(self._young) >= self._half:
            self._young, self._old = {}, self._young
        self._young[key] = tokens


def _key(text: str, vocabulary: str) -> tuple[str, bytes]:
    return vocabulary, sha256(text.encode("utf-8", "surrogatepass")).digest()
