"""How ids and coins are made that anybody can make again: a registry to try, one by one.

This is the one file of the library that imports :mod:`random` and seeds numpy's generators outside
a simulation: it imitates the mistake, with the very generators with which the mistake is made, and
draws nothing for a release. Add your own by passing ``(*coin_recipes(), mine)`` or
``(*id_recipes(), mine)``.

Last come public rules that put two answers in an order. People prefer longer answers, so the order
by length predicts labels; it is no leak. The rules are therefore exempt from the attacks on
channels, and covariates of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import random
import re
import sys
import unicodedata
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, permutations, product
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Integer

from sordino import _validate

from .reading import UNKNOWN, Channel, Released

# ruff: noqa: S324 (old hashes are what is imitated)


_BLANKS = re.compile(r"\s+")


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


def _joined(mark: str, which: slice, *texts: str) -> str:
    return mark.join(texts[which])


JOINS: Mapping[str, Callable[[str, str, str], str]] = {
    **{
        f"{what} by {mark!a}": partial(_joined, mark, size)
        for mark in _SEPARATORS
        for what, size in (("prompt, x, y", slice(3)), ("x, y", slice(1, 3)))
    },
    "JSON list": lambda *texts: json.dumps(texts),
    "JSON list, Unicode": lambda *texts: json.dumps(texts, ensure_ascii=False),
    "JSON list, compact": lambda *texts: json.dumps(texts, separators=(",", ":")),
    "Python tuple": lambda *texts: str(texts),
    "Python list": lambda *texts: str(list(texts)),
    "x": lambda _, x, __: x,
    **{f"prompt, x by {mark!a}": partial(_joined, mark, slice(2)) for mark in _COMMON_SEPARATORS},
}
"""How a prompt and two answers become one text."""


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
    "uuid5 (dns)": lambda data: uuid.uuid5(uuid.NAMESPACE_DNS, data.decode()).bytes,
    "uuid5 (url)": lambda data: uuid.uuid5(uuid.NAMESPACE_URL, data.decode()).bytes,
}
"""From bytes to a digest."""


@dataclass(frozen=True, kw_only=True)
class IdRecipe:
    """One way to make an id from a prompt and two answers in an order."""

    name: str  # what it does, for the report
    normalize: Callable[[str], str]  # what is done to each of the three texts first
    # The normalized prompt, and the answers in the order hashed, as one text.
    join: Callable[[str, str, str], str]
    # The bytes that the id shows, whole or in part, in hexadecimal, base 64 or as a number.
    digest: Callable[[bytes], bytes]

    def of(self, prompt: str, one: str, other: str) -> bytes:
        """Return the digest for two answers in the order given."""
        return self.joined(*map(self.normalize, (prompt, one, other)))

    def joined(self, prompt: str, one: str, other: str) -> bytes:
        """Return the digest of texts that are normalized already."""
        return self.digest(self.join(prompt, one, other).encode(errors="replace"))


@cache
def id_recipes() -> tuple[IdRecipe, ...]:
    """Return every way of the registry to make an id: normalizations × joins × hashes."""
    # The first is `sha256` of normalized texts with U+241E between them.
    parts = product(NORMALIZATIONS.items(), HASHES.items(), JOINS.items())
    return tuple(
        IdRecipe(name=f"{hashed} of {joined}; {text}", normalize=plain, join=join, digest=digest)
        for (text, plain), (hashed, digest), (joined, join) in parts
    )


# ruff: noqa: S311 (bad generators are what is imitated)


Kind = Literal["stream", "row", "id", "unkeyed"]
_Uniforms = Callable[[Sequence[int], Sequence[Any], float], Float[np.ndarray, "seeds keys"]]
Draw = Callable[[int, int], Any]
_DIGITS, _CHARACTER = "{seed}", "{seed:c}"  # keys
_MOST_LEGACY = 2**32 - 1  # numpy's old generator takes no larger seed


@dataclass(frozen=True, kw_only=True)
class CoinRecipe:
    """One way to make the uniform numbers that decide which answers are flipped."""

    # What it makes must look random from key to key: an audit takes it for chance when it agrees
    # with nothing.

    name: str  # what it does, for the report
    # What its keys are: for `"stream"` the numbers of the draws from one generator (0 is the
    # first), increasing; for `"row"` row numbers; for `"id"` and `"unkeyed"` id texts.
    kind: Kind
    # From seeds, keys and ε to numbers in [0, 1], one row for each seed, one column for each key.
    # For `"unkeyed"` the seed means nothing, and one is passed.
    uniforms: _Uniforms
    # Whether every small seed is tried with it, and not only those of the manifest; and whether its
    # ids may be the texts of a row, joined.
    core: bool = False
    least: float = -math.inf  # the least and the largest seed that its generator takes
    most: float = math.inf

    def __post_init__(self) -> None:
        _validate.one_of("kind", self.kind, ("stream", "row", "id", "unkeyed"))


def _share(digest: bytes, order: Literal["big", "little"] = "big") -> float:
    return float(int.from_bytes(digest, order) / 256 ** len(digest))


def _remainders(most: int, digests: Sequence[bytes]) -> Iterable[float]:
    return [int.from_bytes(found, "big") % most / most for found in digests]


def _first_draws(
    draw: Callable[[int], float], most: int | None, digests: Sequence[bytes]
) -> Iterable[float]:
    """Return the first draw of a generator, seeded by the first bytes of each digest."""
    return [draw(int.from_bytes(found[:most], "big")) for found in digests]


READINGS: Mapping[str, Callable[[Sequence[bytes]], Iterable[float]]] = {
    "first 8 bytes": lambda found: (
        np.frombuffer(b"".join(one[:8] for one in found), ">u8") * 2.0**-64
    ),
    "first 8 bytes, little-endian": lambda found: [_share(one[:8], "little") for one in found],
    "last 4 bytes": lambda found: [_share(one[-4:]) for one in found],
    "last 8 bytes": lambda found: [_share(one[-8:]) for one in found],
    **{f"modulo 10^{k}": partial(_remainders, 10**k) for k in (2, 3, 4, 6, 8)},
    **{
        f"{name} of {size}": partial(_first_draws, draw, most)
        for name, draw in (
            ("random.Random", lambda seed: random.Random(seed).random()),
            ("default_rng", lambda seed: np.random.default_rng(seed).random()),
        )
        for size, most in (("8 bytes", 8), ("4 bytes", 4), ("all bytes", None))
    },
    "RandomState of 4 bytes": lambda found: _legacy(
        [int.from_bytes(one[:4], "big") for one in found], [0], 1.0
    )[:, 0],
}
"""From digests of at least 8 bytes to numbers in [0, 1]; fewer leading bytes change nothing."""


def _messages(template: str, seed: int, ids: Iterable[str], epsilon: float) -> Iterable[bytes]:
    """Return a template filled in for every id; the parts around the id are made once."""
    head, tail = (part.format(seed=seed, epsilon=epsilon) for part in template.split("{id}"))
    return [f"{head}{text}{tail}".encode(errors="replace") for text in ids]


def _table(numbers: Iterable[float], seeds: Sequence[int]) -> Float[np.ndarray, "seeds keys"]:
    """Return numbers, seed after seed, as one row for each seed."""
    return np.asarray(numbers, dtype=float).reshape(len(seeds), -1)


def hashed_coin(
    template: str, *, algorithm: str = "sha256", reading: str = "first 8 bytes", core: bool = False
) -> CoinRecipe:
    """Return a coin that is a hash of seed and id.

    Args:
        template: What is hashed: ``{id}`` once, ``{seed}`` and ``{epsilon:.2f}`` at will.
        algorithm: A key of :data:`HASHES`.
        reading: A key of :data:`READINGS`.
        core: Whether every small seed is tried with it.

    Raises:
        UsageError: The algorithm or the reading is not in the registry, or ``template`` does not
            hold ``{id}`` once.

    Example:
        >>> hashed_coin("{seed}|{id}", algorithm="md5").name
        'md5 of {seed}|{id}, first 8 bytes'
    """
    digest = HASHES[_validate.one_of("algorithm", algorithm, HASHES)]
    kind: Kind = "id" if "{seed" in template else "unkeyed"
    return _digested(algorithm, template, reading, lambda _: digest, kind=kind, core=core)


def _hmac_coin(
    template: str,
    algorithm: str = "sha256",
    reading: str = "first 8 bytes",
    *,
    key: str = _DIGITS,
    core: bool = False,
) -> CoinRecipe:
    """A coin that is an HMAC of the id, keyed by the digits of the seed or by a short text."""
    shown = {_DIGITS: "seed", _CHARACTER: "character of seed"}.get(key, repr(key))
    return _digested(
        f"HMAC-{algorithm}({shown})",
        template,
        reading,
        lambda seed: partial(
            hmac.digest, key.format(seed=seed).encode(errors="replace"), digest=algorithm
        ),
        kind="id" if "{seed" in key + template else "unkeyed",
        core=core,
        least=0 if key == _CHARACTER else -math.inf,
        most=sys.maxunicode if key == _CHARACTER else math.inf,
    )


def _digested(
    shown: str,
    template: str,
    reading: str,
    digest: Callable[[int], Callable[[bytes], bytes]],
    **recipe: Any,
) -> CoinRecipe:
    """Return a coin that is read off a digest of a text; a seed says which digest it is."""
    read = READINGS[_validate.one_of("reading", reading, READINGS)]
    _validate.one_of("the number of {id} in template", template.count("{id}"), (1,))

    def uniforms(seeds: Sequence[int], ids: Sequence[str], epsilon: float) -> np.ndarray:
        texts = ((digest(seed), _messages(template, seed, ids, epsilon)) for seed in seeds)
        return _table(read([made(text) for made, several in texts for text in several]), seeds)

    return CoinRecipe(name=f"{shown} of {template}, {reading}", uniforms=uniforms, **recipe)


def _stream(start: Callable[[], Draw], *, reach: float = 1.0) -> _Uniforms:
    """Return draws of one generator for each seed, divided by how far its numbers reach."""

    def uniforms(seeds: Sequence[int], draws: Sequence[int], _: float) -> np.ndarray:
        draw, count = start(), max(draws) + 1
        return np.array([np.asarray(draw(seed, count))[draws] for seed in seeds]) / reach

    return uniforms


def _mersenne(words: Callable[[int], Any]) -> Draw:
    """Return draws of the generator that Python and numpy share; they seed it differently."""
    generator = np.random.RandomState(0)  # to make one takes longer than to seed it

    def draw(seed: int, count: int) -> np.ndarray:
        generator.seed(words(seed))
        return generator.random_sample(count)

    return draw


def _bits(size: int) -> Draw:

    def draw(seed: int, count: int) -> list[float]:
        generator = random.Random(seed)
        return [float(generator.getrandbits(size)) for _ in range(count)]

    return draw


def _torch(size: int) -> Draw:
    """Return what torch draws on a processor, as numbers of some bytes."""
    # It is the same generator again, seeded by the last 32 bits of the seed. `torch.rand` keeps
    # 24 bits of one word for a float, and 53 bits of two, the first in front, for a double.
    generator = np.random.RandomState(0)
    bits = {4: 24, 8: 53}[size]

    def draw(seed: int, count: int) -> np.ndarray:
        generator.seed(seed & _MOST_LEGACY)
        words = np.frombuffer(generator.bytes(size * count), "<u4").astype(np.uint64)
        if size > 4:  # noqa: PLR2004 (bytes of a word)
            words = (words[::2] << np.uint64(32)) | words[1::2]
        return (words & np.uint64((1 << bits) - 1)) * 2.0**-bits

    return draw


# Python seeds its generator by the 32-bit words of a whole number.
_python = _stream(
    partial(
        _mersenne,
        lambda seed: [
            (abs(seed) >> place) & _MOST_LEGACY
            for place in range(0, max(1, abs(seed).bit_length()), 32)
        ],
    )
)
_legacy: _Uniforms = _stream(partial(_mersenne, int))
_modern = _stream(lambda: lambda seed, count: np.random.default_rng(seed).random(count))
_halves = _stream(
    lambda: lambda seed, count: np.random.default_rng(seed).integers(2**32, size=count),
    reach=2.0**32,
)


def _row_by_row(
    generator: _Uniforms, seeds: Sequence[int], rows: Sequence[int], epsilon: float
) -> np.ndarray:
    """Return the first draw of a generator that is seeded anew, with seed + row, for each row."""
    # Every seed + row number is drawn once, whichever seeds and rows it is the sum of.
    added = np.add.outer(np.array(seeds, dtype=object), np.array(rows, dtype=object))
    distinct = sorted(set(added.ravel().tolist()))
    place = {value: index for index, value in enumerate(distinct)}
    where = np.vectorize(place.__getitem__, otypes=[int])(added)
    return np.asarray(generator(distinct, [0], epsilon)[:, 0][where])


def _generators() -> list[CoinRecipe]:
    """Return the coins that are draws of one generator, or of one that each row seeds anew."""

    def of_pairs(seeds: Sequence[int], rows: Sequence[int], _: float) -> np.ndarray:
        generators = (np.random.default_rng([seed, row]) for seed in seeds for row in rows)
        return _table([generator.random() for generator in generators], seeds)

    def of_texts(
        template: str, seeds: Sequence[int], ids: Sequence[str], epsilon: float
    ) -> np.ndarray:
        texts = (text for seed in seeds for text in _messages(template, seed, ids, epsilon))
        return _table([random.Random(text.decode()).random() for text in texts], seeds)

    row = partial(CoinRecipe, kind="row")
    stream = partial(CoinRecipe, kind="stream")
    old = partial(CoinRecipe, core=True, least=0)
    python, legacy = "random.Random({}).random()", "RandomState({}).random_sample()"
    modern, bits = "default_rng({}).random()", "random.Random(seed).getrandbits({})"
    torch = "torch.manual_seed(seed), rand()"
    doubles = f"{torch} of doubles"
    anew = {kind: partial(_row_by_row, kind) for kind in (_python, _legacy, _modern)}
    text_seeds = _templates(("",), ("", "|", ":", "_", "-"))
    return [
        stream(name=python.format("seed"), uniforms=_python, core=True),
        old(name=legacy.format("seed"), uniforms=_legacy, kind="stream", most=_MOST_LEGACY),
        stream(name=modern.format("seed"), uniforms=_modern, core=True, least=0),
        stream(name=torch, uniforms=_stream(partial(_torch, 4)), core=True),
        stream(name=doubles, uniforms=_stream(partial(_torch, 8)), core=True),
        row(name=python.format("seed + row"), uniforms=anew[_python], core=True),
        old(name=legacy.format("seed + row"), uniforms=anew[_legacy], kind="row", most=2**31),
        row(name=modern.format("seed + row"), uniforms=anew[_modern], core=True, least=0),
        row(name=modern.format("[seed, row]"), uniforms=of_pairs, least=0),
        stream(name="default_rng(seed).integers(2**32)", uniforms=_halves, least=0),
        stream(name=bits.format(32), uniforms=_stream(partial(_bits, 32), reach=2.0**32)),
        stream(name=bits.format(64), uniforms=_stream(partial(_bits, 64), reach=2.0**64)),
        # whose generator is seeded by a text of seed and id
        *(
            CoinRecipe(
                name=f"random.Random({template!r})",
                kind="id",
                uniforms=partial(of_texts, template),
                core=template == "{seed}{id}",
            )
            for template in text_seeds
        ),
    ]


def _templates(epsilons: Iterable[str], separators: Iterable[str]) -> list[str]:
    """Return every order of id, seed and ε (unless it is empty), by every separator."""
    parts = (["{id}", "{seed}", *filter(None, [shown])] for shown in epsilons)
    orders = [order for part in parts for order in permutations(part)]
    return [mark.join(order) for order in orders for mark in separators]


_EPSILONS = ("{epsilon:.2f}", "{epsilon}", "{epsilon:g}")
_CORE = ("{seed}|{id}", "{id}|{seed}", "{seed}:{id}", "{id}:{seed}", "{seed}{id}", "{id}{seed}")
_SHORT = _templates(("",), ("", "|", ":", "_", "-", " ", ","))
_LONG = _templates(_EPSILONS, ("|", ":", ""))
_UNKEYED = [text.replace("{seed}", shown) for text in _CORE[:4] for shown in _EPSILONS]
_FIRST = "first 8 bytes"
_RELEASED = ("{epsilon:.2f}|{id}|{seed}", "sha256", "random.Random of 8 bytes")
_PYTHON = (_FIRST, "random.Random of 8 bytes", "random.Random of all bytes", "modulo 10^6")
_WORDS = ("key", "secret", "salt", "seed", "password", "test", "privacy", "changeme")
_LONG_ENOUGH = [name for name in HASHES if name != "crc32"]  # a reading takes 8 bytes


@cache
def coin_recipes() -> tuple[CoinRecipe, ...]:
    """Return every way of the registry to make a coin.

    Keyed HMACs (the released example's first), also with a character or a word as key, hashes of
    seed and id, Python's, numpy's and torch's generators seeded once, row by row or by id, and
    hashes without any seed. What has ``core`` is tried with every small seed and with texts of a
    row that are joined, the rest with the seeds of the manifest.

    Example:
        >>> coin_recipes()[0].name
        'HMAC-sha256(seed) of {epsilon:.2f}|{id}|{seed}, random.Random of 8 bytes'
    """
    # An HMAC keyed by the seed: that of the released example is first.
    core = (_RELEASED, (*_RELEASED[:2], _FIRST), ("{id}", "sha256", _FIRST))
    keyed = (
        *core,
        *product(["{id}"], ("sha256", "md5", "sha512"), READINGS),
        *product((*_SHORT, *_LONG, *_UNKEYED), ("sha256",), _PYTHON),
    )
    # A hash of seed, id and, it may be, ε.
    common, rare = ("sha256", "md5"), ("sha1", "sha512", "blake2b", "blake2b of 8 bytes")
    hashed = (
        *product(_SHORT, common, READINGS),
        *product(_SHORT, rare, _PYTHON),
        *product(_LONG, common, _PYTHON),
        *product(["{id}"], _LONG_ENOUGH, READINGS),
        *product(_UNKEYED, common, _PYTHON),
    )
    core_hashes = {(template, "sha256", _FIRST) for template in _CORE}
    core_hashes |= set(product(["{id}"], common, (_FIRST, "modulo 10^6")))
    return (
        *(_hmac_coin(*way, core=way in core) for way in dict.fromkeys(keyed)),
        _hmac_coin("{id}", key=_CHARACTER, core=True),
        *(_hmac_coin("{id}", key=word) for word in _WORDS),
        *_generators(),
        *(
            hashed_coin(way[0], algorithm=way[1], reading=way[2], core=way in core_hashes)
            for way in hashed
        ),
    )


CANONICAL = "canonical hash order"
"""Name of the rule of this library; it is computed with the file and always tried."""

AGREEMENT = 0.99
_ORDER_SEPARATORS = {
    "": "",
    " after a line feed": "\n",
    " after a null": "\0",
    " after U+241E": "\u241e",
}


def _bytes(text: str) -> bytes:
    """Return a text in UTF-8; a lone surrogate stays what it is."""
    return text.encode("utf-8", "surrogatepass")


def _hash_of(algorithm: str, separator: str | None, prompt: str, answer: str) -> bytes:
    """Return a hash of prompt and answer; of the answer alone if no separator is given."""
    text = answer if separator is None else prompt + separator + answer
    return hashlib.new(algorithm, _bytes(text), usedforsecurity=False).digest()


# The public rules that are tried, by name; the reverse of each is tried too. A rule takes a prompt
# and one answer to what the answer is sorted by; equal values are a tie. It must not know labels: a
# rule that does would excuse a leak.
_ORDER_RULES: dict[str, Callable[[str, str], Any]] = {
    "alphabetical": lambda _, answer: answer,
    "alphabetical, cases alike": lambda _, answer: answer.casefold(),
    "alphabetical without spaces around": lambda _, answer: answer.strip(),
    "characters": lambda _, answer: len(answer),
    "words": lambda _, answer: len(answer.split()),
    "bytes": lambda _, answer: len(_bytes(answer)),
    "lines": lambda _, answer: answer.count("\n"),
    "characters, then alphabetical": lambda _, answer: (len(answer), answer),
    **{f"{name} of the answer": partial(_hash_of, name, None) for name in ("sha256", "md5")},
    **{
        f"{name} of prompt and answer{place}": partial(_hash_of, name, separator)
        for name in ("sha256", "md5")
        for place, separator in _ORDER_SEPARATORS.items()
    },
}


def rule_bits(released: Released) -> dict[str, Integer[np.ndarray, " n"]]:
    """Return, for every rule, 1 where the answer written first comes first by it."""
    tied = np.array([a == b for a, b in zip(released.first, released.second, strict=True)], bool)
    found = {CANONICAL: np.where(tied, UNKNOWN, 1 - released.swapped.astype(np.int64))}
    for name, rule in _ORDER_RULES.items():
        found[name] = np.full(len(released), UNKNOWN)
        for index, (prompt, first, second) in enumerate(released.texts):
            one, other = rule(prompt, first), rule(prompt, second)
            if one != other:
                found[name][index] = int(one < other)
    return found


def in_canonical_order(
    bits: Integer[np.ndarray, " n"], swapped: Bool[np.ndarray, " n"]
) -> Integer[np.ndarray, " n"]:
    """Return bits about the order written as bits about the canonical order, or the reverse."""
    return np.where(bits == UNKNOWN, UNKNOWN, bits ^ swapped)


def reproduces(bits: Integer[np.ndarray, " n"], guesses: Integer[np.ndarray, " n"]) -> bool:
    """Return whether one says what the other says, or the reverse, in 99 % of the rows or more."""
    # A row of which a rule says nothing counts against it.
    known = bits != UNKNOWN
    same, reverse = known & (bits == guesses), known & (bits == 1 - guesses)
    return len(bits) > 0 and bool(max(same.mean(), reverse.mean()) >= AGREEMENT)


# Share of the rows that a recipe must reproduce.
_MATCHED = 0.99

_FIRST_ROWS = 4  # with different answers; a recipe that misses two of them is given up
_LEAST_NUMBER = 10**6  # a smaller number is no digest
_TEXT_ID = re.compile(r"[0-9A-Za-z+/_-]{6,}={0,2}")
_LONGEST_ID = 256  # of a digest of 64 bytes: 128 digits in hexadecimal, 155 in decimals
_HEXADECIMAL = re.compile(r"[0-9a-f]{6,}")
_HEX_DIGITS = range(6, 17)  # of a number made from the beginning of a hexadecimal digest


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class IdChannel(Channel):
    """The order of the answers that an id hashes, and the recipe that shows it."""

    recipe: IdRecipe  # reproduces the column; the coins may be keyed by what it makes

    @property
    def column(self) -> str:
        """Return the name of the column that it reads."""
        return str(self.details["column"])


def id_channels(released: Released, recipes: Sequence[IdRecipe] | None = None) -> list[IdChannel]:
    """Return what the ids of a released file say of the order in which answers were hashed."""
    # Every column that may hold digests (hexadecimal, base 64 or large numbers, also cut short) is
    # compared with every recipe: on a few rows first, then on a sample, then on all.
    tried = id_recipes() if recipes is None else recipes
    names = []
    for name, values in released.columns.items():
        shown = [value for value in values[: 8 * _FIRST_ROWS] if value is not None]
        # What a digest, or a part of one, may look like.
        if shown and all(
            abs(value) >= _LEAST_NUMBER
            if isinstance(value, int)
            else isinstance(value, str) and _TEXT_ID.fullmatch(_bare(value))
            for value in shown[: 2 * _FIRST_ROWS]
        ):
            names.append(name)
    found = (_Search(released, name).best(tried) for name in names[:16])
    return [channel for channel in found if channel is not None]


def _bare(text: str) -> str:
    """Return an id without spaces around it and without what names the hash in front of it."""
    return text.strip().rpartition(":")[2]


def _shows(value: object, digest: bytes) -> bool:
    """Return whether a digest is shown: a number, or hexadecimal, base 64 or decimals, also cut."""
    if isinstance(value, int):
        return value in _numbers(digest)
    if not isinstance(value, str) or len(text := _bare(value)) > _LONGEST_ID:
        return False
    plain = text.replace("-", "").lower()
    if _HEXADECIMAL.fullmatch(plain):
        whole = digest.hex()
        if whole.startswith(plain) or whole.endswith(plain):
            return True
        if plain == text and text.isdecimal() and int(text) in _numbers(digest):
            return True
    coded = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    if not _TEXT_ID.fullmatch(coded):
        return False
    part = digest[: len(coded) * 3 // 4]
    exact = base64.b64encode(part).decode().rstrip("=")
    return coded == exact or base64.b64encode(digest).decode().startswith(coded)


def _numbers(digest: bytes) -> set[int]:
    """Return the numbers that are commonly made from a digest."""
    whole, bits = int.from_bytes(digest, "big"), 8 * len(digest)
    found = {whole, *(whole >> bits - 4 * k for k in _HEX_DIGITS if 4 * k <= bits)}
    found |= {whole % 10**k for k in range(7, 19)} | {whole % 2**k for k in (31, 32, 63, 64)}
    for size in (4, 6, 8):
        part = digest[:size]
        found |= {int.from_bytes(part, "big"), int.from_bytes(part, "little")}
        found |= {int.from_bytes(part, "big", signed=True), int.from_bytes(part, "big") >> 1}
        found |= {int.from_bytes(part, "little", signed=True)}
    return found | {int.from_bytes(digest[:8], "big") % 2**63}


class _Search:
    """The search for the recipe of one column; its first rows are normalized once."""

    def __init__(self, released: Released, column: str) -> None:
        self.released, self.column = released, column
        self.values = released.columns[column]
        # Rows whose two answers differ in more than spaces and letter case.
        telling = (
            row
            for row, pair in enumerate(zip(released.first, released.second, strict=True))
            if len({"".join(text.lower().split()) for text in pair}) == len(pair)
            and self.values[row] is not None
        )
        self.first = list(islice(telling, _FIRST_ROWS))
        self.normalized: dict[tuple[Callable[[str], str], int], list[str]] = {}

    def best(self, recipes: Sequence[IdRecipe]) -> IdChannel | None:
        """Return the channel of the first recipe that reproduces the column, if any does."""
        rows = range(len(self.values))
        sample = rows[:: max(1, len(rows) // 500)]
        for recipe in recipes:
            if not self._reproduces_first_rows(recipe):
                continue
            for some in (sample, rows):
                forward, backward = self._orders(recipe, some)
                if (matched := float(np.mean(forward | backward))) < _MATCHED:
                    break
            if matched < _MATCHED:
                continue
            # The rows that match in exactly one order say something.
            guesses = np.where(forward == backward, UNKNOWN, forward.astype(np.int8))
            spoken = guesses[guesses != UNKNOWN]
            if not len(spoken):
                return None
            constant = spoken.min() == spoken.max()
            details = {
                "recipe": recipe.name,
                "column": self.column,
                "matched": matched,
                "file_order": ("reversed", "written")[int(spoken[0])] if constant else None,
            }
            guesses = guesses.astype(np.int8)
            return IdChannel(name="id-hash", guesses=guesses, details=details, recipe=recipe)
        return None

    def _reproduces_first_rows(self, recipe: IdRecipe) -> bool:
        """Return whether all but at most one of the first rows match in either order."""
        misses = 0
        for row in self.first:
            key = (recipe.normalize, row)
            if key not in self.normalized:
                self.normalized[key] = [recipe.normalize(text) for text in self._texts(row)]
            misses += not any(self._fits(recipe, row, self.normalized[key]))
            if misses > min(1, len(self.first) - 1):
                return False
        return bool(self.first)

    def _fits(self, recipe: IdRecipe, row: int, texts: Iterable[str]) -> tuple[bool, bool]:
        """Return whether a row matches with its answers as written, and with them reversed."""
        prompt, one, other = texts
        value, orders = self.values[row], ((one, other), (other, one))
        forward, backward = (_shows(value, recipe.joined(prompt, *pair)) for pair in orders)
        return forward, backward

    def _texts(self, row: int) -> tuple[str, str, str]:
        released = self.released
        return released.prompts[row], released.first[row], released.second[row]

    def _orders(
        self, recipe: IdRecipe, rows: Sequence[int]
    ) -> tuple[Bool[np.ndarray, " m"], Bool[np.ndarray, " m"]]:
        """Return which rows match with the answers as written, and which with them reversed."""
        found = [self._fits(recipe, row, map(recipe.normalize, self._texts(row))) for row in rows]
        forward, backward = np.array(found, dtype=bool).reshape(-1, 2).T
        return forward, backward
