"""From randomized answers to a reward, with every number it reports already private."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csr_array

from sordino import _validate
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privacy.ledger import Ledger
from sordino.rewards.likelihoods import DebiasedLogistic, debias, debiased_loss
from sordino.rewards.model import RewardModel
from sordino.rewards.solver import Solution, minimize_ridge, ridge_path

__all__ = [
    "Design",
    "HeldOut",
    "choose_ridge",
    "cross_fit",
    "fit_design",
    "fit_reward",
    "refuse_too_few",
    "ridges",
]

BALL = 100.0
"""Default bound on the norm of the weights, chosen before any data are seen."""
_FOLDS = 5
_POWERS = (-3, -2, -1, 0, 1, 2)  # of four, around the ridge that public settings suggest
_MANY = 50_000  # pairs above which one held-out part is precise enough
_MEASURING = 1  # the level of the folds that metrics are measured on
_ATOL = 1e-7  # accepted norm of the gradient, per pair


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """What a fit sees: feature differences, randomized answers, and who belongs together.

    One row per (person, question): a memoized repeat is the same observation.
    """

    differences: Float[np.ndarray, "n d"] | csr_array
    answers: Integer[np.ndarray, " n"]
    flip_probability: float
    feature_bound: float
    questions: Integer[np.ndarray, " n"]
    clusters: Integer[np.ndarray, " n"] | None

    @classmethod
    def of(cls, pairs: PrivatePairs, features: Features | None) -> Design:
        """Return the design of private pairs; repeats of one person are left out.

        Raises:
            UsageError: Features are missing, or were given twice.
            DataError: Features are not finite.
        """
        once = np.flatnonzero(pairs.first_rows())
        differences = pairs.differences(features)
        clusters = None
        if pairs.persons is not None:
            clusters = np.unique(np.asarray(pairs.persons), return_inverse=True)[1][once]
        return cls(
            differences=differences[once],
            answers=pairs.answers[once],
            flip_probability=pairs.flip_probability,
            feature_bound=_bound(differences, features),
            questions=_questions(pairs)[once],
            clusters=clusters,
        )

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.answers)

    @property
    def loss(self) -> DebiasedLogistic:
        """Return the debiased loss of all observations."""
        targets = debias(self.answers, self.flip_probability)
        return DebiasedLogistic(self.differences, targets=targets)

    def part(self, rows: Bool[np.ndarray, " n"]) -> Design:
        """Return some of the observations."""
        index = np.flatnonzero(rows)
        return replace(
            self,
            differences=self.differences[index],
            answers=self.answers[index],
            questions=self.questions[index],
            clusters=None if self.clusters is None else self.clusters[index],
        )

    def folds(self, level: int) -> Integer[np.ndarray, " n"]:
        """Return a fold for every row, by its question alone, so that repeats stay together.

        ``level`` tells the folds that measure from those that choose.
        """
        return _folds(self.questions, level)


def _questions(pairs: Comparisons) -> Integer[np.ndarray, " n"]:
    """Return 64 bits of every question's key."""
    return np.frombuffer(b"".join(key[:8] for key in pairs.keys), dtype=">u8").astype(np.uint64)


