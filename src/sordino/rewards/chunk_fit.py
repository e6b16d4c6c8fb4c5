"""From one released sum of labels in many files to a reward; nothing here spends.

From randomized answers in many files to a reward: sums over chunks, and nothing is spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.engines.engine import Engine, InProcess, Taken, refuse_other_engines
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import Chunks
from sordino.preferences.features import Features
from sordino.preferences.folds import FOLDS
from sordino.preferences.pairs import Manifest, digest_of_files, label_loss, read_manifest
from sordino.privacy.guarantee import Guarantee, merge, never_less

from .chunk_evidence import AnswerEvidence, ChunkedEvidence, counted_vectors, evidence_of_answers
from .chunk_metrics import AnswerMetrics, measure_predictions, opened_predictions
from .confidence import confidence_ellipsoid
from .covariance import roots_of_variances
from .evidence import MOST_FEATURES, inside_ball, shrunk_weights
from .label_release import ReleasedChunks
from .metrics import refit_widening
from .model import RewardModel
from .newton import minimize_chunked
from .pair_losses import DebiasedLogistic
from .ridge_selection import accepted_gradient, public_ridge
from .solver import Solution, ridge_path


def fit_released_chunks(
    released: ReleasedChunks,
    *,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
) -> RewardModel:
    """Return the reward that explains one released sum best; as often as one likes, for free."""
    # The same fit as `fit_released`, with a pass over the files for each step of Newton's method.
    evidence = released.evidence
    ball = _validate.workable("ball", ball)
    shrinks = ridge is None and len(evidence.statistic) <= MOST_FEATURES
    used = public_ridge(evidence) if shrinks else ridge
    solution, ridge, candidates = fit_evidence(evidence, ridge=used, ball=ball)
    weights = solution.theta
    if shrinks:
        shift = ridge + solution.multiplier
        square = evidence.squares / len(evidence)
        weights = shrunk_weights(weights, shift, evidence.mean_and_spread, mean_square=square)
        weights = inside_ball(weights, ball)
    if ellipsoid is None:
        ellipsoid = len(evidence.statistic) <= MOST_FEATURES
    region = None
    if ellipsoid:
        region = confidence_ellipsoid(
            evidence.rows,
            solution,
            flip_probability=0.0,
            ball=ball,
            ridge=ridge,
            candidates=candidates,
            covariance=evidence.covariance,
            rounding=evidence.rounding,
            longest=evidence.longest,
        )
    return RewardModel(
        weights=weights,
        features=released.features,
        guarantee=released.guarantee,
        method="label-gaussian",
        ridge=ridge,
        ball=ball,
        gradient_norm=solution.gradient_norm,
        atol=accepted_gradient(evidence),
        pairs=len(evidence),
        standard_errors=chunk_errors(evidence, solution, ridge),
        ellipsoid=region,
        release_ids=released.release_ids,
        artifact=released.artifact,
        statistic=evidence.statistic,
    )


def fit_evidence(
    evidence: ChunkedEvidence, *, ridge: float | None, ball: float
) -> tuple[Solution, float, int]:
    """Return the certified estimate, its ridge, and how many ridges were tried."""
    # Source: docs/central.md, "Label privacy, one Gaussian release"; the ridge by Takeuchi's
    # criterion, Σ softplus(θ̂ᵀx) − T̃ᵀθ̂ + tr[(H + ΛI)⁻¹S], S the covariance of T̃.
    candidates = evidence.ridges() if ridge is None else [_validate.positive("ridge", ridge)]
    found, values = minimize_chunked(
        evidence.loss,
        candidates,
        ball=ball,
        atol=accepted_gradient(evidence),
        starts=_starts(evidence, candidates, ball),
    )
    if ridge is not None:
        return found[0], candidates[0], 1
    optimism = [
        evidence.optimism(solution, tried)
        for solution, tried in zip(found, candidates, strict=True)
    ]
    best = int(np.argmin(values + np.array(optimism)))
    return found[best], candidates[best], len(candidates)


def _starts(
    evidence: ChunkedEvidence, candidates: list[float], ball: float
) -> Float[np.ndarray, "k d"]:
    """Return rough solutions on the sample, so that few passes over the files are left."""
    sample, share = evidence.sample, evidence.share
    loss = DebiasedLogistic.of_statistic(sample, evidence.statistic * share, evidence.weights)
    # A tenth of the sampling noise of the gradient: more would be precision about nothing.
    atol = 0.05 * float(np.sqrt(np.vdot(sample, sample)))
    path = ridge_path(loss, [ridge * share for ridge in candidates], ball=ball, atol=atol)
    return np.stack([solution.theta for solution in path])


def chunk_errors(
    evidence: ChunkedEvidence, solution: Solution, ridge: float
) -> Float[np.ndarray, " d"] | None:
    """Return the asymptotic standard error of every weight; None for too many features."""
    if len(evidence.statistic) > MOST_FEATURES:
        return None
    covariance = evidence.scatter(solution.theta, ridge + solution.multiplier)
    return roots_of_variances(covariance)


_SLACK = 1e-9  # relative: numbers in a manifest are the nearest floats


def fit_answer_chunks(
    chunks: Chunks,
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

    Guarantee:
        Exactly what the answers promise: this is post-processing. Shown by
        tests/soundness/test_chunked_answers.py.
    """
    # The debiased fit of `fit_reward`, with a pass over the files for each step of Newton's method.
    # A ridge that is not given is chosen on the sum of all answers, and not on held-out ones as in
    # memory. Repeats of one person count once, wherever they are.
    # Source: docs/local.md, "The fit".
    fitted = _Terms(ridge, ball)
    with _opened(chunks, features, engine, scratch=scratch, taken=taken) as opened:
        return opened.reward(fitted, ellipsoid=ellipsoid)


