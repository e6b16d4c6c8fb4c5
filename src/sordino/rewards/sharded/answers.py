"""From randomized answers in many files to a reward: sums over pieces, and nothing is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from scipy.sparse import issparse

from sordino import _validate
from sordino.engines.engine import Engine, InProcess, Taken, refuse_other_engines
from sordino.engines.rows import PiecedRows
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.features import Features
from sordino.preferences.manifest import Manifest, digest_of_files, read_manifest
from sordino.preferences.private_pairs import label_loss
from sordino.preferences.shard_survey import ShardSurvey, survey_shards
from sordino.preferences.shards import Shards
from sordino.privacy.guarantee import Guarantee, merge
from sordino.rewards._gram import weighted_grams
from sordino.rewards.confidence import confidence_ellipsoid
from sordino.rewards.covariance import debiased_covariance, debiased_noise
from sordino.rewards.design import MOST_FEATURES
from sordino.rewards.label_ridge import flattery
from sordino.rewards.model import RewardModel
from sordino.rewards.ridge_choice import accepted_gradient, ridges
from sordino.rewards.sharded.evidence import PiecedEvidence, counted_vectors
from sordino.rewards.sharded.released_fit import fit_evidence, shard_errors
from sordino.rewards.solver import Solution

__all__ = ["AnswerEvidence", "fit_answer_shards", "read_manifests"]

_SLACK = 1e-9  # relative: numbers in a manifest are the nearest floats


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AnswerEvidence(PiecedEvidence):
    """What a fit sees of randomized answers in many files.

    Attributes:
        rows: x of the answers that count.
        statistic: Σ ỹx, ỹ the answer with its randomization taken out in expectation.
        feature_bound: Bound L on the norm of one answer's features.
        flip_probability: Chance that an answer is not the judgment.
    """

    flip_probability: float

    def ridges(self) -> list[float]:
        """Return what :func:`~sordino.rewards.ridge_choice.ridges` says."""
        return ridges(self.feature_bound, self.flip_probability)

    def noise(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return N = Σ p(1 − p)/κ² xxᵀ, the covariance of Σ ỹx; from the sample.

        Source:
            docs/local.md, standard errors.
        """
        variances = debiased_noise(self.sample @ theta, self.flip_probability)
        [total] = weighted_grams(self.sample, variances)
        return np.asarray(total / self.share)

    def flattery(self, solution: Solution, ridge: float) -> float:
        """Return tr[(H + ΛI)⁻¹N].

        Source:
            docs/central.md, "Label privacy, one Gaussian release", with N for H + V.
        """
        theta = solution.theta
        return flattery(self.information(theta), self.noise(theta), solution, ridge)

    def scatter(self, theta: Float[np.ndarray, " d"], ridge: float) -> Float[np.ndarray, "d d"]:
        """Return the covariance of the estimate, as if θ were true.

        Source:
            docs/local.md, standard errors: A⁻¹E[p(1 − p)/κ² xxᵀ]A⁻¹/n, from the sample.
        """
        share = self.share
        covariance = debiased_covariance(
            self.sample, theta, self.flip_probability, ridge=ridge * share
        )
        return share * covariance


