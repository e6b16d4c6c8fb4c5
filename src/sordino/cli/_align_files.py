"""Noise on the estimate over many files: read in chunks, one noised sum of labels released."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sordino.errors import UsageError
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.preferences.chunk_reading import judgments
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import Chunks
from sordino.privacy.ledger import Ledger
from sordino.privatization.randomization import refuse_unlinked
from sordino.reporting.result import describe_fit_settings, describe_guarantee_and_caveats
from sordino.rewards.chunk_fit import fit_released_chunks
from sordino.rewards.estimation import EXPECTED_PASSES
from sordino.rewards.label_release import ReleasedChunks, promise_of, release_chunks
from sordino.rewards.model import RewardModel
from sordino.rewards.private_metric_releases import METRICS_PASSES, measure_label_chunks
from sordino.rewards.private_metrics import PrivateMetrics
from sordino.rewards.release_checks import entropy_of

from ._align_estimate import (
    check_spends,
    describe_findings,
    opened_ledger,
    planned_ledger,
    promise_together,
    with_bought,
)
from ._align_inputs import Inputs, Learned, Noise, Surveyed
from ._align_settings import Settings
from ._app import Bar
from ._options import Passes, describe_files
from ._policy_choice import NO_METRICS, NO_WINS, make_policy, refuse_settings

_REPEATS = "repeats-not-linked"


def plan(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return what a run would spend and read; nothing is touched.

    Before the files were read, what depends on all records is not known: how many there are, and
    whether a question occurs twice.

    Raises:
        BudgetExceeded: The ledger has not enough left.
        DataError: Persons must be known and are not.
        MissingExtra: The engine is not installed.
        UsageError: A setting does not go with what the files hold.
    """
    chunks, found = chunks_of(inputs), inputs.surveyed
    refuse_for_vectors(settings, chunks)
    if found is None:
        settings.place.refuse_missing()
    survey = None if found is None else found.survey
    if survey is not None:
        _parts(survey, settings)
    linked = names_persons(chunks) if survey is None else survey.linked
    if settings.cap is not None and not linked:
        refuse_unlinked(f"a limit of {settings.cap} records of one person")
    noise = _noise(settings, inputs)
    ledger = planned_ledger(settings, noise)
    alone = promise_of(
        _for_labels(noise),
        ledger,
        entropy_of(settings.simulate_seed),
        linked=linked,
        repeats=survey is not None and survey.repeats,
        n=None if survey is None else survey.n,
    )
    promise = promise_together(settings, noise, ledger, alone)
    check_spends(noise, ledger, promise)
    return {
        "spend": promise.epsilon,
        "pairs": None if survey is None else survey.counted,
        "dropped_identical": None if survey is None else survey.dropped,
        "mechanism": noise.describe(),
        "metrics": noise.describe_metrics(),
        "files": describe_files(chunks, settings.place, passes=_passes(settings)),
        "possible_caveats": [_REPEATS] if survey is None and not linked else [],
        **describe_guarantee_and_caveats(promise),
    }


@contextmanager
def surveyed(settings: Settings, inputs: Inputs) -> Iterator[Inputs]:
    """Read all that is public of the files once, with an engine that stays until the end."""
    place = settings.place
    with place.engine() as engine, Bar.shown("Reading") as bar:
        taken = Passes(bar, None if settings.hides_texts else _passes(settings))
        where: Any = {"scratch": place.scratch, "taken": taken}
        asked: Any = {"most": settings.cap, "hold_out": settings.metrics_epsilon is not None}
        with survey_chunks(chunks_of(inputs), engine, **asked, **where) as survey:
            yield replace(inputs, surveyed=Surveyed(survey=survey, engine=engine, taken=taken))


def open_account(settings: Settings, inputs: Inputs) -> Ledger:
    """Return the ledger of a run."""
    return opened_ledger(settings, _noise(settings, inputs))


