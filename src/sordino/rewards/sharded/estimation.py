"""A reward from judgments in many files, in one call: survey, release, fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sordino.engines.engine import Engine, InProcess, refuse_other_engines
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.preferences.features import Features
from sordino.preferences.shard_survey import survey_shards
from sordino.preferences.shards import Shards
from sordino.privacy.ledger import Ledger
from sordino.rewards.model import RewardModel
from sordino.rewards.sharded.answers import fit_answer_shards
from sordino.rewards.sharded.records import fit_record_shards
from sordino.rewards.sharded.release import release_shards
from sordino.rewards.sharded.released_fit import fit_released_shards

__all__ = ["EXPECTED_PASSES", "fit_shards", "refuse_without_shards"]

_ANSWERS = "debiased"  # the one likelihood that answers in many files are fitted by

EXPECTED_PASSES = 18
"""How often files are read in all, about: 12 to 18 times in what was measured, see
docs/howto/cluster.md. A fit that is hard to certify takes more."""


def fit_shards(  # noqa: PLR0913 (each is one choice of the user)
    shards: Shards,
    mechanism: object,
    *,
    ledger: Ledger | None = None,
    engine: Engine | None = None,
    scratch: str | Path | None = None,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    simulate_seed: int | None = None,
    others: Mapping[str, object],
) -> RewardModel:
    """Return the reward of one noised sum of the labels in many files, or of their answers.

    Args:
        shards: The files: raw judgments, or randomized answers, which spend nothing.
        mechanism: For raw judgments: a
            :class:`~sordino.mechanisms.label_gaussian.LabelGaussian` for labels, or an
            :class:`~sordino.mechanisms.objective_perturbation.ObjectivePerturbation` for whole
            records.
        ledger: Likewise: where the spend is recorded before noise is drawn.
        engine: Where the files are read; in this process if left out.
        scratch: A folder for what is exchanged between tasks, which all machines see; the
            system's own place for temporary files if left out.
        features: Turns texts into vectors; left out for files of vectors.
        ridge: Strength of the quadratic penalty, > 0; chosen on the sum if left out.
        ball: Bound on the norm of the weights.
        ellipsoid: Whether to keep a confidence set; by default for up to 1024 features.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.
        others: Settings of :func:`sordino.fit_reward` that many files do not have, by name; None
            where one was left out.

    Raises:
        PrivacyError: No mechanism was given, or the ledger is about another unit.
        UsageError: A setting is out of range, or not for many files.
        DataError: A record cannot be used; file and place are named.
        FileSystemError: A file is missing or cannot be read.
        EngineError: The engine lost its machines.
        BudgetExceeded: The spend would pass the ledger's budget; no noise was drawn.
        LedgerMismatch: The ledger belongs to other prompts and answers.
        ConvergenceError: The fit could not be certified.

    Guarantee:
        That of :func:`~sordino.rewards.sharded.release.release_shards`, or of
        :func:`~sordino.rewards.sharded.records.fit_record_shards`. Shown by
        tests/soundness/test_pieced_labels.py and tests/soundness/test_pieced_records.py. Of
        randomized answers, exactly what they promise.
    """
    fitted: Any = {"features": features, "ridge": ridge, "ball": ball, "ellipsoid": ellipsoid}
    if shards.privatized:
        _refuse_spending({"mechanism": mechanism, "ledger": ledger, "simulate_seed": simulate_seed})
        if others.get("method") == _ANSWERS:
            others = {**others, "method": None}
        _refuse_settings(others)
        return fit_answer_shards(shards, engine=engine, scratch=scratch, **fitted)
    engine = InProcess() if engine is None else engine
    refuse_other_engines(engine)
    spending: Any = {
        "ledger": _account(mechanism, ledger),
        "engine": engine,
        "features": features,
        "simulate_seed": simulate_seed,
    }
    if isinstance(mechanism, ObjectivePerturbation):
        moment: Any = others.get("second_moment")
        _refuse_settings({**others, "second_moment": None})
        kept: Any = {"ball": ball, "second_moment": moment, "ellipsoid": ellipsoid}
        with survey_shards(shards, engine, scratch=scratch) as survey:
            return RewardModel(**vars(fit_record_shards(survey, mechanism, **spending, **kept)))
    held_out = _holds_out(others.get("held_out"))
    _refuse_settings({**others, "held_out": None})
    noise = _for_labels(mechanism)
    asked: Any = {"most": noise.records_per_person, "hold_out": held_out, "scratch": scratch}
    with survey_shards(shards, engine, **asked) as survey:
        seen = survey.divided()[0] if held_out else survey
        released = release_shards(seen, noise, **spending)
        return fit_released_shards(released, ridge=ridge, ball=ball, ellipsoid=ellipsoid)


def _account(mechanism: object, ledger: Ledger | None) -> Ledger | None:
    """Return where the spend is recorded; refuse to go without.

    Raises:
        UsageError: There is no ledger.
    """
    if mechanism is None or isinstance(ledger, Ledger):
        return ledger
    raise UsageError(
        "The mechanism spends, so a ledger is needed to record it. Nothing was spent. Pass "
        "ledger=sordino.Ledger.open(...)."
    )


def _holds_out(asked: object) -> bool:
    """Return whether rows are left for metrics; which ones, a public rule says and no mask.

    Raises:
        UsageError: A mask was given.
    """
    if asked is None or isinstance(asked, bool):
        return bool(asked)
    raise UsageError(
        "held_out must be True for judgments in many files: the public rule says of each row where "
        "it belongs. Nothing was spent."
    )


def refuse_without_shards(engine: object, scratch: object) -> None:
    """Refuse to say where files are read where there are none.

    Raises:
        UsageError: An engine or a folder for it was given.
    """
    given = {"engine": engine, "scratch": scratch}
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is for judgments in files that memory does not hold, from "
            "sordino.find_shards(...); these are in memory. Nothing was spent. Leave it out."
        )


def _refuse_spending(given: Mapping[str, object]) -> None:
    """Refuse to spend on answers that are private already.

    Raises:
        UsageError: A mechanism, a ledger or a seed was given.
    """
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"These answers are private already: leave {wrong[0]} out. Nothing was spent."
        )


def _refuse_settings(others: Mapping[str, object]) -> None:
    """Refuse settings that many files do not have.

    Raises:
        UsageError: One was given.
    """
    wrong = [name for name, value in others.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is not there for judgments in many files. Nothing was spent. Leave it "
            "out, or read few enough of them into memory with sordino.read_pairs."
        )


def _for_labels(mechanism: object) -> LabelGaussian:
    """Return noise for labels; refuse none, and what is not built for many files.

    Raises:
        PrivacyError: There is none.
        UsageError: It is another one.
    """
    if isinstance(mechanism, LabelGaussian):
        return mechanism
    ways = (
        "Release their sum with noise, mechanism=sordino.LabelGaussian(epsilon=..., delta=...) "
        "and a ledger; or protect whole records, mechanism=sordino.ObjectivePerturbation(...); or "
        "randomize them first with `sordino privatize` and fit the answers, "
        "find_shards(..., privatized=True)."
    )
    if mechanism is None:
        raise PrivacyError(
            "These are raw judgments; a reward fitted on them would give them away. Nothing was "
            f"fitted. {ways}"
        )
    raise UsageError(
        f"mechanism={type(mechanism).__name__} is not there for judgments in many files. Nothing "
        f"was spent. {ways}"
    )