def fit_answer_shards(
    shards: Shards,
    *,
    features: Features | None = None,
    engine: Engine | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> RewardModel:
    """Return the reward that explains randomized answers in many files best; it costs nothing.

    The debiased fit of :func:`sordino.fit_reward`, with a pass over the files for each step of
    Newton's method. A ridge that is not given is chosen on the sum of all answers, and not on
    held-out ones as in memory. Repeats of one person count once, wherever they are.

    Args:
        shards: From :func:`~sordino.preferences.shards.find_shards` with ``privatized=True``;
            each file with its manifest beside it.
        features: Turns texts into vectors; left out for files of vectors.
        engine: Where the files are read; in this process if left out.
        ridge: Strength of the quadratic penalty, > 0; chosen if left out.
        ball: Bound on the norm of the weights, > 0, chosen before any data are seen.
        ellipsoid: Whether to keep a confidence set; by default for up to 1024 features.
        scratch: Folder for what tasks exchange, which all machines see; the system's own for
            temporary files if left out.
        taken: Called as tasks are done, once for each pass.

    Raises:
        UsageError: A setting is out of range.
        DataError: A file has no manifest or is not the one that it speaks of, or manifests
            disagree, or a record cannot be used.
        PrivacyError: A person gave more answers than the promise covers.
        FileSystemError: A file cannot be read.
        ConvergenceError: The fit could not be certified.

    Guarantee:
        Exactly what the answers promise: this is post-processing. Shown by
        tests/soundness/test_sharded_answers.py.

    Source:
        docs/local.md, "The fit".
    """
    engine = InProcess() if engine is None else engine
    refuse_other_engines(engine)
    ball = _validate.positive("ball", ball)
    ridge = None if ridge is None else _validate.positive("ridge", ridge)
    manifests = read_manifests(shards, engine)
    promise, flips = _one_promise(manifests), manifests[0].flip_probability
    with survey_shards(shards, engine, scratch=scratch, taken=taken) as survey:
        _refuse_more_than_promised(survey, promise, flips)
        rows = counted_vectors(survey, engine, features, answers=True, taken=taken)
        evidence = _evidence(rows, features, flips)
        solution, ridge, candidates = fit_evidence(evidence, ridge=ridge, ball=ball)
        if ellipsoid is None:
            ellipsoid = rows.shape[1] <= MOST_FEATURES
        region = None
        if ellipsoid:
            region = confidence_ellipsoid(
                rows,
                solution,
                flip_probability=flips,
                ball=ball,
                ridge=ridge,
                candidates=candidates,
            )
        return RewardModel(
            weights=solution.theta,
            features=features,
            guarantee=promise,
            method="debiased",
            ridge=ridge,
            ball=ball,
            gradient_norm=solution.gradient_norm,
            atol=accepted_gradient(evidence),
            pairs=len(evidence),
            standard_errors=shard_errors(evidence, solution, ridge),
            ellipsoid=region,
            artifact=digest_of_files(manifests),
        )


def read_manifests(shards: Shards, engine: Engine) -> tuple[Manifest, ...]:
    """Return the manifest of every file, each checked against its file where that is read.

    Raises:
        UsageError: These are raw judgments.
        DataError: A file has none, or is not the one that it speaks of.
        FileSystemError: A file cannot be read.
    """
    if not isinstance(shards, Shards) or not shards.privatized:
        raise UsageError(
            "Randomized answers are fitted: find_shards(..., privatized=True). Nothing was read."
        )
    paths = tuple(dict.fromkeys(piece.path for piece in shards.pieces))
    return engine.fold(paths, _read, add)


def _read(path: str) -> tuple[Manifest, ...]:
    """Return the manifest of one file; an error names the file."""
    return (read_manifest(Path(path)),)


def _one_promise(manifests: Sequence[Manifest]) -> Guarantee:
    """Return what all files promise; refuse those that do not belong together.

    Raises:
        DataError: They say different things.
    """
    for name in ("mechanism", "epsilon", "flip_probability", "unit", "neighbors", "trust"):
        if len({getattr(manifest, name) for manifest in manifests}) > 1:
            raise DataError(
                f"The manifests of these files disagree about {name}: they are of different "
                "releases. Nothing was fitted. Give the files of one release."
            )
    promises = [manifest.guarantee for manifest in manifests]
    merged = merge(promises, epsilon=promises[0].epsilon, delta=0.0)
    return replace(merged, caveats=tuple(sorted(set(merged.caveats))))


def _refuse_more_than_promised(survey: ShardSurvey, promise: Guarantee, flips: float) -> None:
    """Refuse a promise about whole people that one of them has too many answers for.

    Raises:
        PrivacyError: It does not cover them all.
    """
    if promise.unit != "person":
        return
    loss = label_loss(flips)
    if not survey.linked or promise.epsilon < survey.largest * loss * (1 - _SLACK):
        raise PrivacyError(
            f"A promise of epsilon={promise.epsilon:g} for one person does not cover all answers "
            f"in these files at epsilon={loss:g} each: they are of several releases, or do not "
            "say who answered. Nothing was fitted."
        )


@dataclass(eq=False)
class _Sums:
    """What some answers add up to.

    Attributes:
        agreed: Σ zx, z the randomized answer.
        total: Σ x.
        longest: The largest ‖x‖².
        rows: How many.
    """

    agreed: Float[np.ndarray, " d"]
    total: Float[np.ndarray, " d"]
    longest: float
    rows: int

    def plus(self, other: _Sums) -> _Sums:
        """Return the sums of both."""
        return _Sums(
            self.agreed + other.agreed,
            self.total + other.total,
            max(self.longest, other.longest),
            self.rows + other.rows,
        )


def _sums(_first: int, block: Any, answers: Integer[np.ndarray, " n"]) -> _Sums:
    """Return what the answers of one block add up to."""
    lengths = block.power(2).sum(axis=1) if issparse(block) else (block**2).sum(axis=1)
    return _Sums(
        np.asarray(block.T @ answers.astype(np.float64)).ravel(),
        np.asarray(block.sum(axis=0)).ravel(),
        float(np.max(lengths)),
        len(answers),
    )


def _evidence(rows: PiecedRows, features: Features | None, flips: float) -> AnswerEvidence:
    """Return what a fit sees: Σ ỹx = (Σ zx − f Σ x)/κ, and the bound of the features.

    Raises:
        DataError: There are other rows than before: the files changed while they were read.
    """
    found = rows.fold(_sums, _Sums.plus)
    if found.rows != rows.shape[0]:
        raise DataError("The input changed while it was read. Nothing was fitted.")
    bound = float(np.sqrt(found.longest)) / 2 if features is None else features.feature_bound
    return AnswerEvidence(
        rows=rows,
        statistic=(found.agreed - flips * found.total) / (1 - 2 * flips),
        feature_bound=bound,
        flip_probability=flips,
    )
