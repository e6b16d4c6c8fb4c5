"""Fits of raw judgments that stay with a curator.

Weights, and everything else that is made from what is hidden, are returned to the withheld reward
alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float, Integer
from scipy.linalg import qr, solve_triangular
from scipy.sparse import csr_array

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.mechanisms._outward import dense_blocks, public_rows
from sordino.preferences.features import Features, clipped_rows
from sordino.preferences.labels import UNDECIDED
from sordino.preferences.pairs import Pairs

from .likelihoods import DebiasedLogistic
from .record_checks import record_differences
from .solver import nearest_minimum
from .withheld_bounds import Settings

__all__ = [
    "doubts",
    "fit_withheld",
    "label_rows",
    "penalties",
    "record_bound_of",
    "record_rows_within",
    "refuse_weak_ridge",
]

_LEAST_RIDGE: Final = 2e-6  # of the squared norm of a feature difference
_LEAST_DOUBT: Final = 2.0**-16
_MOST_ROWS: Final = 2**24
_BLOCK: Final = 4096


def label_rows(
    pairs: Pairs, features: Features | None
) -> tuple[Float[np.ndarray, "n d"] | csr_array, Integer[np.ndarray, " n"]]:
    """Return feature differences and labels of public questions, each once for a person.

    A repeat of one person to one question is the same observation and does not count: which rows
    do is decided by public fields alone.

    Raises:
        PrivacyError: The pairs are not in canonical order.
        UsageError: Features are missing, or were given twice.
        DataError: A feature is not finite.
    """
    pairs.refuse_other_order()
    once = np.flatnonzero(pairs.first_rows())
    rows = public_rows("differences", pairs.differences(features))
    return rows[once], pairs.labels[once]


def record_bound_of(features: Features | None, bound: float | None) -> float:
    """Return the norm to which records are shortened: twice the bound on one answer's features.

    Raises:
        UsageError: There are no features to take it from, and it was left out.
    """
    if bound is not None:
        return _validate.positive("bound", bound)
    if features is None:
        raise UsageError(
            "bound is needed for unit='record' where pairs were made from features: the norm to "
            "which every feature difference is shortened. Reading it from the records would "
            "release it. Nothing was fitted. Pass bound=..., chosen before you look at the data."
        )
    return 2 * features.feature_bound


def record_rows_within(
    pairs: Pairs, features: Features | None, bound: float
) -> Float[np.ndarray, "n d"]:
    """Return the feature difference of every record, none longer than the bound.

    Each judgment is a record of its own, also a repeated one of the same person: that it repeats
    another one is private.

    Raises:
        DataError: A feature is not finite; which record it is is not said.
        UsageError: Features are missing, or were given twice.
    """
    rows = record_differences(pairs, features)
    return clipped_rows(rows, bound) if len(rows) else rows


def fit_withheld(
    rows: Float[np.ndarray, "n d"] | csr_array,
    labels: Integer[np.ndarray, " n"],
    settings: Settings,
    *,
    atol: float,
) -> Float[np.ndarray, " d"]:
    """Return the weights that explain raw judgments best inside the ball; confidential.

    Minimizes Σ softplus(θᵀx) − tθᵀx + (ridge/2)‖θ‖², t being 1, 0, or ½ for an undecided label.

    Args:
        rows: x, dense or sparse.
        labels: 1, 0 or 2 (undecided).
        settings: Ridge and ball.
        atol: Norm of the gradient that is good enough; what it is is private, and so is whether
            rounding stopped the fit before.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences".
    """
    targets = np.where(labels == UNDECIDED, 0.5, labels)
    loss = DebiasedLogistic(rows, targets=targets)
    ridge, ball = settings.ridge, settings.ball
    # The bounds on scores pay for twice atol, which is above rounding: nothing is refused here.
    return nearest_minimum(loss, ridge=ridge, ball=ball, atol=atol).theta


def refuse_weak_ridge(settings: Settings, longest: float, d: int) -> None:
    """Refuse settings whose fit may fail on some data, or be decided by rounding; all are public.

    Whether a fit is refused must not depend on a hidden record.

    Raises:
        UsageError: A ridge is too small beside the longest feature difference.
    """
    least = _LEAST_RIDGE * longest**2
    if settings.ridge < least:
        raise UsageError(
            f"ridge={settings.ridge!r} is too small beside feature differences of norm "
            f"{longest:.6g}: fits might fail on some data and not on others, which would tell. "
            f"Nothing was fitted. Use at least {least:.3g}."
        )
    least = (_LEAST_DOUBT * d * longest) ** 2
    if settings.penalty > 0 and settings.doubt_ridge < least:
        raise UsageError(
            f"penalty_ridge={settings.doubt_ridge!r} is so small beside {d} features of norm "
            f"{longest:.6g} that rounding might decide. Nothing was fitted. Use at least "
            f"{least:.3g}."
        )


def doubts(
    rows: Float[np.ndarray, "n d"] | csr_array, settings: Settings
) -> Float[np.ndarray, "d d"] | None:
    """Return a lower factor L of Σ = λI + Σ xxᵀ = LLᵀ, or None without a penalty; confidential.

    By QR of blocks of rows that are merged in pairs: with at most 2^24 rows a norm in Σ⁻¹ is off
    by a share of 12·d·2^-52·2^12·‖x‖/√λ at most, which :func:`refuse_weak_ridge` keeps below
    2^-20. No sum of squares is formed, which would lose half of the digits.

    Raises:
        DataError: There are more than 2^24 rows.
    """
    if settings.penalty == 0:
        return None
    n, d = rows.shape
    if n > _MOST_ROWS:
        raise DataError("A penalty cannot be computed exactly enough for more than 2^24 rows.")
    merged: list[tuple[int, np.ndarray]] = []
    for block in dense_blocks(rows, max(d, _BLOCK)):
        level, factor = 0, qr(block, mode="r")[0][:d]
        while merged and merged[-1][0] == level:
            factor = qr(np.vstack([merged.pop()[1], factor]), mode="r")[0][:d]
            level += 1
        merged.append((level, factor))
    own = np.sqrt(settings.doubt_ridge) * np.eye(d)
    stacked = np.vstack([own, *(factor for _, factor in merged)])
    return np.asarray(qr(stacked, mode="r")[0][:d].T)


def penalties(
    rows: Float[np.ndarray, "k d"], factor: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, " k"]:
    """Return ‖φ‖ in the norm of Σ⁻¹ for every row φ, from the lower factor of Σ."""
    return np.asarray(np.linalg.norm(solve_triangular(factor, rows.T, lower=True), axis=0))
