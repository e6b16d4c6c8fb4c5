"""One run of the main job, step by step: read, cross, fit, measure, write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino import _random, _validate
from sordino._files import explained, read_json, refuse_existing, sha256_of, write_json, write_text
from sordino._version import __version__
from sordino.certificates import certify
from sordino.cli._console import Bar
from sordino.cli._options import label_budget, open_ledger
from sordino.environments.annotators import TrueReward
from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.policies.gibbs import GibbsPolicy, gibbs_policy
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs, PrivatePairs, read_pairs
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import Crossing, Survey
from sordino.privatization.in_memory import privatize
from sordino.reporting.html import render_report
from sordino.reporting.result import (
    calibration,
    describe_guarantee_and_caveats,
    describe_ledger_rows,
    measure_policy,
    measure_public,
    measure_reward,
    measure_truth,
)
from sordino.reporting.summary import summarize
from sordino.rewards.estimation import Design, HeldOut, cross_fit, fit_reward
from sordino.rewards.model import RewardModel

__all__ = ["Inputs", "Settings", "cross", "plan", "read_inputs", "run", "write_page"]

RESULT_FORMAT = "sordino.result"
RESULT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose for one run."""

    out: Path
    epsilon: float | None
    budget: float | None
    ledger: Path | None
    data: str
    dimension: int
    temperature: float
    ridge: float | None
    simulate_seed: int | None
    force: bool

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        _validate.positive("--temperature", self.temperature)
        _validate.integer("--dimension", self.dimension, at_least=1)
        if self.epsilon is not None:
            RandomizedResponse(self.epsilon)
        if self.ridge is not None:
            _validate.positive("--ridge", self.ridge)
        if not self.data:
            raise UsageError("--data must be a name of at least one character.")
        refuse_existing(self.out, force=self.force)

    @property
    def coin(self) -> RandomizedResponse:
        """Return the coin for raw labels.

        Raises:
            UsageError: No epsilon was given.
        """
        if self.epsilon is None:
            raise UsageError(
                "These are raw judgments, so --epsilon is needed: the privacy loss allowed per "
                "label (1 is strong, 4 is weak). Nothing was done."
            )
        return RandomizedResponse(self.epsilon)

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        return self.ledger or self.out / "spend.db"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that a run reads, checked before anything is spent."""

    pairs: Pairs | PrivatePairs
    public: Pairs | None
    truth: TrueReward | None


def read_inputs(
    source: Path,
    *,
    evaluate: Path | None,
    truth: Path | None,
    drop_identical: bool,
    person_field: str,
) -> Inputs:
    """Return the inputs of a run.

    Raises:
        DataError: A file cannot be used; place and field are named.
        PrivacyError: The file that was declared public is the private one.
    """
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            source, drop_identical=drop_identical, person_field=person_field, progress=bar
        )
    public = None
    if evaluate is not None:
        try:
            public = read_pairs(evaluate, drop_identical=True, person_field=person_field)
        except SordinoError as error:
            problem = error
        else:
            problem = None
        if problem is not None:
            raise type(problem)(f"--evaluate: {problem}")
        if isinstance(public, PrivatePairs):
            raise DataError("--evaluate: a public file holds judgments, not randomized answers.")
        if public.public_digest == pairs.public_digest:
            raise PrivacyError(
                "--evaluate is the private file itself: its labels would show in the metrics. "
                "Nothing was done. Give a file whose judgments are public."
            )
    return Inputs(
        pairs=pairs, public=public, truth=None if truth is None else TrueReward.load(truth)
    )


def plan(settings: Settings, pairs: Pairs | PrivatePairs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
    """
    if isinstance(pairs, PrivatePairs):
        return {"spend": 0.0, **describe_guarantee_and_caveats(pairs.guarantee)}
    path = settings.ledger_path
    ledger = Ledger.read(path) if path.exists() else None
    crossing = Crossing.of(
        settings.coin, ledger, on_device=False, simulate_seed=settings.simulate_seed
    )
    with crossing.open_memo(linked=pairs.persons is not None, dry_run=True) as memo:
        survey = Survey(memo)
        survey.add(pairs.keys, pairs.persons)
        return crossing.plan(survey, pairs.public_digest, data=settings.data)


