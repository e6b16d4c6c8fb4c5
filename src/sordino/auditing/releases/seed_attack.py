"""The attack "seed": can the coins that flipped the answers be tossed again?

A coin that comes from a generator with a known seed, or from a hash of what is in the file, is
no coin: whoever tosses it again knows which answers were flipped. A recipe refutes only if it
undoes the flips: the labels are then constant in the order written, in the order that an id
hashes or in a public order, or equal the raw labels; and the predicted flips depend on the
answers more than all recipes together would by accident. Recipes, seeds, ids and orders of rows
are tried on a few rows first, then on all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer

from sordino.auditing.findings import Finding
from sordino.errors import UsageError
from sordino.privacy.coins import flip_probability

from .evidence import Channel
from .id_attack import IdChannel
from .label_frames import TIERS, TRUTH, Frame, Frames, decidable, frames_of, groups
from .reading import UNKNOWN, Released, parts_of
from .recipes import JOINS, CoinRecipe, IdRecipe, coin_recipes, id_recipes

CONSTANT = 0.99
"""Share of the labels that must come out the same when the flips are undone."""
FISHER_LEVEL = 1e-9
"""Chance, over all recipes tried together, that flips and answers agree so well by accident."""
CONVENTIONS = ("flips below q", "flips above 1 - q")
_CELLS = 1 << 21  # numbers drawn at once


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Case:
    """One recipe with the keys that it is given."""

    recipe: CoinRecipe  # what makes the uniform numbers
    keyed: str  # what the keys are, for the report
    n: int  # number of rows
    seeds: Sequence[int]  # the seeds to try
    # From a row to its id text or its number; unused for streams.
    key: Callable[[int], object] = int
    # For streams: the row that takes the first draw, the second, and so on.
    order: Integer[np.ndarray, " n"] | None = None
    blocks: bool = False  # for streams: whether also a second run of n draws is tried

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
    """A recipe and a seed that undo the flips."""

    case: Case
    seed: int
    layout: str
    convention: str
    frame: Frame  # where the labels then are constant, or equal the raw labels
    share: float  # share of the labels that are
    p_value: float  # of Fisher's test of flips against answers
    # 1 where it says that the answer was flipped, in the order of the file.
    flips: Integer[np.ndarray, " n"] = field(repr=False)


def association(flips: Bool[np.ndarray, " m"], bits: Bool[np.ndarray, " m"]) -> float:
    """Return the p-value of Fisher's exact test, given both totals; twice the smaller tail."""
    # Source: Fisher 1935: given both totals, the rows where both are 1 are hypergeometric.
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


Text = Callable[[int], str]

SMALL = "small seed"
UNSEEDED = "no seed"
_MOST_INTEGERS = 200
_MOST_FULL = 8  # seeds of the manifest that are tried with every recipe, not only the core
_LARGEST = 2**128
_CALLED_SEED = re.compile(r"seed|state|random|rng|salt|key|nonce", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]{1,39}")
_LONG_STREAM = 4096  # of longer files, small seeds are not run over all rows twice
_MOST_COLUMNS = 4
_DISTINCT = 0.9
_DEEPEST = 100
_END = object()  # of a list of parts
_MOST_JOINED = 1001  # small seeds that are tried with the ways to join texts
_BARRED = "prompt, x, y by '|'"
_COMMON_JOINS = tuple(f"prompt, x, y by {mark!a}" for mark in ("", "|", "\n", " "))
_SOME = 40  # rows by which keys are told apart


def manifest_integers(manifest: Mapping[str, Any] | None) -> dict[int, str]:
    """Return every whole number in a manifest, and where it stands first."""
    found: dict[int, str] = {}
    places = list(_integers(manifest, "manifest"))
    for value, path in sorted(places, key=lambda place: not _CALLED_SEED.search(place[1])):
        found.setdefault(value, path)
    return dict(list(found.items())[:_MOST_INTEGERS])


