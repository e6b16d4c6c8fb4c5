"""Finitely many public weights, and how much every row of a batch loses with each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, UsageError
from sordino.mechanisms._gibbs_draws import MOST_ACTIONS
from sordino.mechanisms._regressions import Regression
from sordino.mechanisms.plain_regression import PlainRegression

__all__ = ["BestCandidate", "Candidates", "public_vectors", "pulled_back", "scores_of"]

Candidates = tuple[tuple[float, ...], ...]
"""Public weights to choose from, one vector in each row."""


@dataclass(frozen=True)
class BestCandidate(PlainRegression):
    """The one of finitely many weights with the least squared loss, as it is: without privacy.

    Args:
        feature_bound: As for every regression: see ``RegressionTerms``.
        target_bound: As there.
        radius: As there.
        rows: As there.
        neighbors: The relation, which says nothing here.
        candidates: As for :class:`GibbsRegression`.

    Raises:
        UsageError: A setting is out of range.
        PrivacyError: ``neighbors`` is ``ADD_OR_REMOVE_ONE``.

    Guarantee:
        None: ε = ∞ for every relation. Only a ledger whose budget is infinite accepts it. Shown
        by tests/unit/mechanisms/test_gibbs_regression.py.
    """

    _: KW_ONLY
    candidates: Candidates

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        object.__setattr__(self, "candidates", pulled_back(self.candidates, self.radius))

    def release(
        self,
        rows: Float[np.ndarray, "m d"],
        targets: Float[np.ndarray, " m"],
        *,
        entropy: Entropy,  # noqa: ARG002 (every regression takes it)
    ) -> Regression:
        """Return the best candidate, the first one among equals; nothing is drawn.

        Raises:
            DataError: A number is not finite, or the shapes do not fit.

        Guarantee:
            None: ε = ∞.
        """
        candidates = np.array(self.candidates)
        totals = scores_of(*self.batch(rows, targets), candidates).sum(axis=0)
        return Regression(weights=candidates[int(np.argmax(totals))], error=0.0)


def scores_of(
    rows: Float[np.ndarray, "m d"],
    targets: Float[np.ndarray, " m"],
    candidates: Float[np.ndarray, "k d"],
) -> Float[np.ndarray, "m k"]:
    """Return minus the squared loss of every candidate for every row.

    Coordinates are added one after another, so that a row's scores depend on nothing but that
    row: a product of matrices adds in an order that depends on the place of a row.
    """
    if rows.shape[1] != candidates.shape[1]:
        raise DataError(
            f"rows must have one feature for each of {candidates.shape[1]} numbers of a "
            f"candidate, got {rows.shape[1]}. Nothing was released."
        )
    off = np.repeat(-targets[:, np.newaxis], len(candidates), axis=1)
    for feature, weights in zip(rows.T, candidates.T, strict=True):
        off += feature[:, np.newaxis] * weights
    return np.asarray(-(off * off))


def public_vectors(candidates: Sequence[Sequence[float]]) -> Candidates:
    """Return public weights as tuples, which are compared and hashed by value.

    Raises:
        UsageError: They are no finite vectors, fewer than two or more than 2^16.
    """
    try:
        found = _validate.finite_array("candidates", candidates, ndim=2)
    except DataError as error:  # they are a setting
        raise UsageError(str(error)) from None
    if not (2 <= len(found) <= MOST_ACTIONS and found.shape[1]):  # noqa: PLR2004 - a choice
        raise UsageError(
            f"candidates must be 2 to {MOST_ACTIONS} vectors, got shape {found.shape}. For the "
            "whole ball leave them out."
        )
    return tuple(map(tuple, found.tolist()))


def pulled_back(candidates: Sequence[Sequence[float]], radius: float) -> Candidates:
    """Return public weights, those beyond the radius pulled back to it.

    Raises:
        UsageError: As :func:`public_vectors`.
    """
    found = np.array(public_vectors(candidates))
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return public_vectors(found * (radius / np.maximum(lengths, radius)))
