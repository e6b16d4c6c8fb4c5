"""How well labels can be guessed from what is public about a row, without any leak.

People have tastes, so labels are not even given what is public: a person, a question that many
answered, a declared column, which answer is longer. A channel is held to no more than the claim
allows *on top of* that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Integer
from scipy.special import logit

from sordino.auditing.releases.columns import MOST_VALUES, numbered, ordered_values, ranked_blocks
from sordino.auditing.statistical.bounds import clopper_pearson

from .reading import UNKNOWN, Released
from .recipes import CANONICAL, OrderRule, in_canonical_order, reproduces, rule_bits

__all__ = ["DISPLAYED", "FAILURE", "PublicKnowledge", "independent_rows", "public_factors"]

DISPLAYED = "order shown to the annotator"
MOST_BIAS = 0.9
"""The largest share of labels that habit or taste may explain where nobody can measure it."""

FAILURE = 1e-7
"""Chance that the bound on one public factor is too small; added to every p-value."""

_SIDES = 3  # what a public order says of a row: yes, no, nothing


def independent_rows(released: Released) -> Bool[np.ndarray, " n"]:
    """Return the first row of every (person, question); without ids, of every question."""
    # Repeats of one person may carry one stored answer, and one label; without ids nobody knows
    # whether two rows are one person's, so the first alone counts.
    names = released.persons or ("",) * len(released)
    seen: set[tuple[str, bytes]] = set()
    once = np.zeros(len(released), dtype=bool)
    for index, pair in enumerate(zip(names, released.keys, strict=True)):
        once[index] = pair not in seen
        seen.add(pair)
    return once


def public_factors(
    released: Released, covariates: Iterable[str]
) -> list[Integer[np.ndarray, " n"]]:
    """Return groups of rows that may share a taste: one array of group numbers for each factor."""
    # Factors are the person, the question where one occurs twice, and each declared column; one
    # group of all rows if there is none of these.
    factors = [_groups(released.columns[name]) for name in covariates if name in released.columns]
    if released.persons is not None:
        factors.append(numbered(released.persons))
    questions = numbered(released.keys)
    if len(released) and questions.max() + 1 < len(released):
        factors.append(questions)
    return factors or [np.zeros(len(released), dtype=np.int64)]


def _groups(values: Sequence[Any]) -> Integer[np.ndarray, " n"]:
    """Return the groups of a declared column; many numbers are put into eight ranges."""
    groups = numbered(values)
    ordered = ordered_values(values)
    if ordered is None or groups.max(initial=0) < MOST_VALUES:
        return groups
    return ranked_blocks(ordered, 8)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PublicKnowledge:
    """What is public about the rows of a file whose labels the auditor holds."""

    released: Released  # the file, with `truth`
    # Columns that are declared to have been fixed before the labels.
    covariates: tuple[str, ...] = ()
    # Public order rules; the registry of `recipes` if None.
    rules: Mapping[str, OrderRule] | None = None

    @cached_property
    def truth(self) -> Integer[np.ndarray, " n"]:
        """Return who was preferred, in the order written."""
        truth = self.released.truth
        return np.full(len(self.released), UNKNOWN) if truth is None else truth

    @cached_property
    def known(self) -> Bool[np.ndarray, " n"]:
        """Return which rows count: independent of each other, and of known label."""
        return np.asarray(independent_rows(self.released) & (self.truth != UNKNOWN))

    @cached_property
    def factors(self) -> list[Integer[np.ndarray, " n"]]:
        """Return the groups of rows that may share a taste."""
        return public_factors(self.released, self.covariates)

    @cached_property
    def orders(self) -> dict[str, Integer[np.ndarray, " n"]]:
        """Return where the order written is that of each public order: 1, 0 or ``UNKNOWN``."""
        # The order in which the raw file shows the answers is one, unless it predicts more labels
        # than a habit of taking the first would: an order that nearly always has the better answer
        # first was not fixed before the labels.
        orders = rule_bits(self.released, self.rules)
        shown = self.released.displayed
        if shown is None or not (judged := self.known & (shown != UNKNOWN)).any():
            return orders
        bias = float(np.mean((shown == self.truth)[judged]))
        return {**orders, DISPLAYED: shown} if 1 - MOST_BIAS < bias < MOST_BIAS else orders

    @cached_property
    def shows_tastes(self) -> bool:
        """Return whether the order written is a public one other than the canonical hash order."""
        # Then whatever tells people apart, such as the place of a row among those of one annotator,
        # tells something of labels in that order: some like longer answers, some shorter ones.
        once = np.ones(int(self.known.sum()), dtype=np.int64)
        orders = (bits for name, bits in self.orders.items() if name != CANONICAL)
        return any(reproduces(bits[self.known], once) for bits in orders)

    @cached_property
    def _canonical(self) -> tuple[Integer[np.ndarray, " n"], list[Integer[np.ndarray, " n"]]]:
        """Return labels and public orders as seen from the canonical order."""
        swapped = self.released.swapped
        sides = [in_canonical_order(bits, swapped) for bits in self.orders.values()]
        return in_canonical_order(self.truth, swapped), sides

    @cached_property
    def _bounds(self) -> dict[tuple[bytes, bool], float]:
        """Return the bounds already computed, by the rows they are for."""
        return {}

    def log_odds(self, rows: Bool[np.ndarray, " n"], *, written: bool = False) -> float:
        """Return an upper bound on the |log-odds| of a label given what is public, on average.

        Guarantee:
            For one factor and any one order: with λ the |log-odds| in a row's cell, the mean
            of σ(ε + λ) over the rows is at most σ(ε + result) for every ε ≥ 0, except with
            probability ``FAILURE``. The mean of the larger chance q = σ(λ) is bounded by
            Clopper-Pearson from the number of labels that agree with the majority of their cell,
            never fewer than agree with the larger chance; σ(ε + logit q) is concave in q ≥ 1/2.
            Shown by tests/statistical/test_release_attacks.py.
        """
        # Each factor is crossed with each public order, and the order that tells most counts, for
        # people differ in taste; the log-odds of several factors add up.
        # Source: Clopper & Pearson 1934, for unequal chances by Hoeffding 1956, Theorem 4: the
        # bound is below the mean only at counts whose binomial tail is under `FAILURE`; half of a
        # binomial lies at or below its rounded mean, so they are one or more below the mean, where
        # equal chances make the tail heaviest.
        key = rows.tobytes(), written
        if key not in self._bounds:
            self._bounds[key] = self._log_odds(rows, written=written)
        return self._bounds[key]

    def _log_odds(self, rows: Bool[np.ndarray, " n"], *, written: bool) -> float:
        """Return the bound, computed afresh."""
        labels, sides = self._canonical
        none = np.full(len(labels), UNKNOWN)
        also = [1 - self.released.swapped.astype(np.int64)] if written else []
        crossed = [side[rows] for side in (none, *sides, *also)]
        tastes = float(logit(MOST_BIAS)) if written and self.shows_tastes else 0.0
        odds = sum(_factor_log_odds(labels[rows], one[rows], crossed) for one in self.factors)
        return max(tastes, odds)


def _factor_log_odds(
    labels: Integer[np.ndarray, " n"],
    groups: Integer[np.ndarray, " n"],
    sides: Sequence[Integer[np.ndarray, " n"]],
) -> float:
    """Return the bound of one factor, with the order that tells most."""
    agreeing = max(_with_majority(labels, groups * _SIDES + side - UNKNOWN) for side in sides)
    upper = clopper_pearson(agreeing, len(labels), 1 - FAILURE)[1]
    return float(logit(max(upper, 0.5)))


def _with_majority(labels: Integer[np.ndarray, " n"], cells: Integer[np.ndarray, " n"]) -> int:
    """Return how many labels are those of the majority of their cell."""
    # A row alone in its cell would always be; such rows are put together, by what the order says.
    last = cells.max(initial=0) // _SIDES * _SIDES + _SIDES
    alone = np.bincount(cells)[cells] == 1
    cells = np.where(alone, last + cells % _SIDES, cells)
    ones, sizes = np.bincount(cells, weights=labels), np.bincount(cells)
    return int(np.maximum(ones, sizes - ones).sum())