def _folds(questions: Integer[np.ndarray, " n"], level: int) -> Integer[np.ndarray, " n"]:
    """Return a fold for every question; a level mixes them in its own way."""
    mixed = (questions >> np.uint64(8 * level)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((mixed >> np.uint64(33)) % np.uint64(_FOLDS), dtype=np.int64)


def refuse_too_few(pairs: Comparisons) -> None:
    """Refuse pairs of which none can be held out, from public fields, before anything is spent.

    Raises:
        DataError: All questions fall into one part.
    """
    if len(np.unique(_folds(_questions(pairs), _MEASURING))) < 2:  # noqa: PLR2004 (in and out)
        raise DataError(
            f"{len(pairs)} pairs are too few different questions to measure anything on held-out "
            "ones; a dozen is the least. Nothing was spent."
        )


def _bound(differences: Any, features: Features | None) -> float:
    """Return the bound on one answer's features; half the largest difference where none is set.

    Features are public under a label guarantee, so their largest norm may be used.
    """
    if features is not None:
        return features.feature_bound
    return float(np.sqrt((differences**2).sum(axis=1).max())) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """Predictions for answers that the fit behind them did not see."""

    differences: Float[np.ndarray, " n"]
    answers: Integer[np.ndarray, " n"]
    flip_probability: float
    clusters: Integer[np.ndarray, " n"] | None


def ridges(feature_bound: float, flip_probability: float) -> list[float]:
    """Return the ridges that are tried: powers of four around L²/κ².

    L²/κ² is the prior that a reward of one answer is about 1 (θ ∼ N(0, I/L²)), inflated as
    debiasing inflates the noise. It uses public settings only.

    Args:
        feature_bound: Bound L on the norm of one answer's features.
        flip_probability: Chance that an answer is not the judgment; κ = 1 − 2·flip.
    """
    kappa = 1 - 2 * flip_probability
    return [(feature_bound / kappa) ** 2 * 4.0**power for power in _POWERS]


def choose_ridge(design: Design, *, ball: float, level: int = 0) -> float:
    """Return a ridge by the debiased likelihood of held-out randomized answers; it costs nothing.

    Of the candidates whose likelihood is within one standard error of the best, the one nearest
    to L²/κ² is taken: with little signal the best alone is mostly noise.

    Args:
        design: The observations.
        ball: Bound on the norm of the weights.
        level: Which folds to use, so that what chooses is not what measures.
    """
    candidates = ridges(design.feature_bound, design.flip_probability)
    folds = design.folds(level)
    losses: list[np.ndarray] = []
    for fold in range(1 if len(design) > _MANY else _FOLDS):
        inside, outside = design.part(folds != fold), design.part(folds == fold)
        if len(inside) and len(outside):
            path = ridge_path(inside.loss, candidates, ball=ball, atol=_atol(inside))
            losses.append(np.stack([_held_out(outside, solution) for solution in path], axis=1))
    if not losses:
        return candidates[_POWERS.index(0)]
    rows = np.concatenate(losses)
    excess = rows - rows[:, [int(rows.sum(axis=0).argmin())]]
    error = excess.std(axis=0) * np.sqrt(len(rows))
    close = np.flatnonzero(excess.sum(axis=0) <= error)
    return candidates[min(close, key=lambda index: abs(_POWERS[index]))]


def _held_out(outside: Design, solution: Solution) -> Float[np.ndarray, " n"]:
    """Return the debiased loss of every observation that a fit did not see."""
    targets = debias(outside.answers, outside.flip_probability)
    return np.asarray(debiased_loss(outside.differences @ solution.theta, targets))


def _atol(design: Design) -> float:
    """Return the accepted norm of the gradient for a design of this size."""
    return _ATOL * len(design)


def fit_design(
    design: Design, *, ridge: float | None, ball: float, level: int = 0
) -> tuple[Solution, float]:
    """Return the certified minimizer and the ridge it was found with."""
    if ridge is None:
        ridge = choose_ridge(design, ball=ball, level=level)
    return minimize_ridge(design.loss, ridge=ridge, ball=ball, atol=_atol(design)), ridge


def cross_fit(
    design: Design,
    *,
    ridge: float | None = None,
    ball: float = BALL,
    progress: Callable[[int, int], None] | None = None,
) -> HeldOut:
    """Return predictions for every observation from fits that did not see its question.

    Each fit chooses its own ridge without the part that it is measured on.

    Raises:
        DataError: There are too few different questions to hold any out.
    """
    folds = design.folds(_MEASURING)
    predictions = np.zeros(len(design))
    for done, fold in enumerate(np.unique(folds)):
        if progress:
            progress(done, _FOLDS)
        inside = design.part(folds != fold)
        if not len(inside):
            raise DataError("These are too few different questions to hold any out.")
        solution, _ = fit_design(inside, ridge=ridge, ball=ball, level=2)
        rows = np.flatnonzero(folds == fold)
        predictions[rows] = design.differences[rows] @ solution.theta
    return HeldOut(
        differences=predictions,
        answers=design.answers,
        flip_probability=design.flip_probability,
        clusters=design.clusters,
    )


def fit_reward(
    pairs: Pairs | PrivatePairs,
    *,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float = BALL,
    mechanism: NonPrivate | None = None,
    ledger: Ledger | None = None,
    design: Design | None = None,
) -> RewardModel:
    """Return the linear reward that explains randomized answers best, with a certified fit.

    Minimizes Σ softplus(θᵀx) − ỹθᵀx + ridge/2·‖θ‖² over ‖θ‖ ≤ ball, where ỹ is the answer with
    its randomization taken out in expectation, so rewards come out on their true scale.

    Args:
        pairs: Randomized answers, from :func:`sordino.privatize` or an ``answer`` file.
        features: Turns texts into vectors; left out for pairs made by ``from_features``.
        ridge: Strength of the quadratic penalty, > 0; chosen on held-out randomized answers if
            left out.
        ball: Bound on the norm of the weights, > 0.
        mechanism: Only :class:`sordino.NonPrivate` for now, to fit raw judgments as they are.
        ledger: Where a mechanism's spend is recorded.
        design: ``Design.of(pairs, features)``, if it was made already.

    Raises:
        PrivacyError: The pairs are raw judgments and no mechanism was given.
        UsageError: A setting is out of range, or features do not fit the pairs.
        ConvergenceError: The fit could not be certified.

    Guarantee:
        Exactly what the answers promise: this is post-processing. Shown by
        tests/soundness/test_align_bytes.py.

    Source:
        Chowdhury, Kini & Natarajan 2024, debiased loss; docs/local.md.
    """
    ball = _validate.positive("ball", ball)
    ridge = None if ridge is None else _validate.positive("ridge", ridge)
    private = _private(pairs, mechanism, ledger)
    design = design or Design.of(private, features)
    solution, ridge = fit_design(design, ridge=ridge, ball=ball)
    return RewardModel(
        weights=solution.theta,
        features=features,
        guarantee=private.guarantee,
        ridge=ridge,
        ball=ball,
        gradient_norm=solution.gradient_norm,
        atol=_atol(design),
        pairs=len(private),
        release_ids=private.release_ids,
        artifact=private.artifact,
    )


def _private(pairs: Any, mechanism: NonPrivate | None, ledger: Ledger | None) -> PrivatePairs:
    """Return answers that may be fitted; record the spend if raw ones are used as they are."""
    if isinstance(pairs, PrivatePairs):
        if mechanism is not None or ledger is not None:
            raise UsageError("These answers are private already: leave mechanism and ledger out.")
        return pairs
    if not isinstance(pairs, Pairs):
        raise UsageError(f"pairs must come from read_pairs, got {type(pairs).__name__}.")
    if not isinstance(mechanism, NonPrivate) or ledger is None:
        raise PrivacyError(
            "These are raw judgments; a reward fitted on them would give them away. Nothing was "
            "fitted. Randomize them first with sordino.privatize(pairs, "
            "sordino.RandomizedResponse(epsilon=...), ledger=...), or read a file that "
            "sordino privatize wrote. To record an infinite spend instead, pass "
            "mechanism=sordino.NonPrivate() and a ledger whose budget is infinite."
        )
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    digest = pairs.public_digest
    reservation = ledger.reserve(mechanism.event, promise=promise, public_digest=digest)
    reservation.commit(digest)  # of the public fields: raw labels are not digested
    public = {name: getattr(pairs, name) for name in Pairs.__dataclass_fields__ if name != "labels"}
    return PrivatePairs(
        **public,
        answers=pairs.labels,
        flip_probability=0.0,
        guarantee=promise,
        release_ids=(reservation.release_id,),
        artifact=digest,
    )