def learn(settings: Settings, inputs: Inputs, ledger: Ledger) -> Learned:
    """Return what one noised sum of the labels in many files teaches, and what was bought."""
    found, noise = inputs.surveyed, _noise(settings, inputs)
    assert found is not None  # noqa: S101 - for the type checker
    fitted, held_out = _parts(found.survey, settings)
    released = _released(settings, found, fitted, noise, ledger)
    reward = fit_released_chunks(released, ridge=settings.ridge, ball=settings.ball)
    paid = _bought(settings, reward, found, held_out, noise, ledger)
    measured: dict[str, Any] = {**NO_METRICS}
    wins: dict[str, Any] = {**NO_WINS}
    if paid is not None:
        reward, measured, wins = with_bought(reward, paid, ledger)
    policy = make_policy(reward, **settings.policy_terms)
    sample, n = released.evidence.sample, found.survey.counted
    findings = describe_findings(settings, policy, reward, sample, n=n)
    findings["policy"] |= wins
    parts = {
        "mechanism": noise.describe(),
        "metrics": noise.describe_metrics(paid),
        "data": _data(found.survey, ledger.data, len(sample)),
        "reward": {**measured, **describe_fit_settings(reward)},
        **findings,
    }
    return Learned(reward=reward, policy=policy, ledger=ledger, parts=parts, timed=True)


def _parts(survey: ChunkSurvey, settings: Settings) -> tuple[ChunkSurvey, ChunkSurvey | None]:
    """Return what the fit may see, and what is held out for metrics, if they are bought."""
    return (survey, None) if settings.metrics_epsilon is None else survey.divided()


def _passes(settings: Settings) -> int:
    """Return how often the files will be read, about."""
    return EXPECTED_PASSES + (0 if settings.metrics_epsilon is None else METRICS_PASSES)


def _released(
    settings: Settings, found: Surveyed, fitted: ChunkSurvey, noise: Noise, ledger: Ledger
) -> ReleasedChunks:
    """Return the noised sum of the labels that the fit may see."""
    texts = fitted.chunks.dimension is None
    return release_chunks(
        fitted,
        _for_labels(noise),
        ledger=ledger,
        engine=found.engine,
        features=settings.features(fitted.counted) if texts else None,
        simulate_seed=settings.simulate_seed,
        taken=found.taken,
    )


def _bought(
    settings: Settings,
    reward: RewardModel,
    found: Surveyed,
    held_out: ChunkSurvey | None,
    noise: Noise,
    ledger: Ledger,
) -> PrivateMetrics | None:
    """Return metrics on labels that the fit did not see, if the user pays for them."""
    if held_out is None or not isinstance(noise.metrics, LabelGaussian):
        return None
    return measure_label_chunks(
        reward,
        held_out,
        noise.metrics,
        ledger=ledger,
        engine=found.engine,
        temperature=settings.temperature,
        simulate_seed=settings.other_seed,
        taken=found.taken,
    )


def chunks_of(inputs: Inputs) -> Chunks:
    """Return the files; this way is taken for nothing else."""
    assert isinstance(inputs.pairs, Chunks)  # noqa: S101 - for the type checker
    return inputs.pairs


def _noise(settings: Settings, inputs: Inputs) -> Noise:
    """Return what hides a label, or all labels of a person."""
    found = inputs.surveyed
    texts = found is not None and found.survey.chunks.dimension is None
    n = found.survey.counted if found is not None and texts else None
    return Noise.for_labels(settings, most=settings.cap, n=n)


def _for_labels(noise: Noise) -> LabelGaussian:
    """Return the mechanism; this way has no other."""
    assert isinstance(noise.estimate, LabelGaussian)  # noqa: S101 - for the type checker
    return noise.estimate


def refuse_for_vectors(settings: Settings, chunks: Chunks) -> None:
    """Refuse settings that vectors in files cannot meet."""
    if chunks.dimension is None:
        return
    if settings.asked_dimension not in (None, chunks.dimension):
        raise UsageError(
            f"--dimension {settings.asked_dimension}: these files hold vectors of "
            f"{chunks.dimension} numbers, and no text to make features of. Nothing was done. "
            "Leave it out."
        )
    refuse_settings(
        confidence=settings.confidence,
        scale=settings.scale,
        method=settings.method,
        dimension=chunks.dimension,
    )


def names_persons(chunks: Chunks) -> bool:
    """Return whether the first records say who answered; all others must do as they do."""
    blocks = (block for chunk in chunks.chunks for block in judgments(chunks, chunk))
    first = next((block for block in blocks if len(block)), None)
    return first is not None and first.persons is not None


def _data(survey: ChunkSurvey, name: str, looked_at: int) -> dict[str, Any]:
    """Return what was used, in public numbers."""
    return {
        "name": name,
        "pairs": survey.counted,
        "records": survey.n,
        "dropped_identical": survey.dropped,
        "capped": None,  # not told from repeats, which do not count either
        "files": survey.chunks.chunks[-1].file + 1,
        "looked_at": looked_at,
    }
