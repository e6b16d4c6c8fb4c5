"""Private policy optimization as one run: plan, account, update batch by batch, publish.

A batch is paid for and its update kept in a checkpoint beside the results, so an interrupted run
goes on where it stopped. In a world that is made up the truth is known and costs nothing; of
people nothing is told but what the updates released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from sordino import _random, _validate
from sordino._files import explained, finite, to_json
from sordino.algorithms.policy_optimization import (
    ORACLES,
    POLICY,
    UPDATES,
    Update,
    UpdateBounds,
    optimize,
    update_of,
)
from sordino.algorithms.user_slots import RecordedUsers, Slots, interact, read_users
from sordino.auditing.statistical.distinguishing import load_own
from sordino.certificates import certify_paid, paid_guarantee
from sordino.environments.linear_worlds import Dosing, Sphere
from sordino.environments.values import Environment
from sordino.errors import UsageError
from sordino.policies.softmax import LogLinearPolicy
from sordino.preferences.bandit_logs import usable_reward_range
from sordino.privacy.guarantee import DECLARED_DISJOINT, NeighboringRelation
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_json
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.release_checks import weighed

from .align_run import certified_files
from .progress import Bar
from .run import FolderRun, Limit, spending_limit
from .settings import (
    DELTA,
    Argument,
    DataOption,
    FitOption,
    IntoFolder,
    Neighbors,
    PersonField,
    PrivacyOption,
    RewardRange,
    named_option,
    refuse_options,
    terms_of,
)

_WORLDS: Final = {"sphere": Sphere, "dosing": Dosing}
_CHECKPOINT: Final = ".checkpoint.json"
_USERS = 20_000  # of a world
_FRESH = 3_000  # made-up users by whom a policy is measured


@dataclass(frozen=True, kw_only=True)
class Optimize(IntoFolder):
    """What the user chose for one run; None where an option was left out."""

    title = "sordino optimize"

    users_file: Path | None = Argument(
        "Users in their order of arrival (.jsonl, .parquet): person, candidates or context, and "
        "the rewards of all actions. Or --world.",
        required=False,
        metavar="[USERS]",
    )
    world: str | None = DataOption(
        "In place of a file: sphere, dosing (made up; the truth is known), or module:attribute of "
        "an object with contexts and reward.",
        metavar="NAME",
    )
    reward_range: RewardRange = None
    feature_bound: float = DataOption(
        "Of a file: norm to which features of an action are shortened.", 1.0
    )
    person_field: PersonField = "person"
    epsilon: float = PrivacyOption("Privacy loss allowed, for one person.", required=True)
    delta: float = PrivacyOption("Failure probability allowed, above 0.", DELTA)
    neighbors: Neighbors = PrivacyOption(
        "What one change is: all of a person is made empty, or replaced.", Neighbors.zero_out
    )
    users: int | None = FitOption(
        "How many persons take part; all of a file, or 20,000 of a world.", min=1
    )
    batches: int = FitOption("In how many batches: each person is in one.", 20, min=1)
    update: str = FitOption(
        "Policy gradient, natural policy gradient, or REBEL.", "npg", choices=UPDATES
    )
    oracle: str = FitOption(
        "The private regression inside npg and rebel.",
        "gaussian-statistics",
        choices=tuple(ORACLES),
    )
    output: str = FitOption(
        "The last policy, the average of weights, or one drawn.",
        "last",
        choices=("last", "average", "drawn"),
    )
    explore: str | None = FitOption(
        "What explores: the uniform policy, or the current one; by default uniform, and with pg "
        "current.",
        choices=("uniform", "current"),
    )
    step: float | None = FitOption(
        "Of an update, in log odds per unit of reward; by default that of the theorem."
    )
    radius: float | None = FitOption("Norm to which an update is projected.")
    gradient_bound: float | None = FitOption("With pg: norm to which a person's part is clipped.")

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        if (self.users_file is None) is (self.world is None):
            raise UsageError(
                "Either a file of users or --world is needed, and not both. Nothing was done."
            )
        _validate.telling("--epsilon", self.epsilon)
        _validate.failure_probability("--delta", self.delta, zero=False)
        for name in ("step", "radius", "gradient_bound", "feature_bound"):
            if (value := getattr(self, name)) is not None:
                _validate.positive(f"--{name.replace('_', '-')}", value)
        if self.neighbors is Neighbors.add_remove:
            raise UsageError(
                "--neighbors add-remove: a person more or less moves all later ones to other "
                "batches. Nothing was done. Use zero-out, or replace."
            )
        if self.update != "pg":
            refuse_options(self, "it is for --update pg", "gradient_bound")
        if self.world is not None:
            why = "it says how a file is read; a world states its own bounds"
            refuse_options(self, why, "reward_range")
        elif self.reward_range is None:
            raise UsageError(
                "--reward-range LOW HIGH is needed: the least and the largest reward that there "
                "can be. Read from the file, it would be released. Nothing was done."
            )
        else:
            with named_option("--reward-range"):
                usable_reward_range(self.reward_range)
        self.refuse_folder()

    @property
    def checkpoint(self) -> Path:
        """Return where the updates lie that were paid for, until the run ends."""
        assert self.out is not None  # noqa: S101 - the command needs one
        return self.out / _CHECKPOINT

    @property
    def is_begun(self) -> bool:
        """Return whether this command was interrupted after a checkpoint was written."""
        return self.checkpoint.is_file()

    @property
    def relation(self) -> NeighboringRelation:
        """Return what one change is."""
        return self.neighbors.relation


@dataclass(frozen=True, kw_only=True)
class _OptimizeRun(FolderRun):
    """A run on users of a file or of a world."""

    settings: Optimize
    users: Environment | RecordedUsers

    @property
    def request(self) -> None:
        """Return no name: what was paid for is found again by the checkpoint."""

    @cached_property
    def slots(self) -> Slots:
        """Return how many persons take part, in how many batches."""
        held, asked = self.users, self.settings.users
        there = len(held) if isinstance(held, RecordedUsers) else None
        if asked is not None and there is not None and asked > there:
            raise UsageError(
                f"--users {asked}: the file has {there} persons, of whom each counts once. Nothing "
                "was spent. Use fewer."
            )
        return Slots(users=asked or there or _USERS, batches=self.settings.batches)

    @cached_property
    def update(self) -> Update:
        """Return what one batch is changed by."""
        return self._update_for(self.users)

    def _update_for(self, users: object, epsilon: float | None = None) -> Update:
        settings = self.settings
        given = {"radius": settings.radius, "gradient_bound": settings.gradient_bound}
        bounds = UpdateBounds.of(users, **(given if users is self.users else {}))
        return update_of(
            settings.update,
            settings.oracle,
            epsilon=settings.epsilon if epsilon is None else epsilon,
            delta=settings.delta,
            neighbors=settings.relation,
            bounds=bounds,
            batch=self.slots.batch,
        )

    @property
    def limit(self) -> Limit:
        settings = self.settings
        terms: dict[str, Any] = {"delta": settings.delta, "neighbors": settings.relation}
        return spending_limit(settings.epsilon, settings.limits, unit="person", **terms)

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what one batch spends, which is what all of them do; nothing is touched."""
        settings, slots = self.settings, self.slots
        promise = weighed(self.update.guarantee(settings.relation), None, ledger.accepted)
        promise = promise.drawn(_random.entropy(settings.simulate_seed).randomness)
        if not settings.is_begun:  # else the run itself looks which batch comes next
            ledger.check(self.update.event, promise=promise, scope=f"{slots.batches} batches")
        if slots.batches > 1:
            promise = promise.with_caveats(DECLARED_DISJOINT)
        names = ("update", "oracle", "output")
        return {
            "spend": promise.epsilon,
            "users": slots.batch * slots.batches,
            "batches": slots.batches,
            **{name: getattr(settings, name) for name in names},
            "foreseen": self._foreseen() if settings.dry_run else None,
            **describe_guarantee_and_caveats(promise),
        }

    def _foreseen(self) -> dict[str, float] | None:
        """Return what share of the gain such a run leaves in a made-up world of these sizes."""
        # Public numbers alone enter, and nobody's record: coins are those of a seed.
        users = self.users
        if not isinstance(users, RecordedUsers):
            return None
        _, k, d = users.features.shape
        world = Sphere(dimension=d, actions=k)
        step, explores = self.settings.step or world.step, self.settings.explore
        current = explores == "current" or (explores is None and self.settings.update == "pg")
        found = {}
        for name, epsilon in (("private", self.settings.epsilon), ("without_privacy", math.inf)):
            update, entropy = self._update_for(world, epsilon), _random.entropy(0)
            rng, policy = _generator(), LogLinearPolicy.uniform(d)
            start = world.suboptimality(policy, _generator(), _FRESH)
            for _ in range(self.slots.batches):
                batch = interact(
                    world,
                    world.contexts(rng, self.slots.batch),
                    policy=policy,
                    reference=None if current else LogLinearPolicy.uniform(d),
                    reward_bound=world.reward_bound,
                    rng=rng,
                )
                policy = policy.moved(update.direction(batch, entropy=entropy).weights, step)
            found[name] = world.suboptimality(policy, _generator(), _FRESH) / start
        return found

    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Update batch by batch, from the checkpoint on if there is one; then certify."""
        settings, slots, users = self.settings, self.slots, self.users
        with Bar.shown("Updating") as bar:
            run = terms_of(
                settings,
                optimize,
                environment=users,
                users=slots.users,
                neighbors=settings.relation,
                ledger=ledger,
                reference=settings.explore,
                checkpoint=settings.checkpoint,
                progress=lambda number, _: bar(number + 1, slots.batches),
            )
        trained = run.published(ledger)
        trained = replace(trained, guarantee=paid_guarantee(trained, ledger))
        values = finite(trained.to_dict())
        certificate = certify_paid(
            trained, ledger, kind="policy", digest=digest_of_json(values), for_study=True
        )
        truth = None
        if isinstance(users, Sphere | Dosing) and settings.world in _WORLDS:  # nobody is behind it
            losses = [users.suboptimality(one, _generator(), _FRESH) for one in run.policies]
            output = users.suboptimality(run.policy, _generator(), _FRESH)
            truth = {"suboptimality": losses, "output": output, "users": _FRESH}
        persons = slots.batch * slots.batches
        parts = {
            "noise": "per-update",
            "mechanism": {
                "name": settings.update,
                "oracle": None if settings.update == "pg" else settings.oracle,
                "epsilon": settings.epsilon,
                "delta": settings.delta,
            },
            "data": {"name": ledger.data, "world": settings.world, "persons": persons},
            "trained": trained.told,
            "truth": truth,
        }
        # no time is told: what is drawn exactly takes one that depends on people
        return certified_files(certificate, ledger, parts, {POLICY: to_json(values)})

    def finish(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Update, and show all files; the checkpoint goes, as the policy's own file holds it."""
        found = super().finish(ledger)
        with explained(f"{_CHECKPOINT} cannot be taken away"):
            self.settings.checkpoint.unlink(missing_ok=True)
        return found

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        rows = super().plan_rows(plan)
        rows["users"] = f"{plan['users']:,} persons in {plan['batches']:,} batches"
        oracle = "" if plan["update"] == "pg" else f" by {plan['oracle']}"
        rows["update"] = f"{plan['update']}{oracle}; output: {plan['output']}"
        if known := plan["foreseen"]:
            rows["foreseen"] = (
                f"in a made-up world of these sizes {known['private']:.0%} of what the best policy "
                f"gains is left, without privacy {known['without_privacy']:.0%}"
            )
        return rows


def _generator() -> np.random.Generator:
    """Return the coins of made-up users, the same whenever they are asked."""
    return np.random.Generator(np.random.PCG64(0))


def prepare(settings: Optimize) -> _OptimizeRun:
    """Return the run on the users of a file, or of a world."""
    if settings.users_file is not None:
        with Bar.shown("Reading") as bar:
            users: Any = terms_of(settings, read_users, source=settings.users_file, progress=bar)
    elif settings.world in _WORLDS:
        users = _WORLDS[settings.world]()
    else:
        users = load_own(
            cast("str", settings.world),
            ("contexts", "reward"),
            kind=f"no world: choose {' or '.join(_WORLDS)}, or module:attribute of one",
            undone="nothing was spent",
        )
    run = _OptimizeRun(settings=settings, users=users)
    _ = run.slots
    return run
