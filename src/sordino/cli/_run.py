"""One run of the main job, step by step: read, cross, fit, measure, write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino import _random, _validate
from sordino._files import (
    atomic_draft,
    explained,
    finite,
    read_json,
    refuse_existing,
    refuse_unwritable,
    to_json,
)
from sordino._version import __version__
from sordino.certificates import certify
from sordino.cli._console import Bar
from sordino.cli._options import future_ledger, label_budget, open_ledger
from sordino.environments.annotators import TrueReward
from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.policies.gibbs import GibbsPolicy, gibbs_policy
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.reading import read_pairs
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import Crossing, Survey
from sordino.privatization.memory import privatize
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
from sordino.rewards.estimation import (
    Design,
    HeldOut,
    cross_fit,
    fit_reward,
    refuse_too_few,
)
from sordino.rewards.model import RewardModel

__all__ = ["Inputs", "Settings", "cross", "page", "plan", "read_inputs", "read_run", "run"]

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
    refuse_too_few(pairs)
    public = None if evaluate is None else _read_public(evaluate, pairs, person_field)
    return Inputs(
        pairs=pairs, public=public, truth=None if truth is None else TrueReward.load(truth)
    )


def _read_public(path: Path, pairs: Pairs | PrivatePairs, person_field: str) -> Pairs:
    """Return judgments that the user declares public, without questions of the private file."""
    problem: SordinoError | None = None
    try:
        public = read_pairs(path, drop_identical=True, person_field=person_field)
    except SordinoError as error:
        problem = error
    if problem is not None:
        raise type(problem)(f"--evaluate: {problem}")
    if isinstance(public, PrivatePairs):
        raise DataError("--evaluate: a public file holds judgments, not randomized answers.")
    private = set(pairs.keys)
    shared = sum(key in private for key in public.keys)
    if shared * 2 >= len(public):
        raise PrivacyError(
            "--evaluate holds the private judgments themselves: at least half of its pairs are "
            "in both files, and their labels would show in the metrics. Nothing was done. Give "
            "a file whose judgments are public."
        )
    return public.without(private)


def plan(settings: Settings, pairs: Pairs | PrivatePairs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
    """
    limit = _limit(settings, pairs)
    ledger = future_ledger(
        settings.ledger_path, settings.data, limit, change=settings.budget is not None
    )
    ledger.check_data(settings.data, None)
    if isinstance(pairs, PrivatePairs):
        if settings.epsilon is not None and settings.epsilon < pairs.guarantee.epsilon:
            raise UsageError(
                f"These answers were randomized with epsilon={pairs.guarantee.epsilon:g}; "
                f"--epsilon {settings.epsilon:g} cannot be promised of them any more. Nothing was "
                "done. Leave --epsilon out."
            )
        promise = describe_guarantee_and_caveats(pairs.guarantee)
        counts = {"pairs": len(pairs), "dropped_identical": pairs.dropped}
        return {"spend": 0.0, **counts, **promise}
    crossing = Crossing.of(
        settings.coin, ledger, on_device=False, simulate_seed=settings.simulate_seed
    )
    with crossing.open_memo(linked=pairs.persons is not None, dry_run=True) as memo:
        survey = Survey(memo, dropped=pairs.dropped)
        survey.add(pairs.keys, pairs.persons)
        return crossing.plan(survey, pairs.public_digest, data=settings.data)


def cross(settings: Settings, pairs: Pairs | PrivatePairs) -> tuple[PrivatePairs, Ledger]:
    """Return private answers and the ledger that says where they come from."""
    ledger = open_ledger(
        settings.ledger_path,
        settings.data,
        _limit(settings, pairs),
        change=settings.budget is not None,
    )
    if isinstance(pairs, PrivatePairs):
        return pairs.received(ledger.receive(pairs.artifact, pairs.guarantee)), ledger
    seed = settings.simulate_seed
    return privatize(pairs, settings.coin, ledger=ledger, simulate_seed=seed), ledger


