"""The search for a coin: every recipe, seed and order of rows, a few rows first, then all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Bool, Float, Integer

from sordino.auditing.releases._coin_frames import TIERS, Frame, Frames
from sordino.auditing.releases.recipes import CoinRecipe
from sordino.auditing.releases.released import UNKNOWN
from sordino.errors import UsageError
from sordino.privacy.coins import flip_probability

__all__ = [
    "CONSTANT",
    "CONVENTIONS",
    "FISHER_LEVEL",
    "Case",
    "Match",
    "association",
    "comparisons",
    "matches",
]

CONSTANT = 0.99
"""Share of the labels that must come out the same when the flips are undone."""
FISHER_LEVEL = 1e-9
"""Chance, over all recipes tried together, that flips and answers agree so well by accident."""
CONVENTIONS = ("flips below q", "flips above 1 - q")
_CELLS = 1 << 21  # numbers drawn at once


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Case:
    """One recipe with the keys that it is given.

    Attributes:
        recipe: What makes the uniform numbers.
        keyed: What the keys are, for the report.
        n: Number of rows.
        seeds: The seeds to try.
        key: From a row to its id text or its number; unused for streams.
        order: For streams: the row that takes the first draw, the second, and so on.
        blocks: For streams: whether also a second run of n draws is tried.
    """

    recipe: CoinRecipe
    keyed: str
    n: int
    seeds: Sequence[int]
    key: Callable[[int], object] = int
    order: Integer[np.ndarray, " n"] | None = None
    blocks: bool = False

    @property
    def stream(self) -> bool:
        """Return whether one generator serves all rows."""
        return self.recipe.kind == "stream"

    @property
    def near(self) -> bool:
        """Return whether only rows near the beginning are cheap to try with many seeds."""
        return self.recipe.kind in {"stream", "row"} and len(self.seeds) > TIERS[-1][0]

    def rows(self, places: Integer[np.ndarray, " k"]) -> Integer[np.ndarray, " k"]:
        """Return the rows that draw at some places: place 0 draws first."""
        return places if self.order is None else self.order[places]

    @property
    def layouts(self) -> tuple[str, ...]:
        """Return how the draws of a stream may be spent."""
        if not self.stream:
            return ("",)
        single = ("one draw per row", "flip then swap", "swap then flip")
        both = ("all flips then all swaps", "all swaps then all flips")
        return single + both if self.blocks else single

    def draws(
        self, seeds: Sequence[int], places: Integer[np.ndarray, " k"], epsilon: float
    ) -> Iterator[tuple[str, Float[np.ndarray, "s k"], Float[np.ndarray, "s k"] | None]]:
        """Yield for every layout what decides the flips, and the swaps if there are any."""
        if not self.stream:
            keys = [self.key(row) for row in self.rows(places).tolist()]
            yield "", self._uniforms(seeds, keys, epsilon), None
            return
        n, one = self.n, places
        wanted = [one, 2 * one, 2 * one + 1, *([one + n] if self.blocks else [])]
        numbers = np.unique(np.concatenate(wanted))
        table = self._uniforms(seeds, numbers.tolist(), epsilon)
        drawn = [table[:, np.searchsorted(numbers, where)] for where in wanted]
        pairs = [(drawn[0], None), (drawn[1], drawn[2]), (drawn[2], drawn[1])]
        if self.blocks:
            pairs += [(drawn[0], drawn[3]), (drawn[3], drawn[0])]
        for layout, (flips, swaps) in zip(self.layouts, pairs, strict=True):
            yield layout, flips, swaps

    def _uniforms(
        self, seeds: Sequence[int], keys: Sequence[object], epsilon: float
    ) -> Float[np.ndarray, "s k"]:
        """Return what the recipe makes; somebody else may have written it."""
        made = np.asarray(self.recipe.uniforms(seeds, keys, epsilon), dtype=float)
        if made.shape != (len(seeds), len(keys)):
            raise UsageError(
                f"The coin recipe {self.recipe.name!r} made an array of shape {made.shape} for "
                f"{len(seeds)} seed(s) and {len(keys)} key(s): it must have one row for each seed "
                "and one column for each key. The coins were not attacked."
            )
        return made

    @cached_property
    def distinct(self) -> Bool[np.ndarray, " n"]:
        """Return the rows with a key of their own: others share a coin, and are no new evidence."""
        keep = np.ones(self.n, dtype=bool)
        if not self.stream:
            seen: set[object] = set()
            for place, row in enumerate(self.rows(np.arange(self.n)).tolist()):
                key = self.key(row)
                keep[place] = key not in seen
                seen.add(key)
        return keep


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Match:
    """A recipe and a seed that undo the flips.

    Attributes:
        case, seed, layout, convention: What makes them.
        frame: Where the labels then are constant, or equal the raw labels.
        share: Share of the labels that are.
        p_value: Of Fisher's test of flips against answers.
        flips: 1 where it says that the answer was flipped, in the order of the file.
    """

    case: Case
    seed: int
    layout: str
    convention: str
    frame: Frame
    share: float
    p_value: float
    flips: Integer[np.ndarray, " n"] = field(repr=False)


def association(flips: Bool[np.ndarray, " m"], bits: Bool[np.ndarray, " m"]) -> float:
    """Return the p-value of Fisher's exact test, given both totals; twice the smaller tail.

    Source:
        Fisher 1935: given both totals, the rows where both are 1 are hypergeometric.

    Example:
        >>> half = np.arange(8) < 4
        >>> round(association(half, half) * 35, 12)  # 2 of the 70 ways to choose 4 of 8
        1.0
    """
    from scipy.stats import hypergeom  # noqa: PLC0415 (slow to import)

    both, total = int(np.sum(flips & bits)), len(bits)
    counts = total, int(bits.sum()), int(flips.sum())
    tails = float(hypergeom.cdf(both, *counts)), float(hypergeom.sf(both - 1, *counts))
    return min(1.0, 2.0 * min(tails))


def comparisons(case: Case, frames: Sequence[Frame]) -> int:
    """Return how many comparisons of flips with answers a case makes."""
    swapped = sum(frame.swaps for frame in frames)
    paired = sum(layout not in {"", "one draw per row"} for layout in case.layouts)
    plain = len(case.layouts) * (len(frames) - swapped)
    return len(case.seeds) * len(CONVENTIONS) * (plain + paired * swapped)


def matches(case: Case, frames: Frames, epsilon: float, level: float) -> list[Match]:
    """Return every seed of a case that undoes the flips in one of the frames."""
    search = _Search(case, frames, epsilon)
    return [match for seed in search.survivors() for match in search.judged(seed, level)]


class _Search:
    """One case in several frames."""

    def __init__(self, case: Case, frames: Frames, epsilon: float) -> None:
        """Turn the frames into the order in which the rows draw."""
        self.case, self.frames, self.epsilon = case, frames.each, epsilon
        self.q = _flip_probability(epsilon)
        self.screen, self.swaps = frames.screen(case.order, near=case.near), frames.swaps

    def survivors(self) -> list[int]:
        """Return the seeds that agree with the few rows looked at first."""
        agree = self._stream_agrees if self.case.stream else self._keyed_agrees
        places = self.screen.places
        drawn = 2 * int(places.max()) + self.case.n if self.case.stream else len(places)
        chunk = max(1, _CELLS // drawn)
        seeds = self.case.seeds
        parts = [seeds[start : start + chunk] for start in range(0, len(seeds), chunk)]
        return [seed for part in parts for seed in _take(part, agree(part))]

    def _flips(self, uniforms: Float[np.ndarray, "s k"]) -> tuple[np.ndarray, np.ndarray]:
        """Return what is flipped, by either convention."""
        return uniforms < self.q, uniforms >= 1 - self.q

    def _stream_agrees(self, seeds: Sequence[int]) -> Bool[np.ndarray, " s"]:
        """Return which seeds predict all but a few of the rows, in some frame and layout."""
        alive = np.zeros(len(seeds), dtype=bool)
        for _, uniforms, swaps in self.case.draws(seeds, self.screen.places, self.epsilon):
            for flips in self._flips(uniforms):
                signed = 2 * flips.astype(np.float32) - 1
                alive |= self._outweighs(signed, ~self.swaps)
                if swaps is not None and self.swaps.any():
                    signed *= np.where(swaps < 0.5, -1, 1)  # noqa: PLR2004 (a fair swap)
                    alive |= self._outweighs(signed, self.swaps)
        return alive

    def _outweighs(
        self, signed: Float[np.ndarray, "s k"], among: Bool[np.ndarray, " f"]
    ) -> Bool[np.ndarray, " s"]:
        """Return where agreements or disagreements outweigh the others in one of some frames."""
        sums = np.abs(signed @ self.screen.signs[:, among])
        return np.asarray((sums >= self.screen.enough[-1, among]).any(axis=1))

    def _keyed_agrees(self, seeds: Sequence[int]) -> Bool[np.ndarray, " s"]:
        """Return the same for coins that are tossed row by row: a few rows, then a few more."""
        plain = ~self.swaps
        signs, enough = self.screen.signs[:, plain], self.screen.enough[:, plain]
        alive = np.arange(len(seeds))
        sums = np.zeros((2, len(seeds), signs.shape[1]), dtype=np.float32)
        start = 0
        for wanted, (stop, _) in zip(enough, TIERS, strict=True):
            part = [seeds[index] for index in alive.tolist()]
            places = self.screen.places[start:stop]
            for _, uniforms, _ in self.case.draws(part, places, self.epsilon):
                for index, flips in enumerate(self._flips(uniforms)):
                    sums[index] += (2 * flips.astype(np.float32) - 1) @ signs[start:stop]
            keep = (np.abs(sums) >= wanted).any(axis=(0, 2))
            alive, sums, start = alive[keep], sums[:, keep], stop
            if not len(alive):
                break
        return np.isin(np.arange(len(seeds)), alive)

    def judged(self, seed: int, level: float) -> Iterator[Match]:
        """Yield every layout, convention and frame in which one seed undoes the flips."""
        places = np.arange(self.case.n)
        for layout, uniforms, swaps in self.case.draws([seed], places, self.epsilon):
            turns = None if swaps is None else swaps[0] < 0.5  # noqa: PLR2004 (a fair swap)
            for convention, flips in zip(CONVENTIONS, self._flips(uniforms), strict=True):
                for index, frame in enumerate(self.frames):
                    if frame.swaps and turns is None:
                        continue
                    share, p_value, said = self._judged(index, flips[0], turns)
                    if share >= CONSTANT and p_value < level:
                        yield Match(
                            case=self.case,
                            seed=seed,
                            layout=layout,
                            convention=convention,
                            frame=frame,
                            share=share,
                            p_value=p_value,
                            flips=said,
                        )

    def _judged(
        self, index: int, flips: Bool[np.ndarray, " n"], turns: Bool[np.ndarray, " n"] | None
    ) -> tuple[float, float, Integer[np.ndarray, " n"]]:
        """Return share, p-value, and the flips in the order of the file."""
        frame, bits = self.frames[index], self.screen.bits[index]
        known = bits != UNKNOWN
        ones = bits == 1
        if frame.swaps and turns is not None:
            ones = ones ^ turns
        share = float(np.mean((ones == flips)[known]))
        counted = known & self.case.distinct
        p_value = association(flips[counted], ones[counted])
        inverted = frame.truth and share < 0.5  # noqa: PLR2004 (keeps where the recipe flips)
        said = np.empty(len(flips), dtype=np.int8)
        said[self.case.rows(np.arange(self.case.n))] = flips ^ inverted
        return max(share, 1 - share), p_value, said


@lru_cache(maxsize=1)
def _flip_probability(epsilon: float) -> float:
    """Return how often the coin flips; it is computed in many digits, and asked for very often."""
    return flip_probability(epsilon)


def _take(seeds: Sequence[int], keep: Bool[np.ndarray, " s"]) -> list[int]:
    """Return the seeds that are kept."""
    return [seed for seed, kept in zip(seeds, keep.tolist(), strict=True) if kept]
