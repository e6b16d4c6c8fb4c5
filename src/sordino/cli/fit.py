"""``sordino fit``: a reward from randomized answers, in one file or in many; it spends nothing."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino._files import refuse_output
from sordino.errors import PrivacyError, UsageError
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs
from sordino.reporting.result import describe_guarantee_and_caveats, judge, measure_reward
from sordino.reporting.summary import summarize
from sordino.rewards.estimation import fit_and_measure_chunks
from sordino.rewards.evidence import Released, refuse_too_few
from sordino.rewards.metrics import cross_fit
from sordino.rewards.model import RewardModel
from sordino.rewards.reward_fit import fit as fit_released
from sordino.runs.align_settings import Fitting
from sordino.runs.progress import Bar, Passes
from sordino.runs.settings import Argument, FitOption, ManyFiles, Option, Output, Reading, terms_of
from sordino.runs.tables import promise_rows, verdict_rows

from . import app, command, finish


@dataclass(frozen=True, kw_only=True)
class Fit(Output, Fitting, Reading, ManyFiles):
    """What the user chose for a fit."""

    answers: list[Path] = Argument(
        "Privatized file with its manifest beside it; or many, or folders of them.",
        metavar="DATA...",
    )
    out: Path = Option("Reward to write (.json).", required=True, metavar="FILE")
    dimension: int = FitOption("Number of hashed text features.", 512)


@command(app, Fit)
def fit(settings: Fit) -> None:
    """Fit a reward on answers that are randomized already."""
    refuse_output(settings.out, force=settings.force)
    settings.refuse_unworkable()
    # of a folder it is looked at whether all files of a run are there
    folders = any(path.is_dir() for path in settings.answers)
    many = folders or settings.reads_chunks(settings.answers)
    reward, measured, more = _fitted_files(settings) if many else _fitted_file(settings)
    reward.save(settings.out, force=settings.force)
    promise = reward.guarantee
    value = {**describe_guarantee_and_caveats(promise), "reward": measured, **more}
    coin = {"name": "randomized-response", "epsilon_per_label": promise.epsilon}
    known = {"data": {"pairs": reward.pairs}, "mechanism": coin if promise.unit == "label" else {}}
    value = {"verdict": judge(value | known), **value}
    told = dict(summarize({"noise": "labels"} | value | known)["lines"])
    rows = verdict_rows(value) | promise_rows(value) | told | {"written": settings.out.name}
    finish("sordino fit", rows, value, as_json=settings.as_json, simulated=promise.simulated)


def _fitted_file(settings: Fit) -> tuple[RewardModel, dict[str, Any], dict[str, Any]]:
    """Return a reward of one file in memory, and what it measures."""
    (source,) = settings.answers
    pairs = settings.read(source)
    if isinstance(pairs, Pairs):
        raise PrivacyError(
            "These are raw judgments; a reward fitted on them would give them away. Nothing was "
            "fitted. Randomize them first with `sordino privatize`, or use `sordino align`."
        )
    refuse_too_few(pairs)
    ridge, ball, method = settings.ridge, settings.ball, settings.method
    features = settings.suited(HashedText(dimension=settings.dimension), pairs)
    released = Released.of_answers(pairs, features)
    reward = fit_released(released, ridge=ridge, ball=ball, method=method)
    held_out = cross_fit(released.evidence, ridge=ridge, ball=ball, method=method)
    return reward, measure_reward(held_out), {}


def _fitted_files(settings: Fit) -> tuple[RewardModel, dict[str, Any], dict[str, Any]]:
    """Return a reward of many files, what it measures, and how many there are."""
    if settings.method == "mixture":
        raise UsageError(
            "--method mixture reads one file into memory; many files are fitted by the debiased "
            "likelihood. Nothing was done. Leave it out."
        )
    chunks = find_chunks(settings.answers, privatized=True, **settings.reading)
    features = None
    with settings.started_engine() as engine, Bar.shown("Reading") as bar:
        if chunks.dimension is None:
            read = survey_chunks(chunks, engine, scratch=settings.scratch)
            with read if settings.intercept == "family" else nullcontext(None) as survey:
                features = settings.suited(HashedText(settings.dimension), chunks, survey)
        found = {"chunks": chunks, "features": features, "engine": engine, "taken": Passes(bar)}
        reward, measured = terms_of(settings, fit_and_measure_chunks, **found)
    return reward, measured.to_dict(), {"files": len({chunk.file for chunk in chunks})}
