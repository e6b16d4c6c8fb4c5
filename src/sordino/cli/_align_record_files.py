"""Whole records in many files: read in chunks, one tilted minimizer of them is released."""

from __future__ import annotations

from typing import Any

from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.model import RewardModel
from sordino.rewards.record_release import fit_record_chunks
from sordino.rewards.release_checks import entropy_of, record_promise

from ._align_estimate import (
    check_spends,
    describe_learned,
    opened_ledger,
    planned_ledger,
    promise_together,
)
from ._align_files import chunks_of, refuse_for_vectors
from ._align_inputs import Inputs, Learned, Noise
from ._align_settings import Settings


def plan(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    How large the files are is not in it: it tells how many records there are, and how long.

    Raises:
        BudgetExceeded: The ledger has not enough left.
        MissingExtra: The engine is not installed.
        UsageError: A setting does not go with what the files hold.
    """
    chunks, found = chunks_of(inputs), inputs.surveyed
    refuse_for_vectors(settings, chunks)
    if found is None:
        settings.place.refuse_missing()
    survey = None if found is None else found.survey
    noise = _noise(settings, inputs)
    ledger = planned_ledger(settings, noise)
    alone = record_promise(
        _for_records(noise),
        ledger,
        entropy_of(settings.simulate_seed),
        n=None if survey is None else survey.n + survey.dropped,
    )
    promise = promise_together(settings, noise, ledger, alone)
    check_spends(noise, ledger, promise)
    counted = survey is not None and settings.relation != ADD_OR_REMOVE_ONE
    return {
        "spend": promise.epsilon,
        "pairs": survey.n + survey.dropped if survey is not None and counted else None,
        "dropped_identical": None,
        "mechanism": noise.describe(),
        "metrics": None,
        **describe_guarantee_and_caveats(promise),
    }


def open_account(settings: Settings, inputs: Inputs) -> Ledger:
    """Return the ledger of a run."""
    return opened_ledger(settings, _noise(settings, inputs))


def learn(settings: Settings, inputs: Inputs, ledger: Ledger) -> Learned:
    """Return what a tilted fit of the records in many files teaches."""
    found, noise = inputs.surveyed, _noise(settings, inputs)
    assert found is not None  # noqa: S101 - for the type checker
    texts = found.survey.chunks.dimension is None
    found.taken.stop_counting("Fitting")
    fit = fit_record_chunks(
        found.survey,
        _for_records(noise),
        second_moment=noise.second_moment,
        ledger=ledger,
        engine=found.engine,
        features=settings.features(_records(settings, inputs)) if texts else None,
        ball=settings.ball,
        ellipsoid=settings.confidence is not None,
        simulate_seed=settings.simulate_seed,
    )
    return describe_learned(settings, RewardModel(**vars(fit)), None, noise, ledger, public=None)


def _noise(settings: Settings, inputs: Inputs) -> Noise:
    """Return what hides a record; of vectors their length is known, and no option says it."""
    n = _records(settings, inputs)
    d = chunks_of(inputs).dimension or settings.features(n).dimension
    return Noise.for_records(settings, n=n, d=d)


def _records(settings: Settings, inputs: Inputs) -> int | None:
    """Return how many records there are; None where that is private, or not counted yet."""
    if inputs.surveyed is None or settings.relation == ADD_OR_REMOVE_ONE:
        return None
    survey = inputs.surveyed.survey
    return survey.n + survey.dropped


def _for_records(noise: Noise) -> ObjectivePerturbation:
    """Return the mechanism; this way has no other."""
    assert isinstance(noise.estimate, ObjectivePerturbation)  # noqa: S101 - for the type checker
    return noise.estimate
