"""Pessimistic planning as one run: a reward of compared trajectories, or one that was released.

The first is paid for as every reward is; all that follows from it is free. Where the confidence set
is too wide for anything to be certain, the run says so, and about how many answers would do.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from sordino import _validate
from sordino._files import finite, to_json
from sordino.algorithms.planning import (
    PLAN,
    PLAN_FORMAT,
    PLAN_VERSION,
    TabularWorld,
    plan,
    read_world,
    tabular_world,
)
from sordino.auditing.runs.replay import REWARD, read_result
from sordino.certificates import certify, ledger_of
from sordino.errors import UsageError
from sordino.preferences.files import COMPARED_SIDES, read_rows
from sordino.preferences.trajectories import read_trajectories
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import ledger_of_run
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.evidence import MOST_FEATURES
from sordino.rewards.model import RewardModel

from . import alignment
from .align_run import AlignRun, certified_files
from .align_settings import Align, Delta, Epsilon
from .progress import Bar
from .run import FolderRun, Limit, limit_of_private, quiet
from .settings import (
    Argument,
    Cap,
    DataOption,
    FitOption,
    IntoFolder,
    LabelUnit,
    PersonField,
    PrivacyOption,
    Unit,
    refuse_options,
    refuse_records,
    terms_of,
)

_BALL = 5.0
_OF_RELEASE: Final = ("noise", "mechanism", "metrics", "data", "reward")


@dataclass(frozen=True, kw_only=True)
class Planning(IntoFolder):
    """What the user chose for one plan; None where an option was left out."""

    title = "sordino plan"

    source: Path = Argument(
        "Comparisons of trajectories (.jsonl), which are paid for; or for nothing the folder of a "
        "run that released a reward.",
        metavar="DATA|RUN",
    )
    world: Path = DataOption(
        "Public: where actions lead. .json with transitions, and features, initial, horizon and "
        "reference if it has them; or a table of state, action, next and probability.",
        required=True,
        metavar="FILE",
    )
    horizon: int | None = DataOption("Number of steps, if the world does not say it.", min=1)
    initial: int | None = DataOption("The state in which an episode begins, likewise.", min=0)
    person_field: PersonField = "person"
    noise: str = PrivacyOption(
        "Of trajectories: noise on one sum of labels, or on every label.",
        "estimate",
        choices=("estimate", "labels"),
    )
    epsilon: Epsilon = None
    delta: Delta = None
    unit: LabelUnit = Unit.label
    cap: Cap = None
    ball: float = FitOption(
        "Largest norm of the true weights; the confidence set takes it at its word, so choose it "
        "before you look at the data.",
        _BALL,
    )
    confidence: float = FitOption("How often the set holds the true reward.", 0.95)
    scale: float = FitOption("Share of the proved radius; below 1 it is a heuristic.", 1.0)
    gap: float = FitOption("What the worst case may fall short of the best one.", 1e-4)

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        for name in ("ball", "gap"):
            _validate.positive(f"--{name}", getattr(self, name))
        _validate.failure_probability("--confidence", self.confidence, zero=False)
        _validate.non_negative("--scale", self.scale)
        refuse_records(self.unit)
        if self.is_free:
            why = "this reward was released before, and planning with it costs nothing"
            refuse_options(self, why, "epsilon", "delta", "cap", "simulate_seed")
        self.refuse_folder()

    @property
    def is_free(self) -> bool:
        """Return whether the reward is one that a run released."""
        return self.source.is_dir() or self.source.name == REWARD

    @property
    def asked(self) -> tuple[Path | None, ...]:
        """Return the public file that decides what is released."""
        return (self.world,)


@dataclass(frozen=True, kw_only=True)
class _PlanRun(FolderRun):
    """A run on a world, and on what is known of its reward."""

    settings: Planning
    tables: dict[str, Any]  # what the world's file holds, and the options beside it

    def tabular(self, d: int) -> TabularWorld:
        """Return the world for a reward of so many features; refuse one that does not fit."""
        if d > MOST_FEATURES:
            raise UsageError(
                f"A confidence set is kept for up to {MOST_FEATURES} features, and there are {d}. "
                "Nothing was spent. Give the world features."
            )
        given = {name: self.tables[name] for name in ("horizon", "features", "initial")}
        return tabular_world(self.tables["transitions"], d=d, **given)

    def publish(
        self, reward: RewardModel, ledger: Ledger, released: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the result of planning with a released reward, and all files; it is free."""
        names = ("horizon", "features", "initial", "reference")
        found = terms_of(
            self.settings,
            plan,
            reward=reward,
            environment=self.tables["transitions"],
            radius_scale=self.settings.scale,
            **{name: self.tables.get(name) for name in names},
        )
        world = self.tabular(len(reward.weights))
        told = {
            "value": found.value,
            "upper": found.upper,
            "gap": found.gap,
            "wanted_gap": self.settings.gap,
            "suboptimality": found.certificate,
            "vacuous": found.value <= self.settings.gap,
            "confidence": found.confidence,
            "radius_scale": found.radius_scale,
            "ball": reward.ball,
            "states": world.states,
            "actions": world.actions,
            "horizon": world.horizon,
            "times_needed": found.needed and found.needed.times,
            "answers_needed": found.needed and found.needed.answers,
            "said": found.needed and str(found.needed),
        }
        values: dict[str, Any] = finite(
            {
                "format": PLAN_FORMAT,
                "version": PLAN_VERSION,
                **found.to_dict(),
                "caveats": list(reward.guarantee.caveats),
                "upper": found.upper,
                "theta": found.theta.tolist(),
                "world": self.tables,
            }
        )
        certificate = certify(reward, ledger, for_study=True)
        parts = {name: released[name] for name in _OF_RELEASE if name in released}
        files = {REWARD: to_json(reward.to_dict()), PLAN: to_json(values)}
        return certified_files(certificate, ledger, parts | {"plan": told}, files)


