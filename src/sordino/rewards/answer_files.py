"""Randomized answers in many files: what all of them promise, a reward of them, and its metrics.

Nothing is spent. Sums over chunks stand for the answers; repeats of one person count once, wherever
they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from operator import add
from pathlib import Path

from sordino import _validate
from sordino.engines.engine import Engine, InProcess, Taken, refuse_other_engines
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import Chunks
from sordino.preferences.features import Features
from sordino.preferences.folds import FOLDS
from sordino.preferences.pairs import Manifest, digest_of_files, label_loss, read_manifest
from sordino.privacy.guarantee import Guarantee, merge, never_less

from .evidence import Evidence, Released, counted_vectors, evidence_of_answers
from .metrics import AnswerMetrics, measure_predictions, opened_predictions, refit_widening
from .model import RewardModel
from .reward_fit import fit, fit_sum

_SLACK = 1e-9  # relative: numbers in a manifest are the nearest floats


@contextmanager
def opened_answers(
    chunks: Chunks,
    features: Features | None,
    engine: Engine | None = None,
    *,
    hold_out: bool = False,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> Iterator[tuple[ChunkSurvey, Released[Evidence]]]:
    """Yield answers that were surveyed, and whose manifests say that they may be fitted."""
    if not isinstance(chunks, Chunks) or not chunks.privatized:
        raise UsageError(
            "Randomized answers are fitted: find_chunks(..., privatized=True). Nothing was read."
        )
    engine = InProcess() if engine is None else engine
    refuse_other_engines(engine)
    # each is checked against its file where that is read
    paths = tuple(dict.fromkeys(chunk.path for chunk in chunks))
    manifests = engine.fold(paths, _read, add)
    for name in ("mechanism", "epsilon", "flip_probability", "unit", "neighbors", "trust"):
        if len({getattr(manifest, name) for manifest in manifests}) > 1:
            raise DataError(
                f"The manifests of these files disagree about {name}: they are of different "
                "releases. Nothing was fitted. Give the files of one release."
            )
    promises, flips = [each.guarantee for each in manifests], manifests[0].flip_probability
    promise = merge(promises, epsilon=promises[0].epsilon, delta=0.0)
    promise = replace(promise, caveats=tuple(sorted(set(promise.caveats))))
    with survey_chunks(chunks, engine, hold_out=hold_out, scratch=scratch, taken=taken) as survey:
        _refuse_more_than_promised(survey, promise, flips)
        if hold_out and survey.parts and not all(part.counted for part in survey.parts):
            raise DataError(
                f"{survey.counted} answers are to too few different questions to measure anything "
                "on held-out ones; a dozen is the least. Nothing was fitted."
            )
        if survey.repeats:  # two answers to one question may be of one person
            if len({manifest.release_id for manifest in manifests}) > 1:
                raise PrivacyError(
                    "These files are of several releases (their manifests have different "
                    "release_id), a question occurs more than once, and nothing says who answered: "
                    "the answers may be of one label, of which they together promise less than "
                    "each. Nothing was fitted. Give the files of one release, or randomize with "
                    "person ids."
                )
            promise = promise.with_caveats("repeats-not-linked")
        rows = counted_vectors(survey, features, answers=True)
        yield (
            survey,
            Released(
                evidence=evidence_of_answers(rows, features, flips),
                guarantee=promise,
                artifact=digest_of_files(manifests),
                features=features,
                pairs=survey.counted,
            ),
        )


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
    """Return a reward of answers, and what one like it measures on held-out ones; both are free."""
    # Guarantee: Exactly what the answers promise: this is post-processing. Shown by
    # tests/soundness/test_chunked_answers.py.
    # The fifth of the questions that a public rule holds out is predicted by a second fit, on all
    # others: in memory there are five such fits, which would read the files five times more often.
    # So metrics are of a fit on four fifths of the answers, which is a little worse than the reward
    # that is returned, and their errors are those of a fifth of the answers. Nothing is scaled.
    # Source: docs/local.md, "The fit" and metrics on randomized labels.
    ball = _validate.workable("ball", ball)
    ridge = None if ridge is None else _validate.workable("ridge", ridge)
    heat = None if temperature is None else _validate.positive("temperature", temperature)
    with opened_answers(chunks, features, engine, hold_out=True, scratch=scratch, taken=taken) as (
        survey,
        released,
    ):
        reward = fit(released, ridge=ridge, ball=ball, ellipsoid=ellipsoid)
        fitted, measured = survey.divided()
        flips = released.evidence.flip_probability
        rows = counted_vectors(fitted, features, answers=True)
        part = replace(
            evidence_of_answers(rows, features, flips),
            # public, and that of the reward: so are the ridges
            feature_bound=released.evidence.feature_bound,
        )
        weights = fit_sum(part, ridge=ridge, ball=ball).weights
        with opened_predictions(
            measured, weights, features=features, flip_probability=flips, scratch=scratch
        ) as predictions:
            widening = refit_widening(FOLDS, measured=1)
            return reward, measure_predictions(predictions, temperature=heat, widening=widening)


def _read(path: str) -> tuple[Manifest, ...]:
    """Return the manifest of one file; an error names the file."""
    return (read_manifest(Path(path)),)


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
