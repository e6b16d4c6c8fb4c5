"""The attack "seed": can the coins that flipped the answers be tossed again?

A coin that comes from a generator with a known seed, or from a hash of what is in the file, is
no coin: whoever tosses it again knows which answers were flipped. A recipe refutes only if it
undoes the flips: the labels are then constant in the order written, in the order that an id
hashes or in a public order, or equal the raw labels; and the predicted flips depend on the
answers more than all recipes together would by accident. Recipes, seeds, ids and orders of rows
are tried on a few rows first, then on all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import chain, product, zip_longest
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer

from sordino.auditing.findings import Finding, Outcome
from sordino.errors import UsageError
from sordino.preferences.containers import Progress
from sordino.privacy.conversions import flip_probability

from .reading import UNKNOWN, Channel, Released, parts_of
from .recipes import JOINS, CoinRecipe, IdChannel, coin_recipes, id_recipes

Text = Callable[[int], str]

# How many rows are looked at before a seed is given up, and how many of them may disagree.
_TIERS = ((5, 1), (8, 1), (18, 1), (40, 2))

# Share of the labels that must come out the same when the flips are undone.
_CONSTANT = 0.99

# Chance, over all recipes tried together, that flips and answers agree so well by accident.
_FISHER_LEVEL = 1e-9

_CONVENTIONS = ("flips below q", "flips above 1 - q")
_TRUTH = "raw truth"
_WRITTEN = "order written"
_SMALL = "small seed"
_UNSEEDED = "no seed"
_ATTACK = "seed"
_WINDOW = 4096  # a generator that is seeded 10^4 times is not run further than this
_OVERLAP = 64  # rows that frames must share to be looked at together
_MOST_INTEGERS = 200
_MOST_FULL = 8  # seeds of the manifest that are tried with every recipe, not only the core
_LARGEST = 2**128
_CALLED_SEED = re.compile(r"seed|state|random|rng|salt|key|nonce", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]{1,39}")
_LONG_STREAM = 4096  # of longer files, small seeds are not run over all rows twice
_DISTINCT = 0.9
_DEEPEST = 100
_MOST_JOINED = 1001  # small seeds that are tried with the ways to join texts
_COMMON_JOINS = tuple(f"prompt, x, y by {mark!a}" for mark in ("", "|", "\n", " "))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _Frame:
    """A way to look at the answers, in which they are the flips if the labels are constant."""

    name: str  # what the labels may be constant in, for the report
    bits: Integer[np.ndarray, " n"]  # 1, 0 or `UNKNOWN` for each row of the file
    # Whether the bits are the flips themselves, because the raw labels are known.
    truth: bool = False
    swaps: bool = False  # whether a swap drawn beside each flip is undone first


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _Screen:
    """The rows to look at first, and what a prediction must reach there."""

    bits: Integer[np.ndarray, "f n"]  # what the frames hold, in the order in which the rows draw
    places: Integer[np.ndarray, " k"]  # the rows to look at first
    signs: Float[np.ndarray, "k f"]  # 1 or -1 for what the frames hold there, 0 where unknown
    # For every tier and frame, the sum of agreements (1) and disagreements (-1) that keeps a seed.
    enough: Float[np.ndarray, "t f"]


class _Frames:
    """Frames that are looked at together, and the rows to look at first; found once."""

    def __init__(self, each: Sequence[_Frame]) -> None:
        self.each = tuple(each)
        self.swaps = np.array([frame.swaps for frame in each])
        self._screens: dict[tuple[int, bool], _Screen] = {}

    def screen(self, order: Integer[np.ndarray, " n"] | None, *, near: bool) -> _Screen:
        key = id(order), near  # an order lives as long as what is tried with it
        if key not in self._screens:
            bits = np.array(
                [frame.bits if order is None else frame.bits[order] for frame in self.each]
            )
            # How many rows from the beginning hold enough of both values in every frame.
            window, wanted = len(bits[0]), _TIERS[0][0] + 1
            if near:
                reached = [_TIERS[-1][0]]
                for row, value in product(bits[:, :_WINDOW], (0, 1)):
                    where = np.flatnonzero(row == value)
                    reached.append(int(where[wanted - 1]) + 1 if len(where) >= wanted else _WINDOW)
                window = min(max(reached) + _TIERS[-1][0], window)
            places = _first_places(bits, window)
            seen = bits[:, places]
            enough = np.array([_enough(seen[:, :size], miss, self.swaps) for size, miss in _TIERS])
            signs = np.where(seen == UNKNOWN, 0, 2 * seen - 1).astype(np.float32).T
            self._screens[key] = _Screen(bits=bits, places=places, signs=signs, enough=enough)
        return self._screens[key]


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
    size = _TIERS[-1][0]
    first = _by_turns(rarest, alike)[: size // 2]
    return np.array(list(dict.fromkeys([*first, *_by_turns(rarest, known)]))[:size], dtype=int)


def _by_turns(bits: Integer[np.ndarray, " n"], among: Bool[np.ndarray, " n"]) -> list[int]:
    """Return the places of ones and zeros by turns, then the rest of what there is more of."""
    ones, zeros = (np.flatnonzero(among & (bits == value)).tolist() for value in (1, 0))
    mixed = chain.from_iterable(zip_longest(ones, zeros))
    return [place for place in mixed if place is not None]


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


def _decidable(frame: _Frame, level: float) -> bool:
    """Return whether even a perfect prediction of the answers could be below a level."""
    known = frame.bits[frame.bits != UNKNOWN]
    n, rare = len(known), int(min(np.sum(known == 1), np.sum(known == 0)))
    if frame.swaps:  # the totals depend on the seed
        rare = n // 2
    ways = math.lgamma(n + 1) - math.lgamma(rare + 1) - math.lgamma(n - rare + 1)
    return math.log(2) - ways < math.log(level)


def _frames_of(released: Released, channels: Sequence[Channel]) -> list[_Frame]:
    """Return every way to look at the answers in which the labels may be constant."""
    answers = released.answers.astype(np.int8)

    def seen(turned: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
        """Return answers turned round in some rows, unknown in others."""
        bits = answers ^ turned.astype(np.int8)
        return bits if unknown is None else np.where(unknown, np.int8(UNKNOWN), bits)

    frames = [_Frame(name="canonical order", bits=seen(released.swapped))]
    for channel in channels:
        if channel.name == "id-hash":
            name = f"order of column {channel.details.get('column', '?')!r}"
            bits = seen(channel.guesses == 0, channel.guesses == UNKNOWN)
            frames.append(_Frame(name=name, bits=bits))
    if released.layout != "chosen-rejected":  # whose order written is the answer
        others = []
        for frame in frames:  # one that differs from the order written by a constant only is none
            turned = frame.bits ^ answers
            if (frame.bits == UNKNOWN).any() or (turned != turned[:1]).any():
                others.append(frame)
        undone = _Frame(name=f"{_WRITTEN}, swaps undone", bits=answers, swaps=True)
        frames = [_Frame(name=_WRITTEN, bits=answers), *others, undone]
    if released.truth is not None:
        bits = seen(released.truth == 1, released.truth == UNKNOWN)
        frames.append(_Frame(name=_TRUTH, bits=bits, truth=True))
    return frames


@dataclass(frozen=True, repr=False, eq=False)
class _Case:
    """One recipe with the keys that it is given."""

    recipe: CoinRecipe  # what makes the uniform numbers
    seeds: Sequence[int]  # the seeds to try
    keyed: str  # what the keys are, for the report
    _: KW_ONLY
    n: int  # number of rows
    published: Mapping[int, str]  # where each seed that the manifest holds stands there
    # From a row to its id text or its number; unused for streams.
    key: Callable[[int], object] = int
    # For streams: the row that takes the first draw, the second, and so on.
    order: Integer[np.ndarray, " n"] | None = None
    blocks: bool = False  # for streams: whether also a second run of n draws is tried

    @property
    def stream(self) -> bool:
        return self.recipe.kind == "stream"

    @property
    def near(self) -> bool:
        """Return whether only rows near the beginning are cheap to try with many seeds."""
        return self.recipe.kind in {"stream", "row"} and len(self.seeds) > _TIERS[-1][0]

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
class _CoinHit:
    """A coin recipe that undoes the flips."""

    recipe: str  # what was hashed or seeded, with which keys, and when it flips
    seed: int | None  # the seed; None if the recipe needs none
    source: str  # where it is from: `"manifest.global_seed"`, `"small seed"`, `"no seed"`
    # What the labels were compared with: `"raw truth"`, or the order in which they are constant:
    # `"order written"`, `"canonical order"`, `"order of column ..."`.
    judged: str
    constant_share: float  # share of labels that are constant there, or equal the raw ones
    p_value: float  # fisher's exact test of predicted flips against answers
    # 1 where it says that the answer written first is truly preferred, else 0.
    guesses: Integer[np.ndarray, " n"]


@dataclass(frozen=True, kw_only=True)
class _CoinAttack:
    """What was tried to toss the coins again, and what worked."""

    recipes_tried: int  # comparisons of flips with answers: recipes × seeds × keys × orders
    # What undoes the flips; judged by the raw labels first, then the best.
    hits: tuple[_CoinHit, ...] = field(repr=False)
    # In what the labels were compared; empty if so few answers differ that not even the right
    # recipe could be told from chance.
    judged: tuple[str, ...]


def _association(flips: Bool[np.ndarray, " m"], bits: Bool[np.ndarray, " m"]) -> float:
    """Return the p-value of Fisher's exact test, given both totals; twice the smaller tail."""
    # Source: Fisher 1935: given both totals, the rows where both are 1 are hypergeometric.
    from scipy.stats import hypergeom  # noqa: PLC0415 (slow to import)

    both, total = int(np.sum(flips & bits)), len(bits)
    counts = total, int(bits.sum()), int(flips.sum())
    tails = float(hypergeom.cdf(both, *counts)), float(hypergeom.sf(both - 1, *counts))
    return min(1.0, 2.0 * min(tails))


