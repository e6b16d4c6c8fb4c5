"""Texts to digests: how an id is made of a prompt and two answers in an order."""
# ruff: noqa: S324 (old hashes are what is imitated)

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

__all__ = ["HASHES", "JOINS", "NORMALIZATIONS", "IdRecipe", "id_recipes"]

_BLANKS = re.compile(r"\s+")
_UUID_SPACES = {
    "dns": "6ba7b8109dad11d180b400c04fd430c8",
    "url": "6ba7b8119dad11d180b400c04fd430c8",
}


def _plain(text: str) -> str:
    """Return a text with one form of each character, one line end, and single spaces."""
    return _BLANKS.sub(" ", unicodedata.normalize("NFC", text).replace("\r\n", "\n").strip())


NORMALIZATIONS: Mapping[str, Callable[[str], str]] = {
    "NFC, single spaces": _plain,
    "as it is": str,
    "strip": str.strip,
    "lower case, single spaces": lambda text: _plain(text).lower(),
    "lower case, strip": lambda text: text.strip().lower(),
    "NFC": partial(unicodedata.normalize, "NFC"),
    "NFKC, single spaces": lambda text: _plain(unicodedata.normalize("NFKC", text)),
    "spaces removed": lambda text: _BLANKS.sub("", text),
}
"""What is done to every text before it is hashed."""

_SEPARATORS: tuple[str, ...] = (
    *("\u241e", "", "|", "||", "|||", "\n", "\n\n", "\n\n\n", "\t", " ", ":", "::", "-", "_"),
    *("\x1f", "\x1e", "\x00", ",", ";", "###", "---", "\n---\n", "<sep>", "[SEP]", "</s>"),
)
_COMMON_SEPARATORS = ("", "\n", "\n\n", " ", "|", "\u241e")  # of a prompt and one answer


def _separated(separator: str) -> dict[str, Callable[[str, str, str], str]]:
    """Return both ways to join three texts by a separator: with the prompt, and without."""
    return {
        f"prompt, x, y by {separator!a}": lambda p, x, y: separator.join((p, x, y)),
        f"x, y by {separator!a}": lambda _, x, y: separator.join((x, y)),
    }


def _json(texts: Sequence[str], **options: Any) -> str:
    """Return texts as a JSON list."""
    return json.dumps(list(texts), **options)


def _alone(separator: str) -> Callable[[str, str, str], str]:
    """Return the way to join the prompt and the answer in front by a separator."""
    return lambda prompt, x, _: separator.join((prompt, x))


JOINS: Mapping[str, Callable[[str, str, str], str]] = {
    **{name: join for mark in _SEPARATORS for name, join in _separated(mark).items()},
    "JSON list": lambda *texts: _json(texts),
    "JSON list, Unicode": lambda *texts: _json(texts, ensure_ascii=False),
    "JSON list, compact": lambda *texts: _json(texts, separators=(",", ":")),
    "Python tuple": lambda *texts: str(texts),
    "Python list": lambda *texts: str(list(texts)),
    "x": lambda _, x, __: x,
    **{f"prompt, x by {mark!a}": _alone(mark) for mark in _COMMON_SEPARATORS},
}
"""How a prompt and two answers become one text."""


def _uuid5(space: str) -> Callable[[bytes], bytes]:
    """Return the name-based identifier of RFC 9562, version 5, in one name space."""

    def digest(name: bytes) -> bytes:
        found = bytearray(hashlib.sha1(bytes.fromhex(space) + name).digest()[:16])
        found[6] = found[6] & 0x0F | 0x50
        found[8] = found[8] & 0x3F | 0x80
        return bytes(found)

    return digest


HASHES: Mapping[str, Callable[[bytes], bytes]] = {
    "sha256": lambda data: hashlib.sha256(data).digest(),
    "md5": lambda data: hashlib.md5(data).digest(),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "sha512": lambda data: hashlib.sha512(data).digest(),
    "sha3_256": lambda data: hashlib.sha3_256(data).digest(),
    "blake2b": lambda data: hashlib.blake2b(data).digest(),
    "blake2b of 8 bytes": lambda data: hashlib.blake2b(data, digest_size=8).digest(),
    "blake2b of 16 bytes": lambda data: hashlib.blake2b(data, digest_size=16).digest(),
    "blake2b of 32 bytes": lambda data: hashlib.blake2b(data, digest_size=32).digest(),
    "blake2s": lambda data: hashlib.blake2s(data).digest(),
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    **{f"uuid5 ({name})": _uuid5(space) for name, space in _UUID_SPACES.items()},
}
"""From bytes to a digest."""


@dataclass(frozen=True, kw_only=True)
class IdRecipe:
    """One way to make an id from a prompt and two answers in an order.

    Attributes:
        name: What it does, for the report.
        normalize: What is done to each of the three texts first.
        join: The normalized prompt, and the answers in the order hashed, as one text.
        digest: The bytes that the id shows, whole or in part, in hexadecimal, base 64 or as a
            number.
    """

    name: str
    normalize: Callable[[str], str]
    join: Callable[[str, str, str], str]
    digest: Callable[[bytes], bytes]

    def of(self, prompt: str, one: str, other: str) -> bytes:
        """Return the digest for two answers in the order given."""
        return self.joined(*map(self.normalize, (prompt, one, other)))

    def joined(self, prompt: str, one: str, other: str) -> bytes:
        """Return the digest of texts that are normalized already."""
        return self.digest(self.join(prompt, one, other).encode(errors="replace"))


@cache
def id_recipes() -> tuple[IdRecipe, ...]:
    """Return every way of the registry to make an id: normalizations × joins × hashes.

    The first is ``sha256`` of normalized texts with U+241E between them.

    Example:
        >>> recipe = id_recipes()[0]
        >>> recipe.of("p", " a", "b ") == recipe.of("p", "a", "b")
        True
    """
    parts = product(NORMALIZATIONS.items(), HASHES.items(), JOINS.items())
    return tuple(
        IdRecipe(name=f"{hashed} of {joined}; {text}", normalize=plain, join=join, digest=digest)
        for (text, plain), (hashed, digest), (joined, join) in parts
    )