def _limit(settings: Settings, pairs: Pairs | PrivatePairs) -> Guarantee:
    """Return the limit of a new ledger: the first spend, or what arrived private."""
    if isinstance(pairs, PrivatePairs):
        promise = pairs.guarantee
        return label_budget(promise.epsilon, settings.budget, trust=promise.trust)
    return label_budget(settings.coin.epsilon, settings.budget, trust="central")


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Make the folder of a run; a failure takes it away again if it is still empty."""
    made = not path.exists()
    with explained(f"{path.name} cannot be made"):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):
                path.rmdir()
        raise


def _publish(folder: Path, files: Mapping[str, str], *, force: bool) -> None:
    """Write files that belong together: all of them or, short of a power cut, none.

    Args:
        folder: Where.
        files: Text by name; the last one appears last and says that the others are there.
        force: Overwrite.
    """
    names = list(files)
    with ExitStack() as stack:
        drafts = []
        for name in reversed(names):  # a stack closes the other way round
            drafts.append(stack.enter_context(atomic_draft(folder / name, force=force)))
            drafts[-1].file.write(files[name].encode())
        for draft in drafts:
            draft.finish()
        (folder / names[-1]).unlink(missing_ok=True)  # no old result beside a new reward


def run(settings: Settings, inputs: Inputs, *, started: float) -> dict[str, Any]:
    """Do the whole job after the inputs were read; return what ``result.json`` holds.

    Whatever can be refused is refused before anything is spent.
    """
    plan(settings, inputs.pairs)
    with _folder(settings.out):
        refuse_unwritable(settings.out / "result.json")
        private, ledger = cross(settings, inputs.pairs)
        with _spend_is_said(ledger):
            return _released(settings, inputs, private, ledger, started)


@contextmanager
def _spend_is_said(ledger: Ledger) -> Iterator[None]:
    """Add to an error that the spend before it stays recorded."""
    try:
        yield
    except SordinoError as error:
        problem = error
    else:
        return
    stays = f" What was spent before stays on {ledger.path.name}." if ledger.spends else ""
    raise type(problem)(f"{problem}{stays}")


def _released(
    settings: Settings, inputs: Inputs, private: PrivatePairs, ledger: Ledger, started: float
) -> dict[str, Any]:
    """Fit, measure and write from answers that are private already."""
    features = HashedText(dimension=settings.dimension)
    with Bar.shown("Fitting") as bar:
        design = Design.of(private, features)
        reward = fit_reward(private, features=features, ridge=settings.ridge, design=design)
        held_out = cross_fit(design, ridge=settings.ridge, progress=bar)
    policy = gibbs_policy(reward, temperature=settings.temperature)
    certificate = certify(policy, ledger, for_study=True)
    model = to_json(reward.to_dict())
    result: dict[str, Any] = finite(
        {
            "format": RESULT_FORMAT,
            "version": RESULT_VERSION,
            "sordino": __version__,
            "way": "local",
            **describe_guarantee_and_caveats(certificate.guarantee),
            "mechanism": {
                "name": "randomized-response",
                "flip_probability": private.flip_probability,
            },
            "data": {
                "name": ledger.data,
                "pairs": len(private),
                "dropped_identical": private.dropped,
            },
            "reward": _reward(held_out, reward),
            "policy": measure_policy(held_out, settings.temperature),
            **_extras(inputs, policy),
            "calibration": calibration(held_out),
            "certificate": certificate.to_dict(),
            "reward_sha256": hashlib.sha256(model.encode()).hexdigest(),
            "seconds": round(_random.clock() - started, 3),
        }
    )
    files = {"reward.json": model, "report.html": page(result, ledger)}
    files["result.json"] = to_json(result)
    _publish(settings.out, files, force=settings.force)
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


def page(result: dict[str, Any], ledger: Ledger) -> str:
    """Return the report of a run as one HTML file."""
    summary = summarize(
        result, calibration=result["calibration"], ledger=describe_ledger_rows(ledger)
    )
    return render_report(summary)


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