def _comparisons(case: _Case, frames: Sequence[_Frame]) -> int:
    """Return how many comparisons of flips with answers a case makes."""
    swapped = sum(frame.swaps for frame in frames)
    paired = sum(layout not in {"", "one draw per row"} for layout in case.layouts)
    plain = len(case.layouts) * (len(frames) - swapped)
    return len(case.seeds) * len(_CONVENTIONS) * (plain + paired * swapped)


class _Search:
    """One case in several frames."""

    def __init__(self, case: _Case, frames: _Frames, released: Released, q: float) -> None:
        """Turn the frames into the order in which the rows draw; q is how often coins flip."""
        self.case, self.frames, self.q = case, frames.each, q
        self.epsilon, self.answers = released.epsilon, released.answers.astype(np.int8)
        self.screen, self.swaps = frames.screen(case.order, near=case.near), frames.swaps

    def hits(self, level: float) -> Iterator[_CoinHit]:
        """Yield every seed that undoes the flips in one of the frames."""
        seeds, places = self.case.seeds, self.screen.places
        drawn = 2 * int(places.max()) + self.case.n if self.case.stream else len(places)
        chunk = max(1, (1 << 21) // drawn)  # numbers drawn at once
        for start in range(0, len(seeds), chunk):
            for seed in self._survivors(seeds[start : start + chunk]):
                yield from self._judged(seed, level)

    def _flips(self, uniforms: Float[np.ndarray, "s k"]) -> tuple[np.ndarray, np.ndarray]:
        """Return what is flipped, by either convention."""
        return uniforms < self.q, uniforms >= 1 - self.q

    def _survivors(self, seeds: Sequence[int]) -> Sequence[int]:
        """Return which seeds predict all but a few of the rows looked at first, in some frame."""
        # A stream takes as long for a few of them as for all; other coins are tossed for a few,
        # then for a few more.
        for tier in range(len(_TIERS) - 1 if self.case.stream else 0, len(_TIERS)):
            some, kept = _TIERS[tier][0], np.zeros(len(seeds), dtype=bool)
            draws = self.case.draws(seeds, self.screen.places[:some], self.epsilon)
            for _, uniforms, swaps in draws if len(seeds) else ():
                looks: list[tuple[np.ndarray, np.ndarray | int]] = [(~self.swaps, 1)]
                if swaps is not None:
                    looks.append((self.swaps, np.where(swaps < 0.5, -1, 1)))  # noqa: PLR2004 (fair)
                for flips, (among, undone) in product(self._flips(uniforms), looks):
                    signed = (2 * flips.astype(np.float32) - 1) * undone
                    sums = np.abs(signed @ self.screen.signs[:some, among])
                    kept |= (sums >= self.screen.enough[tier, among]).any(axis=1)
            seeds = [seed for seed, keep in zip(seeds, kept.tolist(), strict=True) if keep]
        return seeds

    def _judged(self, seed: int, level: float) -> Iterator[_CoinHit]:
        """Yield every layout, convention and frame in which one seed undoes the flips."""
        case = self.case
        unkeyed = case.recipe.kind == "unkeyed"
        for layout, uniforms, swaps in case.draws([seed], np.arange(case.n), self.epsilon):
            turns = None if swaps is None else swaps[0] < 0.5  # noqa: PLR2004 (a fair swap)
            conventions = zip(_CONVENTIONS, self._flips(uniforms), strict=True)
            for (convention, flips), index in product(conventions, range(len(self.frames))):
                frame = self.frames[index]
                if frame.swaps and turns is None:
                    continue
                # In what share of the rows the flips are the bits of the frame, and the p-value.
                bits = self.screen.bits[index]
                known, ones = bits != UNKNOWN, bits == 1
                if frame.swaps and turns is not None:
                    ones = ones ^ turns
                share = float(np.mean((ones == flips[0])[known]))
                counted = known & case.distinct
                p_value = _association(flips[0][counted], ones[counted])
                if max(share, 1 - share) < _CONSTANT or p_value >= level:
                    continue
                inverted = frame.truth and share < 0.5  # noqa: PLR2004 (keeps where it flips)
                flipped = np.empty(case.n, dtype=np.int8)  # in the order of the file
                flipped[case.rows(np.arange(case.n))] = flips[0] ^ inverted
                parts = (case.recipe.name, case.keyed, layout, convention)
                yield _CoinHit(
                    recipe="; ".join(filter(None, parts)),
                    seed=None if unkeyed else seed,
                    source=_UNSEEDED if unkeyed else case.published.get(seed, _SMALL),
                    judged=frame.name,
                    constant_share=max(share, 1 - share),
                    p_value=p_value,
                    guesses=self.answers ^ flipped,
                )


def _integers(path: str, value: object, levels: int = _DEEPEST) -> Iterator[tuple[int, str]]:
    """Yield every whole number in a value, and where it stands, in the order of the JSON text."""
    # What lies deeper than 100 levels is left out.
    if (isinstance(value, str) and _INTEGER.fullmatch(value.strip())) or (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < _LARGEST
        and value == int(value)
    ):
        yield int(value), path
    elif levels:
        for part in parts_of(value, path):
            yield from _integers(*part, levels - 1)


def _manifest_integers(manifest: Mapping[str, object] | None) -> dict[int, str]:
    """Return every whole number in a manifest, and where it stands first."""
    places = _integers("manifest", manifest)
    found: dict[int, str] = {}
    for whole, path in sorted(places, key=lambda place: not _CALLED_SEED.search(place[1])):
        found.setdefault(whole, path)
    return dict(list(found.items())[:_MOST_INTEGERS])


class _Keys(NamedTuple):
    """What a keyed coin may be keyed by."""

    name: str
    text: Text
    core: bool = False


class Plan:
    """Every case to try on one file, in three stages."""

    def __init__(
        self,
        released: Released,
        channels: Sequence[Channel],
        recipes: Sequence[CoinRecipe],
        seeds: Sequence[int],
    ) -> None:
        """Look at the columns; nothing is hashed yet."""
        self.released, self.recipes, self.n = released, recipes, len(released)
        self.ids = [channel for channel in channels if isinstance(channel, IdChannel)]
        # Columns may key a coin where almost every row has a value of its own.
        able = [
            name
            for name, values in released.columns.items()
            if all(isinstance(value, str | int) for value in values)
            and len(set(values)) >= _DISTINCT * len(values)
        ]
        first = {channel.column for channel in self.ids}
        self.columns = sorted(able, key=lambda name: name not in first)[:4]
        # The orders in which one generator may have served the rows.
        self.row_orders = [("rows in file order", np.arange(self.n))]
        for name in self.columns[:1]:
            values = np.array([str(value) for value in released.columns[name]])
            order = np.argsort(values, kind="stable")
            self.row_orders.append((f"rows sorted by column {name!r}", order))
        self.published = _manifest_integers(released.manifest)
        called = [seed for seed, path in self.published.items() if _CALLED_SEED.search(path)]
        self.full = (called or list(self.published))[:_MOST_FULL]
        self.small = [seed for seed in seeds if seed not in self.published]

    def stages(self) -> list[list[_Case]]:
        """Return the cases: those without a seed and of the manifest's seeds; the small seeds."""
        others = [seed for seed in self.published if seed not in self.full]
        core = [recipe for recipe in self.recipes if recipe.core]
        first = [*self._cases(self.recipes, self.full), *self._cases(core, others, core=True)]
        return [first, list(self._cases(core, self.small, core=True))]

    def _cases(
        self, recipes: Sequence[CoinRecipe], seeds: Sequence[int], *, core: bool = False
    ) -> Iterator[_Case]:
        """Yield every recipe with every kind of key, or one generator with every order of rows."""
        case = partial(_Case, n=self.n, published=self.published)
        for recipe in recipes:
            unkeyed = recipe.kind == "unkeyed"
            able = [seed for seed in seeds if recipe.least <= seed <= recipe.most]
            able = [0] if unkeyed else able
            if not able or (unkeyed and core):  # which was tried already
                continue
            if recipe.kind == "stream":
                blocks = len(able) <= _MOST_INTEGERS or self.n <= _LONG_STREAM
                for name, order in self.row_orders:
                    yield case(recipe, able, name, order=order, blocks=blocks)
            elif recipe.kind == "row":
                for start in (0,) if core else (0, 1):
                    yield case(recipe, able, f"row number from {start}", key=start.__add__)
            else:
                for keys in [one for one in self._keys if one.core or not core]:
                    yield case(recipe, able, keys.name, key=keys.text)
                for keys in self._joins if recipe.core else ():
                    if keys.core or unkeyed:
                        yield case(recipe, able[:_MOST_JOINED], keys.name, key=keys.text)

    @cached_property
    def _keys(self) -> list[_Keys]:
        """Return the ids: columns, hashes and joined texts in three orders, prompts, numbers."""
        released, found = self.released, []
        for place, name in enumerate(self.columns):
            texts = [str(value) for value in released.columns[name]]
            found.append(_Keys(f"column {name!r}", texts.__getitem__, core=place == 0))
        recipe = self.ids[0].recipe if self.ids else id_recipes()[0]
        orders = self._orders
        for order, arranged in orders.items():
            core = order == "canonical" or (order == "written" and not self.columns)
            made = lru_cache(maxsize=None)(
                _joined(lambda *three: recipe.of(*three).hex(), arranged)
            )
            found.append(_Keys(f"id, {order}", made, core=core))
        found.append(_Keys(name="prompt", text=released.prompts.__getitem__, core=True))
        found += [_Keys("row from 0", str), _Keys("row from 1", lambda row: str(row + 1))]
        found += [
            _Keys(f"texts, {order}", _joined(JOINS["prompt, x, y by '|'"], arranged))
            for order, arranged in orders.items()
            if "reversed" not in order
        ]
        return self._distinct(found)

    @cached_property
    def _joins(self) -> list[_Keys]:
        """Return every way to join the texts of a row; with a seed, the common ones are tried."""
        return self._distinct(
            [
                _Keys(
                    f"{name}, {order}",
                    _joined(join, arranged),
                    core=name in _COMMON_JOINS and "reversed" not in order,
                )
                for name, join in JOINS.items()
                for order, arranged in self._orders.items()
            ]
        )

    @cached_property
    def _orders(self) -> dict[str, _Arranged]:
        """Return prompt and answers of a row in the orders in which these may have been put."""
        has = self.released

        def arranged(order: str) -> _Arranged:
            def texts(row: int) -> tuple[str, str, str]:
                canonical = order.startswith("canonical") and bool(has.swapped[row])
                turn = order.endswith("reversed") ^ canonical
                pair = has.first[row], has.second[row]
                return has.prompts[row], pair[turn], pair[not turn]

            return texts

        if has.layout == "chosen-rejected":
            return {order: arranged(order) for order in ("canonical", "canonical, reversed")}
        return {order: arranged(order) for order in ("written", "reversed", "canonical")}

    def _distinct(self, found: Sequence[_Keys]) -> list[_Keys]:
        """Return keys without those that are the same in some rows: they are tried once."""
        some = range(0, self.n, max(1, self.n // 40))  # rows by which keys are told apart
        distinct = {tuple(map(keys.text, some)): keys for keys in reversed(found)}
        return [keys for keys in found if keys in distinct.values()]


_Arranged = Callable[[int], tuple[str, str, str]]


def _joined(join: Callable[[str, str, str], str], texts: _Arranged) -> Text:
    return lambda row: join(*texts(row))


def attack_coins(
    released: Released,
    channels: Sequence[Channel],
    *,
    recipes: Sequence[CoinRecipe] | None = None,
    seeds: Sequence[int] = range(10_001),
    progress: Progress | None = None,
) -> _CoinAttack:
    """Return what it takes to toss the coins of a released file again."""
    # The seeds of the manifest are tried with every recipe, small seeds with the common ones, and
    # these not at all once a seed of the manifest has worked.
    tried = coin_recipes() if recipes is None else recipes
    frames = _frames_of(released, channels)
    stages = Plan(released, channels, tried, seeds).stages()
    planned = sum(_comparisons(case, frames) for stage in stages for case in stage)
    level = _FISHER_LEVEL / max(planned, 1)
    frames = [frame for frame in frames if _decidable(frame, level)]
    # Frames are looked at in the same rows together where they share enough, or each alone.
    together = np.all([frame.bits != UNKNOWN for frame in frames], axis=0)
    shared = bool(frames) and together.sum() >= _OVERLAP
    looks = [_Frames(part) for part in ([frames] if shared else [[frame] for frame in frames])]
    hits: list[_CoinHit] = []
    done, q = 0, flip_probability(released.epsilon)
    for stage in stages:
        for case, look in product(stage, looks):
            hits += _Search(case, look, released, q).hits(level)
            done += _comparisons(case, look.each)
            if progress is not None:
                progress(done, planned)
        if hits:
            break
    best = sorted(hits, key=lambda hit: (hit.judged != _TRUTH, hit.p_value, -hit.constant_share))
    names = tuple(frame.name for frame in frames)
    return _CoinAttack(recipes_tried=done, hits=tuple(best), judged=names)


def seed_finding(attack: _CoinAttack, released: Released) -> Finding:
    """Return the finding of the attack "seed": the best of what undoes the flips, if any does."""
    details: dict[str, object] = {
        "recipes_tried": attack.recipes_tried,
        "judged": list(attack.judged),
    }
    if not attack.hits:
        summary = (
            f"None of {attack.recipes_tried:,} recipes for reproducible coins undoes the flips."
            if attack.judged
            else "So few answers differ that not even the right seed could be told from chance."
        )
        outcome: Outcome = "clear" if attack.judged else "skipped"
        return Finding(attack=_ATTACK, outcome=outcome, summary=summary, details=details)
    hit = attack.hits[0]
    recovered, counted = hit.constant_share, len(released)
    if released.truth is not None:
        known = released.truth != UNKNOWN
        if known.any():
            recovered = float(np.mean(hit.guesses[known] == released.truth[known]))
            counted = int(known.sum())
    where = hit.source.removeprefix("manifest.")
    subject = f"The published seed in the manifest ({where})"
    if hit.seed is None:
        subject = "A hash of what is in the file, without any seed,"
    elif hit.source == _SMALL:
        subject = f"The small seed {hit.seed}"
    are = "equal the raw ones" if hit.judged == _TRUTH else f"are constant in the {hit.judged}"
    details |= {
        "recipe": hit.recipe,
        "seed": hit.seed,
        "seed_source": hit.source,
        "judged_by": hit.judged,
        "constant_share": hit.constant_share,
        "flips": int(np.sum(hit.guesses != released.answers)),
        "rows": counted,
        "hits": len(attack.hits),
    }
    return Finding(
        attack=_ATTACK,
        outcome="refutes",
        summary=f"{subject} predicts which answers were flipped: with it "
        f"{100 * hit.constant_share:.4g} % of the labels {are}.",
        recovered=recovered,
        p_value=hit.p_value,
        details=details,
    )