@dataclass(frozen=True, kw_only=True)
class _Paid(_PlanRun):
    """A plan by trajectories whose labels are private until the run of their reward pays."""

    aligned: AlignRun

    @property
    def limit(self) -> Limit:
        return self.aligned.limit

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        return self.aligned.plan(ledger)

    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Release what the labels say, and plan with it."""
        told, files = self.aligned.draw(ledger)
        return self.publish(RewardModel.from_dict(json.loads(files[REWARD])), ledger, told)


@dataclass(frozen=True, kw_only=True)
class _Free(_PlanRun):
    """A plan by a reward that an earlier run released: it spends nothing."""

    reward: RewardModel
    earlier: dict[str, Any]  # what that run told

    @property
    def limit(self) -> Limit:
        return limit_of_private(self.reward.guarantee, self.settings.limits)

    @property
    def request(self) -> None:
        """Return no name: nothing is begun."""

    def account(self, *, planning: bool) -> Ledger:
        """Return the ledger that paid for the reward, to which nothing is written."""
        del planning
        settings = self.settings
        folder = settings.source if settings.source.is_dir() else settings.source.parent
        return ledger_of(self.reward, settings.ledger or ledger_of_run(folder))

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        certify(self.reward, ledger, for_study=True)  # refuses what was not paid there
        return {"spend": 0.0, **describe_guarantee_and_caveats(self.reward.guarantee)}

    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Plan with what was released, beside what the earlier run told of it."""
        return self.publish(self.reward, ledger, self.earlier)


def prepare(settings: Planning) -> _PlanRun:
    """Return the run on trajectories, or on what a run released."""
    tables = read_world(settings.world)
    for name in ("horizon", "initial"):
        said = getattr(settings, name)
        tables[name] = said if said is not None else tables.get(name)
    if tables["horizon"] is None:
        raise UsageError(
            "--horizon is needed: how many steps an episode has, as the world's file does not say "
            "it. Nothing was done."
        )
    if settings.is_free:
        folder = settings.source if settings.source.is_dir() else settings.source.parent
        reward = RewardModel.load(folder / REWARD)
        made: _PlanRun = _Free(
            settings=settings, tables=tables, reward=reward, earlier=read_result(folder)
        )
        made.tabular(len(reward.weights))
        return made
    features = tables.get("features")
    first = cast("dict[str, object]", next((row for _, row in read_rows(settings.source)), {}))
    if not any(isinstance(first.get(name), dict) for name in COMPARED_SIDES):
        features = None  # steps are told by their features
    elif features is None:
        shape = np.shape(tables["transitions"])[-3:-1]
        features = np.eye(math.prod(shape)).reshape(*shape, -1)
    with Bar.shown("Reading") as bar, quiet():
        found = read_trajectories(
            settings.source,
            features=features,
            horizon=tables["horizon"],
            person_field=settings.person_field,
            progress=bar,
        )
    given = found.pairs.given
    assert given is not None  # noqa: S101 - trajectories are vectors
    asked = terms_of(settings, Align, prefs=[], out=None, confidence=None, scale=None)
    run = _Paid(settings=settings, tables=tables, aligned=alignment.prepare(asked, found))
    run.tabular(given.shape[1])
    return run