def cross(settings: Settings, pairs: Pairs | PrivatePairs) -> tuple[PrivatePairs, Ledger]:
    """Return private answers and the ledger that says where they come from."""
    if isinstance(pairs, PrivatePairs):
        limit = _limit(settings, pairs.guarantee.epsilon, pairs.guarantee)
        ledger = _ledger(settings, limit)
        return pairs.received(ledger.receive(pairs.artifact, pairs.guarantee)), ledger
    coin = settings.coin
    ledger = _ledger(settings, label_budget(coin.epsilon, settings.budget, trust="central"))
    seed = settings.simulate_seed
    return privatize(pairs, coin, ledger=ledger, simulate_seed=seed), ledger


def _limit(settings: Settings, epsilon: float, promise: Guarantee) -> Guarantee:
    """Return the limit of a ledger that only records what arrived private."""
    return label_budget(epsilon, settings.budget, trust=promise.trust)


def _ledger(settings: Settings, limit: Guarantee) -> Ledger:
    """Return the run's ledger, its folder made if need be."""
    path = settings.ledger_path
    made = not settings.out.exists()
    with explained(f"{settings.out.name} cannot be made"):
        settings.out.mkdir(parents=True, exist_ok=True)
    try:
        return open_ledger(path, settings.data, limit, change=settings.budget is not None)
    except SordinoError:
        if made:  # nothing was spent, so nothing is left behind
            settings.out.rmdir()
        raise


def run(settings: Settings, inputs: Inputs, *, started: float) -> dict[str, Any]:
    """Do the whole job after the inputs were read; return what ``result.json`` holds."""
    private, ledger = cross(settings, inputs.pairs)
    features = HashedText(dimension=settings.dimension)
    with Bar.shown("Fitting") as bar:
        design = Design.of(private, features)
        reward = fit_reward(private, features=features, ridge=settings.ridge, design=design)
        held_out = cross_fit(design, ridge=settings.ridge, progress=bar)
    policy = gibbs_policy(reward, temperature=settings.temperature)
    reward.save(settings.out / "reward.json", force=settings.force)
    certificate = certify(policy, ledger, for_study=True)
    result = {
        "format": RESULT_FORMAT,
        "version": RESULT_VERSION,
        "sordino": __version__,
        "way": "local",
        **describe_guarantee_and_caveats(certificate.guarantee),
        "mechanism": {
            "name": "randomized-response",
            "flip_probability": private.flip_probability,
        },
        "data": {"name": ledger.data, "pairs": len(private)},
        "reward": _reward(held_out, reward),
        "policy": measure_policy(held_out, settings.temperature),
        **_extras(inputs, policy),
        "calibration": calibration(held_out),
        "certificate": certificate.to_dict(),
        "reward_sha256": sha256_of(settings.out / "reward.json"),
        "seconds": round(_random.clock() - started, 3),
    }
    write_page(settings.out / "report.html", result, ledger, force=settings.force)
    write_json(settings.out / "result.json", result, force=settings.force)
    return result


def _reward(held_out: HeldOut, reward: RewardModel) -> dict[str, Any]:
    """Return the reward's metrics and how it was fitted."""
    return {
        **measure_reward(held_out),
        "ridge": reward.ridge,
        "gradient_norm": reward.gradient_norm,
        "features": None if reward.features is None else reward.features.to_dict(),
    }


def _extras(inputs: Inputs, policy: GibbsPolicy) -> dict[str, Any]:
    """Return the metrics that need a public file or a known truth."""
    extras: dict[str, Any] = {}
    if inputs.public is not None:
        measured = measure_public(policy.reward, inputs.public, policy.temperature)
        extras["public_evaluation"] = measured
    if inputs.truth is not None:
        extras["truth"] = measure_truth(policy, inputs.pairs, inputs.truth)
    return extras


def write_page(path: Path, result: dict[str, Any], ledger: Ledger, *, force: bool) -> None:
    """Write the report of a run."""
    summary = summarize(
        result, calibration=result["calibration"], ledger=describe_ledger_rows(ledger)
    )
    write_text(path, render_report(summary), force=force)


def read_run(folder: Path) -> dict[str, Any]:
    """Return the result of an earlier run.

    Raises:
        DataError: The folder holds no result.
        FileSystemError: It cannot be read.
    """
    return read_json(
        folder / "result.json",
        kind=RESULT_FORMAT,
        version=RESULT_VERSION,
        problem="This run cannot be used",
    )