def _integers(value: Any, path: str) -> Iterator[tuple[int, str]]:
    """Yield whole numbers with their path, in the order of the JSON text."""
    # What lies deeper than 100 levels is left out, and nothing calls itself.
    inside: list[Iterator[tuple[str, Any]]] = [iter([(path, value)])]
    while inside:
        path, value = next(inside[-1], ("", _END))
        if value is _END:
            inside.pop()
        elif (isinstance(value, str) and _INTEGER.fullmatch(value.strip())) or _is_whole(value):
            yield int(value), path
        elif len(inside) <= _DEEPEST:
            inside.append(parts_of(value, path))


def _is_whole(value: Any) -> bool:
    """Return whether a value is a whole number that may be a seed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _LARGEST and value == int(value)


@dataclass(frozen=True, kw_only=True, repr=False)
class _Keys:
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
        self.columns = _key_columns(released, [channel.column for channel in self.ids])
        self.published = manifest_integers(released.manifest)
        first = [seed for seed, path in self.published.items() if _CALLED_SEED.search(path)]
        self.full = (first or list(self.published))[:_MOST_FULL]
        self.small = [seed for seed in seeds if seed not in self.published]

    def source(self, case: Case, seed: int) -> str:
        """Return where a seed is from."""
        unkeyed = case.recipe.kind == "unkeyed"
        return UNSEEDED if unkeyed else self.published.get(seed, SMALL)

    def stages(self) -> list[list[Case]]:
        """Return the cases: those without a seed and of the manifest's seeds; the small seeds."""
        others = [seed for seed in self.published if seed not in self.full]
        core = [recipe for recipe in self.recipes if recipe.core]
        first = [*self._cases(self.recipes, self.full), *self._cases(core, others, core=True)]
        return [first, list(self._cases(core, self.small, core=True))]

    def _cases(
        self, recipes: Sequence[CoinRecipe], seeds: Sequence[int], *, core: bool = False
    ) -> Iterator[Case]:
        """Yield every recipe with every kind of key."""
        for recipe in recipes:
            unkeyed = recipe.kind == "unkeyed"
            able = [0] if unkeyed else [seed for seed in seeds if recipe.takes(seed)]
            if not able or (unkeyed and core):  # which was tried already
                continue
            if recipe.kind == "stream":
                yield from self._streams(recipe, able)
            elif recipe.kind == "row":
                for start in (0,) if core else (0, 1):
                    yield self._case(recipe, able, f"row number from {start}", start.__add__)
            else:
                for keys in self._keys:
                    if keys.core or not core:
                        yield self._case(recipe, able, keys.name, keys.text)
                for keys in self._joins if recipe.core else ():
                    if keys.core or unkeyed:
                        yield self._case(recipe, able[:_MOST_JOINED], keys.name, keys.text)

    def _case(
        self, recipe: CoinRecipe, seeds: Sequence[int], keyed: str, key: Callable[[int], object]
    ) -> Case:
        """Return a recipe with one kind of key."""
        return Case(recipe=recipe, keyed=keyed, n=self.n, seeds=seeds, key=key)

    def _streams(self, recipe: CoinRecipe, seeds: Sequence[int]) -> Iterator[Case]:
        """Yield draws in the order of the file, and in the order of an id column."""
        blocks = len(seeds) <= _MOST_INTEGERS or self.n <= _LONG_STREAM
        for name, order in self._row_orders:
            yield Case(recipe=recipe, keyed=name, n=self.n, seeds=seeds, order=order, blocks=blocks)

    @cached_property
    def _row_orders(self) -> list[tuple[str, Integer[np.ndarray, " n"]]]:
        """Return the orders in which one generator may have served the rows."""
        orders = [("rows in file order", np.arange(self.n))]
        for name in self.columns[:1]:
            values = np.array([str(value) for value in self.released.columns[name]])
            orders.append((f"rows sorted by column {name!r}", np.argsort(values, kind="stable")))
        return orders

    @cached_property
    def _keys(self) -> list[_Keys]:
        """Return the ids: columns, hashes and joined texts in three orders, prompts, numbers."""
        released = self.released
        found = [
            _Keys(name=f"column {name!r}", text=_column_text(released, name), core=place == 0)
            for place, name in enumerate(self.columns)
        ]
        recipe = self.ids[0].recipe if self.ids else id_recipes()[0]
        for order in self._orders:
            arranged = _arranged(released, order)
            core = order == "canonical" or (order == "written" and not self.columns)
            found.append(_Keys(name=f"id, {order}", text=_hashed(recipe, arranged), core=core))
        found.append(_Keys(name="prompt", text=released.prompts.__getitem__, core=True))
        found += [_Keys(name="row from 0", text=str), _Keys(name="row from 1", text=_next)]
        found += [
            _Keys(name=f"texts, {order}", text=_joined(JOINS[_BARRED], _arranged(released, order)))
            for order in self._orders
            if "reversed" not in order
        ]
        return self._distinct(found)

    @cached_property
    def _joins(self) -> list[_Keys]:
        """Return every way to join the texts of a row; with a seed, the common ones are tried."""
        return self._distinct(
            [
                _Keys(
                    name=f"{name}, {order}",
                    text=_joined(join, _arranged(self.released, order)),
                    core=name in _COMMON_JOINS and "reversed" not in order,
                )
                for name, join in JOINS.items()
                for order in self._orders
            ]
        )

    @property
    def _orders(self) -> list[str]:
        """Return the orders in which the answers of a row may have been put."""
        if self.released.layout == "chosen-rejected":
            return ["canonical", "canonical, reversed"]
        return ["written", "reversed", "canonical"]

    def _distinct(self, found: Sequence[_Keys]) -> list[_Keys]:
        """Return keys without those that are the same in some rows: they are tried once."""
        some = range(0, self.n, max(1, self.n // _SOME))
        distinct = {tuple(map(keys.text, some)): keys for keys in reversed(found)}
        return [keys for keys in found if keys in distinct.values()]


def _next(row: int) -> str:
    """Return the number of a row, counted from 1."""
    return str(row + 1)


def _key_columns(released: Released, first: Sequence[str]) -> list[str]:
    """Return the columns that may key a coin: almost every row has a value of its own."""
    able = [
        name
        for name, values in released.columns.items()
        if all(isinstance(value, str | int) for value in values)
        and len(set(values)) >= _DISTINCT * len(values)
    ]
    return sorted(able, key=lambda name: name not in first)[:_MOST_COLUMNS]


def _column_text(released: Released, name: str) -> Text:
    """Return a column as id texts."""
    values = released.columns[name]
    return lambda row: str(values[row])


def _arranged(released: Released, order: str) -> Callable[[int], tuple[str, str, str]]:
    """Return prompt and answers of a row in an order."""

    def texts(row: int) -> tuple[str, str, str]:
        turn = order.endswith("reversed") ^ (
            order.startswith("canonical") and bool(released.swapped[row])
        )
        pair = released.first[row], released.second[row]
        return released.prompts[row], pair[turn], pair[not turn]

    return texts


def _hashed(recipe: IdRecipe, texts: Callable[[int], tuple[str, str, str]]) -> Text:
    """Return the ids that a recipe makes, in hexadecimal."""
    made: dict[int, str] = {}

    def text(row: int) -> str:
        if row not in made:
            made[row] = recipe.of(*texts(row)).hex()
        return made[row]

    return text


def _joined(
    join: Callable[[str, str, str], str], texts: Callable[[int], tuple[str, str, str]]
) -> Text:
    """Return the texts of a row as one."""
    return lambda row: join(*texts(row))


Progress = Callable[[int, int], None]

ATTACK = "seed"
_TOO_FEW = "So few answers differ that not even the right seed could be told from chance."


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CoinHit:
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

    @property
    def by_truth(self) -> bool:
        """Return whether it was judged by the raw labels."""
        return self.judged == TRUTH


@dataclass(frozen=True, kw_only=True)
class CoinAttack:
    """What was tried to toss the coins again, and what worked."""

    recipes_tried: int  # comparisons of flips with answers: recipes × seeds × keys × orders
    # What undoes the flips; judged by the raw labels first, then the best.
    hits: tuple[CoinHit, ...] = field(repr=False)
    # In what the labels were compared; empty if so few answers differ that not even the right
    # recipe could be told from chance.
    judged: tuple[str, ...]


def attack_coins(
    released: Released,
    channels: Sequence[Channel],
    *,
    recipes: Sequence[CoinRecipe] | None = None,
    seeds: Sequence[int] = range(10_001),
    progress: Progress | None = None,
) -> CoinAttack:
    """Return what it takes to toss the coins of a released file again."""
    # The seeds of the manifest are tried with every recipe, small seeds with the common ones, and
    # these not at all once a seed of the manifest has worked.
    tried = coin_recipes() if recipes is None else recipes
    plan = Plan(released, channels, tried, seeds)
    frames = frames_of(released, channels)
    stages = plan.stages()
    planned = sum(comparisons(case, frames) for stage in stages for case in stage)
    level = FISHER_LEVEL / max(planned, 1)
    frames = [frame for frame in frames if decidable(frame, level)]
    looks = groups(frames)
    found: list[Match] = []
    done = 0
    for stage in stages:
        for case, group in product(stage, looks):
            found += matches(case, group, released.epsilon, level)
            done += comparisons(case, group.each)
            if progress is not None:
                progress(done, planned)
        if found:
            break
    hits = [_hit(plan, released, match) for match in found]
    best = sorted(hits, key=lambda hit: (not hit.by_truth, hit.p_value, -hit.constant_share))
    names = tuple(frame.name for frame in frames)
    return CoinAttack(recipes_tried=done, hits=tuple(best), judged=names)


def _hit(plan: Plan, released: Released, match: Match) -> CoinHit:
    """Return a match in words."""
    case = match.case
    parts = (case.recipe.name, case.keyed, match.layout, match.convention)
    return CoinHit(
        recipe="; ".join(filter(None, parts)),
        seed=None if case.recipe.kind == "unkeyed" else match.seed,
        source=plan.source(case, match.seed),
        judged=match.frame.name,
        constant_share=match.share,
        p_value=match.p_value,
        guesses=released.answers.astype(np.int8) ^ match.flips,
    )


def seed_findings(attack: CoinAttack, released: Released) -> list[Finding]:
    """Return the finding of the attack "seed": the best of what undoes the flips, if any does."""
    details: dict[str, Any] = {"recipes_tried": attack.recipes_tried, "judged": list(attack.judged)}
    if attack.hits:
        return [_refutation(attack, released, details)]
    if not attack.judged:
        return [Finding(attack=ATTACK, outcome="skipped", summary=_TOO_FEW, details=details)]
    summary = f"None of {attack.recipes_tried:,} recipes for reproducible coins undoes the flips."
    return [Finding(attack=ATTACK, outcome="clear", summary=summary, details=details)]


def _refutation(attack: CoinAttack, released: Released, details: dict[str, Any]) -> Finding:
    """Return the finding for a recipe that works."""
    hit = attack.hits[0]
    recovered, counted = hit.constant_share, len(released)
    if released.truth is not None:
        known = released.truth != UNKNOWN
        if known.any():
            recovered = float(np.mean(hit.guesses[known] == released.truth[known]))
            counted = int(known.sum())
    flips = int(np.sum(hit.guesses != released.answers))
    summary = f"{_subject(hit)} predicts which answers were flipped: {_success(hit)}"
    return Finding(
        attack=ATTACK,
        outcome="refutes",
        summary=summary,
        recovered=recovered,
        p_value=hit.p_value,
        details=details
        | {
            "recipe": hit.recipe,
            "seed": hit.seed,
            "seed_source": hit.source,
            "judged_by": hit.judged,
            "constant_share": hit.constant_share,
            "flips": flips,
            "rows": counted,
            "hits": len(attack.hits),
        },
    )


def _subject(hit: CoinHit) -> str:
    """Return what makes the coins again."""
    if hit.seed is None:
        return "A hash of what is in the file, without any seed,"
    if hit.source == SMALL:
        return f"The small seed {hit.seed}"
    return f"The published seed in the manifest ({hit.source.removeprefix('manifest.')})"


def _success(hit: CoinHit) -> str:
    """Return how well the flips are undone."""
    share = f"{100 * hit.constant_share:.4g} %"
    if hit.by_truth:
        return f"with it {share} of the labels equal the raw ones."
    return f"with it {share} of the labels are constant in the {hit.judged}."
