"""Ways to look at the answers of a released file in which its labels may be constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np
from jaxtyping import Bool, Float, Integer

from .evidence import Channel
from .reading import UNKNOWN, Released

TIERS = ((5, 1), (8, 1), (18, 1), (40, 2))
"""How many rows are looked at before a seed is given up, and how many of them may disagree."""


TRUTH = "raw truth"


WRITTEN = "order written"


_WINDOW = 4096  # a generator that is seeded 10^4 times is not run further than this


_OVERLAP = 64  # rows that frames must share to be looked at together


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Frame:
    """A way to look at the answers, in which they are the flips if the labels are constant."""

    name: str  # what the labels may be constant in, for the report
    bits: Integer[np.ndarray, " n"]  # 1, 0 or `UNKNOWN` for each row of the file
    # Whether the bits are the flips themselves, because the raw labels are known.
    truth: bool = False
    swaps: bool = False  # whether a swap drawn beside each flip is undone first


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Screen:
    """The rows to look at first, and what a prediction must reach there."""

    bits: Integer[np.ndarray, "f n"]  # what the frames hold, in the order in which the rows draw
    places: Integer[np.ndarray, " k"]  # the rows to look at first
    signs: Float[np.ndarray, "k f"]  # 1 or -1 for what the frames hold there, 0 where unknown
    # For every tier and frame, the sum of agreements (1) and disagreements (-1) that keeps a seed.
    enough: Float[np.ndarray, "t f"]


class Frames:
    """Frames that are looked at together, and the rows to look at first; found once."""

    def __init__(self, each: Sequence[Frame]) -> None:
        """Remember them."""
        self.each = tuple(each)
        self.swaps = np.array([frame.swaps for frame in each])
        self._screens: dict[tuple[int, bool], Screen] = {}

    def screen(self, order: Integer[np.ndarray, " n"] | None, *, near: bool) -> Screen:
        """Return the rows to look at first."""
        key = id(order), near  # an order lives as long as what is tried with it
        if key not in self._screens:
            bits = np.array(
                [frame.bits if order is None else frame.bits[order] for frame in self.each]
            )
            places = _first_places(bits, _window(bits) if near else len(bits[0]))
            seen = bits[:, places]
            enough = np.array([_enough(seen[:, :size], miss, self.swaps) for size, miss in TIERS])
            signs = np.where(seen == UNKNOWN, 0, 2 * seen - 1).astype(np.float32).T
            self._screens[key] = Screen(bits=bits, places=places, signs=signs, enough=enough)
        return self._screens[key]


def _enough(
    bits: Integer[np.ndarray, "f k"], misses: int, swaps: Bool[np.ndarray, " f"]
) -> Float[np.ndarray, " f"]:
    """Return how far agreements must outweigh disagreements, or the reverse, in each frame."""
    # Where one value is rare, a prediction that is constant must not pass; where it is missing,
    # none does.
    rare = np.minimum((bits == 1).sum(axis=1), (bits == 0).sum(axis=1))
    slack = np.where(swaps, misses, np.minimum(rare // 2, misses))
    wanted = (bits != UNKNOWN).sum(axis=1) - 2.0 * slack
    return np.where((rare == 0) & ~swaps, np.inf, wanted)


def decidable(frame: Frame, level: float) -> bool:
    """Return whether even a perfect prediction of the answers could be below a level."""
    known = frame.bits[frame.bits != UNKNOWN]
    n, rare = len(known), int(min(np.sum(known == 1), np.sum(known == 0)))
    if frame.swaps:  # the totals depend on the seed
        rare = n // 2
    ways = math.lgamma(n + 1) - math.lgamma(rare + 1) - math.lgamma(n - rare + 1)
    return math.log(2) - ways < math.log(level)


def frames_of(released: Released, channels: Sequence[Channel]) -> list[Frame]:
    """Return every way to look at the answers in which the labels may be constant."""
    answers = released.answers.astype(np.int8)
    frames = [Frame(name="canonical order", bits=_seen(answers, released.swapped))]
    frames += [
        Frame(name=_order_of(one), bits=_seen(answers, one.guesses == 0, one.guesses == UNKNOWN))
        for one in channels
        if one.name == "id-hash"
    ]
    if released.layout != "chosen-rejected":  # whose order written is the answer
        written = Frame(name=WRITTEN, bits=answers)
        others = [frame for frame in frames if not _same(frame.bits, answers)]
        undone = Frame(name=f"{WRITTEN}, swaps undone", bits=answers, swaps=True)
        frames = [written, *others, undone]
    if released.truth is not None:
        unknown = released.truth == UNKNOWN
        frames.append(
            Frame(name=TRUTH, bits=_seen(answers, released.truth == 1, unknown), truth=True)
        )
    return frames


def _order_of(channel: Channel) -> str:
    """Return the name of the order that an id hashes."""
    return f"order of column {channel.details.get('column', '?')!r}"


def _seen(
    answers: Integer[np.ndarray, " n"], turned: np.ndarray, unknown: np.ndarray | None = None
) -> Integer[np.ndarray, " n"]:
    """Return answers turned round in some rows, unknown in others."""
    bits = answers ^ turned.astype(np.int8)
    return bits if unknown is None else np.where(unknown, np.int8(UNKNOWN), bits)


def _same(one: Integer[np.ndarray, " n"], other: Integer[np.ndarray, " n"]) -> bool:
    """Return whether two ways to look at the answers differ by a constant only."""
    turned = one ^ other
    return bool((one != UNKNOWN).all() and (turned == turned[:1]).all())


def groups(frames: Sequence[Frame]) -> list[Frames]:
    """Return frames that can be looked at in the same rows together; or each alone."""
    if not frames:
        return []
    together = np.all([frame.bits != UNKNOWN for frame in frames], axis=0)
    shared = together.sum() >= _OVERLAP
    return [Frames(part) for part in ([frames] if shared else [[frame] for frame in frames])]


def _window(bits: Integer[np.ndarray, "f n"]) -> int:
    """Return how many rows from the beginning hold enough of both values in every frame."""
    wanted = TIERS[0][0] + 1
    reached = [TIERS[-1][0]]
    for row, value in ((row, value) for row in bits[:, :_WINDOW] for value in (0, 1)):
        where = np.flatnonzero(row == value)
        reached.append(int(where[wanted - 1]) + 1 if len(where) >= wanted else _WINDOW)
    return min(max(reached) + TIERS[-1][0], len(bits[0]))


def _first_places(bits: Integer[np.ndarray, "f n"], window: int) -> Integer[np.ndarray, " k"]:
    """Return a few places to look at first, by turns of either value where it is rarest."""
    # The very first are those where all frames say the same, up to a constant, so that a wrong seed
    # is out after a few rows whatever the number of frames.
    seen = bits[:, :window]
    known = (seen != UNKNOWN).all(axis=0)
    shares = [np.mean(row[known] == 1) if known.any() else 0.5 for row in seen]
    rarest = seen[int(np.argmin([min(share, 1 - share) for share in shares]))]
    pattern = (1 << np.arange(len(seen))) @ (seen ^ rarest)
    values, counts = np.unique(pattern[known], return_counts=True)
    alike = known & (pattern == values[np.argmax(counts)]) if len(values) else known
    size = TIERS[-1][0]
    first = _by_turns(rarest, alike)[: size // 2]
    return np.array(list(dict.fromkeys([*first, *_by_turns(rarest, known)]))[:size], dtype=int)


def _by_turns(bits: Integer[np.ndarray, " n"], among: Bool[np.ndarray, " n"]) -> list[int]:
    """Return the places of ones and zeros by turns, then the rest of what there is more of."""
    ones, zeros = (np.flatnonzero(among & (bits == value)).tolist() for value in (1, 0))
    mixed = chain.from_iterable(zip_longest(ones, zeros))
    return [place for place in mixed if place is not None]
