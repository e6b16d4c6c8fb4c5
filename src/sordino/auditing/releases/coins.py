"""The attack "seed": can the coins that flipped the answers be tossed again?

A coin that comes from a generator with a known seed, or from a hash of what is in the file, is
no coin: whoever tosses it again knows which answers were flipped. A recipe refutes only if it
undoes the flips: the labels are then constant in the order written, in the order that an id
hashes or in a public order, or equal the raw labels; and the predicted flips depend on the
answers more than all recipes together would by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino.auditing.findings import Finding
from sordino.auditing.releases._coin_frames import TRUTH, decidable, frames_of, groups
from sordino.auditing.releases._coin_plan import SMALL, Plan, manifest_integers
from sordino.auditing.releases._coin_search import (
    FISHER_LEVEL,
    Match,
    comparisons,
    matches,
)
from sordino.auditing.releases.evidence import Channel
from sordino.auditing.releases.recipes import CoinRecipe, coin_recipes
from sordino.auditing.releases.released import UNKNOWN, Released

__all__ = ["CoinAttack", "CoinHit", "attack_coins", "manifest_integers", "seed_findings"]

Progress = Callable[[int, int], None]

ATTACK = "seed"
_TOO_FEW = "So few answers differ that not even the right seed could be told from chance."


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CoinHit:
    """A coin recipe that undoes the flips.

    Attributes:
        recipe: What was hashed or seeded, with which keys, and when it flips.
        seed: The seed; None if the recipe needs none.
        source: Where it is from: ``"manifest.global_seed"``, ``"small seed"``, ``"no seed"``.
        judged: What the labels were compared with: ``"raw truth"``, or the order in which they
            are constant: ``"order written"``, ``"canonical order"``, ``"order of column ..."``.
        constant_share: Share of labels that are constant there, or equal the raw ones.
        p_value: Fisher's exact test of predicted flips against answers.
        guesses: 1 where it says that the answer written first is truly preferred, else 0.
    """

    recipe: str
    seed: int | None
    source: str
    judged: str
    constant_share: float
    p_value: float
    guesses: Integer[np.ndarray, " n"]

    @property
    def by_truth(self) -> bool:
        """Return whether it was judged by the raw labels."""
        return self.judged == TRUTH


@dataclass(frozen=True, kw_only=True)
class CoinAttack:
    """What was tried to toss the coins again, and what worked.

    Attributes:
        recipes_tried: Comparisons of flips with answers: recipes × seeds × keys × orders.
        hits: What undoes the flips; judged by the raw labels first, then the best.
        judged: In what the labels were compared; empty if so few answers differ that not even
            the right recipe could be told from chance.
    """

    recipes_tried: int
    hits: tuple[CoinHit, ...] = field(repr=False)
    judged: tuple[str, ...]


def attack_coins(
    released: Released,
    channels: Sequence[Channel],
    *,
    recipes: Sequence[CoinRecipe] | None = None,
    seeds: Sequence[int] = range(10_001),
    progress: Progress | None = None,
) -> CoinAttack:
    """Return what it takes to toss the coins of a released file again.

    The seeds of the manifest are tried with every recipe, small seeds with the common ones, and
    these not at all once a seed of the manifest has worked.

    Args:
        released: The file, with the raw truth if it is known.
        channels: What :func:`~sordino.auditing.releases.ids.id_channels` found.
        recipes: Ways to make coins; by default the registry,
            :func:`~sordino.auditing.releases.recipes.coin_recipes`.
        seeds: Small seeds to try.
        progress: Called with (comparisons made, comparisons planned).

    Raises:
        UsageError: A recipe does not make one number for each seed and key.
    """
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
    """Return the finding of the attack "seed": the best of what undoes the flips, if any does.

    Args:
        attack: What :func:`attack_coins` returned for this file.
        released: The file.
    """
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
