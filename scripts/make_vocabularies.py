"""Makes the shipped token vocabularies from the copies inside a ``litellm`` wheel.

    python -m pip download --no-deps litellm -d DIR
    python scripts/make_vocabularies.py DIR/litellm-*.whl

A vocabulary is a list of byte strings in the order of their rank. The published form is base64, one token a line; ours
is the number of tokens (4 bytes, little-endian), the length of each (1 byte), then all of them end to end, as xz: a
third smaller, and several times quicker to load. The same wheel always gives the same bytes.
"""

import argparse
import base64
import hashlib
import lzma
import zipfile
from pathlib import Path

DATA = Path(__file__).parent.parent / "pager" / "pricing" / "data"
FOLDER = "litellm/litellm_core_utils/tokenizers/"
# Name -> the file's name in the wheel (SHA-1 of its published address) and the SHA-256 that tiktoken expects of it.
VOCABULARIES = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}


def tokens(published: bytes) -> list[bytes]:
    """The tokens of a published vocabulary, by rank; ranks must run from 0 without a gap."""
    lines = [line.split() for line in published.splitlines()]
    if [int(rank) for _, rank in lines] != list(range(len(lines))):
        raise SystemExit("the ranks have gaps: the shipped form can't express that")
    return [base64.b64decode(token) for token, _ in lines]


def packed(vocabulary: list[bytes]) -> bytes:
    """The shipped form."""
    plain = len(vocabulary).to_bytes(4, "little") + bytes(map(len, vocabulary)) + b"".join(vocabulary)
    return lzma.compress(plain, check=lzma.CHECK_CRC32, preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    """Write both vocabularies and say what NOTICE must hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="a wheel of litellm")
    with zipfile.ZipFile(parser.parse_args().wheel) as wheel:
        for name, (member, expected) in VOCABULARIES.items():
            published = wheel.read(FOLDER + member)
            if hashlib.sha256(published).hexdigest() != expected:
                raise SystemExit(f"{name} in this wheel is not the published vocabulary")
            path = DATA / f"{name}.ranks.xz"
            path.write_bytes(packed(tokens(published)))
            print(hashlib.sha256(path.read_bytes()).hexdigest(), path.name)


if __name__ == "__main__":
    main()