def fit_and_measure_chunks(  # noqa: PLR0913 (each is one choice of the user)
    chunks: Chunks,
    *,
    features: Features | None = None,
    engine: Engine | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    temperature: float | None = None,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> tuple[RewardModel, AnswerMetrics]:
    """Return that reward, and what one like it measures on held-out answers; both cost nothing.

    Guarantee:
        Exactly what the answers promise: this is post-processing.
    """
    # The fifth of the questions that a public rule holds out is predicted by a second fit, on all
    # others: in memory there are five such fits, which would read the files five times more often.
    # So metrics are of a fit on four fifths of the answers, which is a little worse than the reward
    # that is returned, and their errors are those of a fifth of the answers. Nothing is scaled.
    # Source: docs/local.md, "The fit" and metrics on randomized labels.
    fitted = _Terms(ridge, ball)
    heat = None if temperature is None else _validate.positive("temperature", temperature)
    where: Any = {"scratch": scratch, "taken": taken}
    with _opened(chunks, features, engine, hold_out=True, **where) as opened:
        opened.refuse_too_few()  # before the fit, which takes most of the time
        reward = opened.reward(fitted, ellipsoid=ellipsoid)
        return reward, opened.metrics(fitted, temperature=heat)


@dataclass
class _Terms:
    """How a fit is made."""

    ridge: float | None  # Λ > 0, or None where it is chosen
    ball: float  # bound on the norm of the weights

    def __post_init__(self) -> None:
        """Refuse what is out of range before a file is opened."""
        self.ball = _validate.workable("ball", self.ball)
        self.ridge = None if self.ridge is None else _validate.workable("ridge", self.ridge)


@contextmanager
def _opened(
    chunks: Chunks,
    features: Features | None,
    engine: Engine | None,
    *,
    hold_out: bool = False,
    scratch: str | Path | None,
    taken: Taken | None,
) -> Iterator[_Opened]:
    """Yield answers that were surveyed, and whose manifests say that they may be fitted."""
    engine = InProcess() if engine is None else engine
    refuse_other_engines(engine)
    manifests = read_manifests(chunks, engine)
    promise, flips = _one_promise(manifests), manifests[0].flip_probability
    asked: Any = {"hold_out": hold_out, "scratch": scratch, "taken": taken}
    with survey_chunks(chunks, engine, **asked) as survey:
        _refuse_more_than_promised(survey, promise, flips)
        promise = _told_apart(survey, promise, manifests)
        yield _Opened(
            survey=survey,
            engine=engine,
            features=features,
            promise=promise,
            flips=flips,
            artifact=digest_of_files(manifests),
            scratch=scratch,
            taken=taken,
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Opened:
    """Answers in many files, as they are fitted and measured."""

    survey: ChunkSurvey  # which of them count
    engine: Engine  # where they are read
    features: Features | None  # turns texts into vectors
    promise: Guarantee  # what they promise
    flips: float  # chance that an answer is not the judgment
    artifact: str  # digest of the files
    scratch: str | Path | None  # folder for what tasks exchange
    taken: Taken | None  # called as tasks are done

    def refuse_too_few(self) -> None:
        """Refuse to measure where the public rule puts all answers on one side."""
        n, parts = self.survey.counted, self.survey.parts
        if parts is not None and not all(part.counted for part in parts):
            raise DataError(
                f"{n} answers are to too few different questions to measure anything on held-out "
                "ones; a dozen is the least. Nothing was fitted."
            )

    @cached_property
    def evidence(self) -> AnswerEvidence:
        """Return what a fit sees of all answers."""
        return self._evidence(self.survey)

    def _evidence(self, survey: ChunkSurvey) -> AnswerEvidence:
        """Return what a fit sees of the answers that count in a survey."""
        rows = counted_vectors(survey, self.engine, self.features, answers=True, taken=self.taken)
        return evidence_of_answers(rows, self.features, self.flips)

    def reward(self, terms: _Terms, *, ellipsoid: bool | None) -> RewardModel:
        """Return the reward that explains all answers best."""
        evidence, ball = self.evidence, terms.ball
        solution, ridge, candidates = fit_evidence(evidence, ridge=terms.ridge, ball=ball)
        if ellipsoid is None:
            ellipsoid = evidence.rows.shape[1] <= MOST_FEATURES
        region = None
        if ellipsoid:
            region = confidence_ellipsoid(
                evidence.rows,
                solution,
                flip_probability=self.flips,
                ball=ball,
                ridge=ridge,
                candidates=candidates,
            )
        return RewardModel(
            weights=solution.theta,
            features=self.features,
            guarantee=self.promise,
            method="debiased",
            ridge=ridge,
            ball=ball,
            gradient_norm=solution.gradient_norm,
            atol=accepted_gradient(evidence),
            pairs=len(evidence),
            standard_errors=chunk_errors(evidence, solution, ridge),
            ellipsoid=region,
            artifact=self.artifact,
        )

    def metrics(self, terms: _Terms, *, temperature: float | None) -> AnswerMetrics:
        """Return what a fit on four fifths of the questions measures on the rest."""
        fitted, measured = self.survey.divided()
        bound = self.evidence.feature_bound  # public, and that of the reward: so are the ridges
        evidence = replace(self._evidence(fitted), feature_bound=bound)
        solution, _, _ = fit_evidence(evidence, ridge=terms.ridge, ball=terms.ball)
        with opened_predictions(
            measured,
            self.engine,
            solution.theta,
            features=self.features,
            flip_probability=self.flips,
            scratch=self.scratch,
            taken=self.taken,
        ) as predictions:
            widening = refit_widening(FOLDS, measured=1)
            return measure_predictions(predictions, temperature=temperature, widening=widening)


def read_manifests(chunks: Chunks, engine: Engine) -> tuple[Manifest, ...]:
    """Return the manifest of every file, each checked against its file where that is read."""
    if not isinstance(chunks, Chunks) or not chunks.privatized:
        raise UsageError(
            "Randomized answers are fitted: find_chunks(..., privatized=True). Nothing was read."
        )
    paths = tuple(dict.fromkeys(chunk.path for chunk in chunks.chunks))
    return engine.fold(paths, _read, add)


def _read(path: str) -> tuple[Manifest, ...]:
    """Return the manifest of one file; an error names the file."""
    return (read_manifest(Path(path)),)


def _one_promise(manifests: Sequence[Manifest]) -> Guarantee:
    """Return what all files promise; refuse those that do not belong together."""
    for name in ("mechanism", "epsilon", "flip_probability", "unit", "neighbors", "trust"):
        if len({getattr(manifest, name) for manifest in manifests}) > 1:
            raise DataError(
                f"The manifests of these files disagree about {name}: they are of different "
                "releases. Nothing was fitted. Give the files of one release."
            )
    promises = [manifest.guarantee for manifest in manifests]
    merged = merge(promises, epsilon=promises[0].epsilon, delta=0.0)
    return replace(merged, caveats=tuple(sorted(set(merged.caveats))))


def _told_apart(
    survey: ChunkSurvey, promise: Guarantee, manifests: Sequence[Manifest]
) -> Guarantee:
    """Return a promise that says if two answers to one question may be of one person."""
    if not survey.repeats:
        return promise
    if len({manifest.release_id for manifest in manifests}) > 1:
        raise PrivacyError(
            "These files are of several releases (their manifests have different release_id), a "
            "question occurs more than once, and nothing says who answered: the answers may be of "
            "one label, of which they together promise less than each. Nothing was fitted. Give "
            "the files of one release, or randomize with person ids."
        )
    return promise.with_caveats("repeats-not-linked")


def _refuse_more_than_promised(survey: ChunkSurvey, promise: Guarantee, flips: float) -> None:
    """Refuse a promise about whole people that one of them has too many answers for."""
    if promise.unit != "person":
        return
    loss = label_loss(flips)
    if not survey.linked or promise.epsilon < survey.largest * loss * (1 - _SLACK):
        raise PrivacyError(
            f"A promise of epsilon={never_less(promise.epsilon)} for one person does not cover all "
            f"answers in these files at epsilon={never_less(loss)} each: they are of several "
            "releases, or do not say who answered. Nothing was fitted."
        )
