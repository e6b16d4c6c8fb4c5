"""Policies improved in private batches of users: one loop, and three updates to choose from.

A checkpoint holds what was paid for: enough to go on, and nothing that is private. A step is
written there after its noise was drawn and before its entry is committed. Whoever resumes therefore
finds one of three things: no entry, and nothing was drawn; an entry without a step, whose draw
nobody saw, so the batch is paid for again; or a step, which is used as it is. No entry ever pays
for two draws that somebody could see.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from sordino import _random, _validate
from sordino._files import read_json, refuse_unwritable, write_json
from sordino._random import Entropy
from sordino.environments.values import Environment, feature_bound_of
from sordino.errors import DataError, LedgerMismatch, PrivacyError, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.randomized_response import NonPrivate
from sordino.mechanisms.regressions.base import LeastSquares, Oracle, RegressionTerms, slot_relation
from sordino.mechanisms.regressions.descent import OnePassDescent
from sordino.mechanisms.regressions.gaussian import AdaptiveStatistics, GaussianStatistics
from sordino.mechanisms.regressions.gibbs import ExponentialRegression
from sordino.policies.softmax import LogLinearPolicy
from sordino.privacy import accounting
from sordino.privacy.guarantee import Event, Guarantee, NeighboringRelation, merge
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privacy.ledger_chain import canonical_json, event_of
from sordino.rewards.release_checks import paying, weighed

from .user_slots import Batch, RecordedUsers, RunUsers, Slots, UserSlots, interact

UPDATES: Final = ("npg", "pg", "rebel")
ORACLES: Final[Mapping[str, Oracle]] = {
    each.name: each
    for each in (
        GaussianStatistics(),
        AdaptiveStatistics(),
        ExponentialRegression(),
        OnePassDescent(),
    )
}
"""The oracles that have a name; others are given as they are."""
_LARGEST = 2.0**400  # of a public size, so that no product of a few overflows


@dataclass(frozen=True, kw_only=True)
class UpdateBounds:
    """The public sizes that every update enforces."""

    feature_bound: float  # B, norm of features
    reward_bound: float  # R, largest absolute reward
    radius: float  # W, largest norm of a direction
    gradient_bound: float  # C, norm to which one user's part of a policy gradient is clipped

    @classmethod
    def of(
        cls,
        environment: object,
        *,
        reward_bound: float | None = None,
        radius: float | None = None,
        gradient_bound: float | None = None,
    ) -> UpdateBounds:
        """Return what is enforced, from what is given and what the world states."""
        longest = feature_bound_of(environment)
        stated = getattr(environment, "reward_bound", 1.0) if reward_bound is None else reward_bound
        most = _validate.positive("reward_bound", stated)
        for name, value in (("feature_bound", longest), ("reward_bound", most)):
            if not 1 / _LARGEST <= value <= _LARGEST:
                raise UsageError(f"{name} must be within 2^-400 and 2^400, got {value!r}.")
        size = 2 * most / longest if radius is None else radius
        clip = 4 * most * longest if gradient_bound is None else gradient_bound
        return cls(
            feature_bound=longest,
            reward_bound=most,
            radius=_validate.positive("radius", size),
            gradient_bound=_validate.positive("gradient_bound", clip),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Direction:
    """What one update released; every field may be published."""

    # Direction in which the policy's weights move, of norm at most the radius.
    weights: Float[np.ndarray, " d"]
    error: float  # the oracle's own estimate of its error; for a gradient the size of its noise
    projected: bool  # whether it was longer than the radius and was projected
    # Of a policy gradient, the squared norm less what the noise adds on average; None for the other
    # updates. It may be below 0.
    squared_gradient: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the direction as JSON holds it."""
        return {
            "weights": self.weights.tolist(),
            "error": None if not math.isfinite(self.error) else float(self.error),
            "projected": self.projected,
            "squared_gradient": self.squared_gradient,
        }

    @property
    def digest(self) -> str:
        """Return the SHA-256 of what was released, which the ledger keeps."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Direction:
        """Return the direction that :meth:`to_dict` wrote."""
        weights = _validate.finite_array("weights", values["weights"], ndim=1)
        error = values["error"]
        return cls(
            weights=weights,
            error=math.inf if error is None else float(error),
            projected=bool(values["projected"]),
            squared_gradient=values["squared_gradient"],
        )


@dataclass(frozen=True)
class _RegressionUpdate:
    """A direction that predicts advantages best: NPG on scores, REBEL on feature differences."""

    # For log-linear policies REBEL's normalizers cancel, so it too is a linear least squares, and
    # exactly so.
    # Source: docs/policy_optimization.md, "Updates".

    regression: LeastSquares  # the private regression
    differences: bool  # whether rows are φ(y) − φ(y′) (REBEL) and not φ(y) − E φ (NPG)

    @property
    def event(self) -> Event:
        """Return what one regression does."""
        return self.regression.event

    def guarantee(self, neighbors: NeighboringRelation) -> Guarantee:
        """Return what one regression promises to a person: each person is one of its rows."""
        row = self.regression.guarantee(unit="record", neighbors=neighbors, trust="central")
        return replace(row, unit="person")

    def direction(self, batch: Batch, *, entropy: Entropy) -> Direction:
        """Return the weights of the private regression; the spend must already be on a ledger.

        Guarantee:
            That of the regression, for each user of the batch. Shown by
            tests/soundness/test_policy_optimization.py.
        """
        rows = batch.differences() if self.differences else batch.scores()
        found = self.regression.release(rows, batch.advantages, entropy=entropy)
        return Direction(weights=found.weights, error=float(found.error), projected=found.projected)


@dataclass(frozen=True)
class GradientUpdate:
    """The policy gradient: a mean of clipped parts, one of each user, with Gaussian noise."""

    # Source: docs/policy_optimization.md, "Updates".

    # Clips every part and noises their sum, on a grid; or adds no noise.
    noise: GaussianMechanism | NonPrivate
    radius: float  # W; a longer direction is projected

    @property
    def event(self) -> Event:
        """Return what one gradient does."""
        return self.noise.event

    def guarantee(self, neighbors: NeighboringRelation) -> Guarantee:
        """Return what one gradient promises to a person: each person is one of its parts."""
        return self.noise.guarantee(unit="person", neighbors=neighbors, trust="central")

    def direction(self, batch: Batch, *, entropy: Entropy) -> Direction:
        """Return the noised gradient; the spend must already be on a ledger.

        Guarantee:
            That of the noise, for each user of the batch: every user has one part, clipped by
            itself, also where exploration weights it by π/μ. Shown by
            tests/soundness/test_policy_optimization.py.
        """
        parts = (batch.advantages * batch.ratios)[:, None] * batch.scores()
        m, d = parts.shape
        if isinstance(self.noise, NonPrivate):
            total, variance = parts.sum(axis=0), 0.0
        else:
            total = self.noise.release(parts, entropy=entropy, persons=np.arange(m))
            variance = d * (self.noise.standard_deviation / m) ** 2
        mean = total / m
        norm = float(np.linalg.norm(mean))
        return Direction(
            weights=mean * min(1.0, self.radius / norm) if norm else mean,
            error=math.sqrt(variance),
            projected=norm > self.radius,
            squared_gradient=norm**2 - variance,
        )


Update: TypeAlias = _RegressionUpdate | GradientUpdate
"""What makes one direction of one batch."""


def update_of(
    name: str,
    oracle: Oracle | str,
    *,
    epsilon: float,
    delta: float,
    neighbors: NeighboringRelation,
    bounds: UpdateBounds,
    batch: int,
) -> Update:
    """Return the update of that name, calibrated for one batch."""
    if _validate.one_of("update", name, UPDATES) == "pg":
        noise: GaussianMechanism | NonPrivate = NonPrivate()  # nothing is to be hidden
        if epsilon < math.inf:
            noise = GaussianMechanism.calibrated(
                epsilon,
                delta=delta,
                bound=bounds.gradient_bound,
                neighbors=neighbors,
                records_per_person=1,
            )
        return GradientUpdate(noise, bounds.radius)
    if isinstance(oracle, str):
        oracle = ORACLES[_validate.one_of("oracle", oracle, tuple(ORACLES))]
    if not isinstance(oracle, Oracle):
        raise UsageError(
            f"oracle must be one of {', '.join(ORACLES)}, a recipe of a private regression, such "
            "as GaussianStatistics(), or inherit from sordino.mechanisms.regressions.base.Oracle, "
            f"got {type(oracle).__name__}. Nothing was spent."
        )
    # Features less a mean, or another action's, are at most 2B long, and what one action gained
    # over another is at most 2R.
    terms = RegressionTerms(
        feature_bound=2 * bounds.feature_bound,
        target_bound=2 * bounds.reward_bound,
        radius=bounds.radius,
        rows=batch,
    )
    regression = oracle.calibrated(terms, epsilon, delta=delta, neighbors=neighbors)
    meant = getattr(regression, "neighbors", neighbors)
    if meant != neighbors:
        raise PrivacyError(
            f"The oracle made a regression for {getattr(meant, 'name', meant)}, and this run is "
            f"about {neighbors.name}. Nothing was spent."
        )
    return _RegressionUpdate(regression, differences=name == "rebel")


def _largest_ratio(
    reference: LogLinearPolicy | None,
    policy: LogLinearPolicy,
    *,
    actions: int,
    feature_bound: float,
) -> float:
    """Return what no π/μ exceeds in any context within the feature bound; 1 without a reference."""
    # With μ ≥ p on every action and log π/μ spread over at most s = 2B‖θ − θ_μ‖, the ratio is at
    # most 1/(p + (1 − p)e^(−s)). Nothing but released weights is read, so it costs nothing.
    # Source: docs/policy_optimization.md, "Output and coverage".
    if reference is None:
        return 1.0
    spread = 2 * feature_bound * float(np.linalg.norm(policy.weights - reference.weights))
    steep = 2 * feature_bound * float(np.linalg.norm(reference.weights))
    rarest = math.exp(-steep) / (math.exp(-steep) + actions - 1)
    least = rarest + (1 - rarest) * math.exp(-spread)
    return 1 / least if least else math.inf


FORMAT = "sordino.policy_optimization"
VERSION = 1
_UNUSABLE: Final = "The checkpoint cannot be used and nothing was spent"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _RunState:
    """The public settings of a run and what it has released so far."""

    settings: Mapping[str, Any]  # everything that must be the same when it goes on; no seed
    run: str  # A random name, with which the names of its scopes begin
    drawn: int  # which iterate is the output if one is to be drawn
    steps: tuple[tuple[str, Direction], ...] = ()  # batch by batch, each under its entry's id

    def __repr__(self) -> str:
        return f"RunState({len(self.steps)} steps)"

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON holds it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "settings": dict(self.settings),
            "run": self.run,
            "drawn": self.drawn,
            "steps": [{"release_id": name, **made.to_dict()} for name, made in self.steps],
        }

    @classmethod
    def read(cls, path: Path | None) -> _RunState | None:
        """Return the state that :meth:`write` wrote, or None if there is none yet."""
        if path is None or not path.exists():
            return None
        content = read_json(path, kind=FORMAT, version=VERSION, problem=_UNUSABLE)
        try:
            return _state_of(content)
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{_UNUSABLE}: {path.name} lacks a part of a run.") from None

    def write(self, path: Path | None) -> None:
        """Write the state whole and durably, over an older one."""
        if path is not None:
            write_json(path, self.to_dict(), force=True)

    @property
    def slots(self) -> Slots:
        """Return how many users there are, and in how many batches."""
        return Slots(users=self.settings["users"], batches=self.settings["batches"])

    @property
    def reference(self) -> LogLinearPolicy | None:
        """Return the policy that explores in every round; None where the current one does."""
        explores = self.settings["reference"]
        if isinstance(explores, str):
            return None
        weights = np.asarray(explores, dtype=np.float64)
        zeros = LogLinearPolicy.uniform(self.settings["dimension"])
        return LogLinearPolicy(weights) if explores else zeros

    @property
    def step(self) -> float:
        """Return by what a direction is multiplied."""
        return float(self.settings["step"])

    @cached_property
    def policies(self) -> tuple[LogLinearPolicy, ...]:
        """Return the start and the policy after every batch so far: T + 1 in all."""
        found = [LogLinearPolicy.uniform(self.settings["dimension"])]
        for _, direction in self.steps:
            found.append(found[-1].moved(direction.weights, self.step))
        return tuple(found)

    @property
    def policy(self) -> LogLinearPolicy:
        """Return the output: the last one, the average of the parameters, or a drawn one."""
        # Source: docs/policy_optimization.md, "Output and coverage".
        policies, output = self.policies, self.settings["output"]
        if output == "average":
            return LogLinearPolicy(np.mean([one.weights for one in policies[1:]], axis=0))
        return policies[self.drawn if output == "drawn" else -1]

    @property
    def coverage(self) -> float:
        """Return what no probability of the output over the reference's exceeds."""
        # in any context within the feature bound; 1 where the current policy explored
        return _largest_ratio(
            self.reference,
            self.policy,
            actions=self.settings["actions"],
            feature_bound=self.settings["feature_bound"],
        )

    def settle(self, ledger: Ledger, scopes: list[str]) -> None:
        """Check every step against its entry, and commit the one that was not committed yet."""
        paid = {row.release_id: row.scope for row in ledger.spends}
        committed = {
            row.release_id: json.loads(row.payload)["artifact"]
            for row in ledger.rows
            if row.kind == "commit"
        }
        for (name, made), scope in zip(self.steps, scopes, strict=False):
            if paid.get(name) != scope:
                raise LedgerMismatch(
                    f"{ledger.path.name} holds no entry for a step of this checkpoint. Nothing "
                    "was spent. Use the ledger that the run was started on."
                )
            if committed.get(name, made.digest) != made.digest:
                raise LedgerMismatch(
                    "A step of this checkpoint is not what its entry paid for. Nothing was spent. "
                    "Restore the checkpoint, or start another run."
                )
        for name, made in self.steps:
            if name not in committed:
                Reservation(ledger, name).commit(made.digest)


def _state_of(content: Mapping[str, Any]) -> _RunState:
    return _RunState(
        settings=dict(content["settings"]),
        run=str(content["run"]),
        drawn=int(content["drawn"]),
        steps=tuple(
            (str(step["release_id"]), Direction.from_dict(dict(step))) for step in content["steps"]
        ),
    )


POLICY: Final = "policy.json"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Run(_RunState):
    """All policies of a run; using and publishing any of them is free.

    Made by :func:`optimize`, or read from the file of a policy.

    Attributes:
        guarantee: What the whole sequence promises to one person: the largest promise of a batch.
        release_ids: The entries that paid, batch by batch.
    """

    guarantee: Guarantee
    release_ids: tuple[str, ...]
    counted_apart: ClassVar[bool] = True  # batches share nobody

    @classmethod
    def of(cls, state: _RunState, guarantee: Guarantee, release_ids: Iterable[str]) -> Run:
        """Return a run that has ended."""
        held = {field.name: getattr(state, field.name) for field in fields(_RunState)}
        return cls(**held, guarantee=guarantee, release_ids=tuple(release_ids))

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Return what every update released."""
        return tuple(made for _, made in self.steps)

    @property
    def projected(self) -> int:
        """Return how many directions were longer than the radius and were projected."""
        return sum(direction.projected for direction in self.directions)

    @property
    def artifact(self) -> str:
        """Return the digest of the last update."""
        return self.directions[-1].digest

    def __repr__(self) -> str:
        return (
            f"Run({len(self.steps)} batches, projected={self.projected}, "
            f"coverage={self.coverage:.4g}, {self.guarantee})"
        )

    def published(self, ledger: Ledger) -> Run:
        """Return what a file holds: with every entry of its scopes, also of a draw nobody saw."""
        # who came when is public and of no use any more: only whether a file said it stays
        known = self.settings["persons"] is not None
        scopes = {*self.slots.scopes(self.run)}
        paid = tuple(row.release_id for row in ledger.spends if row.scope in scopes)
        return replace(self, settings={**self.settings, "persons": known}, release_ids=paid)

    @property
    def told(self) -> dict[str, Any]:
        """Return what results tell of it: a function of what was released, and of nothing else."""
        settings = self.settings
        names = ("update", "users", "batches", "output", "actions", "dimension", "step")
        # of the scores of a policy gradient, or of predictions that lie in the feature bound
        unit = 1.0 if settings["update"] == "pg" else settings["feature_bound"]
        return {
            **{name: settings[name] for name in names},
            "explores": settings["reference"] if self.reference is None else "reference",
            "recorded": settings["persons"],
            "weights": self.policy.weights.tolist(),
            "coverage": self.coverage,
            "projected": self.projected,
            "lengths": [unit * float(np.linalg.norm(made.weights)) for made in self.directions],
            "errors": [made.error for made in self.directions],  # which privacy made, about
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the file: what follows, then what it follows from."""
        return {
            **super().to_dict(),
            "weights": self.policy.weights.tolist(),
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "release_ids": list(self.release_ids),
        }

    @classmethod
    def load(cls, path: Path) -> Run:
        """Return the run of a policy's file; what it shows is made anew.

        Raises:
            DataError: It is none, a newer one, or malformed.
            FileSystemError: It cannot be read.
        """
        problem = f"{path.name} cannot be used"
        values = read_json(path, kind=FORMAT, version=VERSION, problem=problem)
        try:
            promise = Guarantee.from_dict(values["guarantee"], values["caveats"])
            found = cls.of(_state_of(values), promise, map(str, values["release_ids"]))
            _ = found.told, found.artifact
        except (ArithmeticError, LookupError, TypeError, UsageError, ValueError):
            pass
        else:
            if found.to_dict() == values:
                return found
        raise DataError(f"{problem}: a field is missing, malformed, or does not follow.")


Output = Literal["last", "average", "drawn"]
_CURRENT: Final = "current"


def optimize(  # noqa: PLR0913 (each is one choice of the user)
    environment: Environment | UserSlots | RecordedUsers,
    *,
    update: str = "npg",
    oracle: Oracle | str | None = None,
    users: int = 20_000,
    batches: int = 20,
    epsilon: float,
    delta: float,
    neighbors: NeighboringRelation,
    ledger: Ledger,
    step: float | None = None,
    radius: float | None = None,
    gradient_bound: float | None = None,
    reward_bound: float | None = None,
    reference: LogLinearPolicy | Literal["current", "uniform"] | None = None,
    output: Output = "last",
    checkpoint: str | Path | None = None,
    progress: Callable[[int, Direction], object] | None = None,
    simulate_seed: int | None = None,
) -> Run:
    """Return a policy that was improved batch by batch, and every policy before it.

    Users have fixed slots, m = ⌊users/batches⌋ in a batch. In each round every user of its batch
    is shown one action of the exploration policy and one of the current policy; rewards are
    clipped, and one private update is made of all of them. Everybody else's actions depend on a
    user through released policies alone.

    Nothing standardizes or ranks rewards within a batch: that would couple users.

    Args:
        environment: ``contexts(rng, n)`` and ``reward(context, action, rng)``; or
            :class:`~sordino.algorithms.user_slots.UserSlots`, users who arrive; or what
            :func:`~sordino.algorithms.user_slots.read_users` returns, users of a file.
        update: ``"npg"``, ``"rebel"`` (both private least squares) or ``"pg"``.
        oracle: Recipe of the regression, or its name in :data:`ORACLES`; Gaussian sufficient
            statistics if left out.
        users: N, how many users there are.
        batches: T, how many updates.
        epsilon: Privacy loss of a person, infinity for none.
        delta: Failure probability, in (0, 1).
        neighbors: What one change is: ``REPLACE_SPECIAL`` (a user is zeroed out) or
            ``REPLACE_ONE``.
        ledger: Where every batch is recorded before its noise is drawn; its budget is for
            persons. All batches are declared disjoint by person id before the first.
        step: In log odds per unit of reward; the environment's own ``step`` if it has one, else
            that of the theorem, from public numbers.
        radius: W, norm to which directions are projected; 2R/B if left out.
        gradient_bound: C, norm to which one user's part of a policy gradient is clipped; 4RB,
            which clips nothing, if left out.
        reward_bound: R, rewards are clipped to ±R; the environment's own, or 1, if left out.
        reference: Explores in every round: a fixed policy, ``"uniform"``, or ``"current"``. If
            left out, the uniform policy, and for ``"pg"`` the current one. With a fixed one,
            gradients are weighted by π/μ before they are clipped.
        output: ``"last"``, ``"average"`` of the parameters, or ``"drawn"``, one of all policies
            but the last, for which the first-order theorem is.
        checkpoint: A file of what was released. If it exists, the run goes on from there, and
            what was paid for is not paid for again. Users who arrive must come in the same order
            as before, or start at the open batch with those ``served`` named.
        progress: Called after every batch with its number and its direction.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        UsageError: A setting is out of range, or differs from the checkpoint's.
        PrivacyError: The relation adds or removes users, or the ledger counts something else.
        BudgetExceeded: The next batch would pass the budget; nothing of it was drawn.
        DataError: A reward or a feature is not finite, or fewer users arrived than there are
            slots; nothing was spent on that batch, and a checkpoint can be resumed.
        LedgerMismatch: The checkpoint belongs to another ledger.

    Guarantee:
        (ε, δ) for one person under ``neighbors``, trust ``"central"``, for the whole sequence of
        policies and for what all other users are shown: the maximum over batches, not their sum.
        Where a batch was paid for twice, after a crash between payment and draw, both count.
        Features and rewards are clipped here, and each person has one slot. Caveats are those of
        the update. Shown by tests/soundness/test_policy_optimization.py.

    Source:
        PPO-DP, Algorithm 1 and Proposition 1; docs/policy_optimization.md, "Setting and privacy
        unit" and "Updates".
        Differs: neighbors that add or remove a user are refused, and every user is clipped.

    Example:
        >>> import sordino, tempfile
        >>> from sordino.environments.linear_worlds import Sphere
        >>> budget = sordino.Guarantee(1.0, delta=1e-5, unit="person",
        ...     neighbors=sordino.REPLACE_SPECIAL, trust="central")
        >>> ledger = sordino.Ledger.open(
        ...     tempfile.mkdtemp() + "/spend.db", data="users", budget=budget)
        >>> run = optimize(Sphere(), users=2000, batches=4, epsilon=1.0, delta=1e-5,
        ...     neighbors=sordino.REPLACE_SPECIAL, ledger=ledger)
        >>> len(run.policies), run.guarantee.epsilon <= 1.0, run.coverage <= 6
        (5, True, True)
    """
    slot_relation(neighbors)
    slots = Slots(users=users, batches=batches)
    entropy = _random.entropy(simulate_seed)
    bounds = UpdateBounds.of(
        environment, reward_bound=reward_bound, radius=radius, gradient_bound=gradient_bound
    )
    made = update_of(
        update,
        GaussianStatistics() if oracle is None else oracle,
        epsilon=epsilon,
        delta=_validate.failure_probability("delta", delta, zero=False),
        neighbors=neighbors,
        bounds=bounds,
        batch=slots.batch,
    )
    loop = _Loop(
        users=RunUsers(environment, slots, entropy),
        update=made,
        neighbors=neighbors,
        bounds=bounds,
        ledger=paying(ledger, "Every batch spends", "spent"),
        path=None if checkpoint is None else Path(checkpoint),
        progress=progress,
    )
    settings = {
        "update": update,
        "mechanism": f"{made!r}",
        "users": users,
        "batches": batches,
        "reward_bound": bounds.reward_bound,
        "output": _validate.one_of("output", output, ("last", "average", "drawn")),
        "feature_bound": bounds.feature_bound,
        "randomness": entropy.randomness,
        "persons": getattr(environment, "order", None),  # of a file, who is in which slot
        "reference": _reference(reference, update),
        "step": getattr(environment, "step", None) if step is None else step,
    }
    return loop._through(settings)  # noqa: SLF001 (its own loop)


def _reference(reference: object, update: str) -> str | list[float]:
    """Return the exploration policy as JSON holds it; an empty list is the uniform policy."""
    if reference is None:
        return _CURRENT if update == "pg" else []
    if isinstance(reference, LogLinearPolicy):
        return [float(weight) for weight in reference.weights]
    if reference in (_CURRENT, "uniform"):
        return _CURRENT if reference == _CURRENT else []
    raise UsageError(
        "reference must be a LogLinearPolicy, 'uniform', 'current', or left out, got "
        f"{type(reference).__name__}. Nothing was spent."
    )


@dataclass(kw_only=True, repr=False, eq=False)
class _Loop:
    """The steps of every round, in this order: users, rewards, entry, noise, file, commit."""

    users: RunUsers
    update: Update
    neighbors: NeighboringRelation
    bounds: UpdateBounds
    ledger: Ledger
    path: Path | None
    progress: Callable[[int, Direction], object] | None

    def _through(self, settings: dict[str, Any]) -> Run:
        """Go on from the checkpoint, or start; return what came out."""
        # what one batch promises to each of its persons
        promise = weighed(self.update.guarantee(self.neighbors), None, self.ledger.accepted)
        promise = promise.drawn(self.users.entropy.randomness)
        state = self._state(settings, promise)
        d, policy = state.settings["dimension"], state.policies[-1]
        scopes = self.users.slots.scopes(state.run)
        for number in range(len(state.steps), len(scopes)):
            # nothing of this batch is spent yet, whatever goes wrong
            environment, features, rng = self.users.batch(number)
            expected = (state.settings["actions"], d)
            if features.shape[1:] != expected:
                raise DataError(
                    f"contexts of batch {number} must have shape (m, {expected[0]}, {d}) as "
                    f"before, got {features.shape}. Nothing was spent on this batch."
                )
            batch = interact(
                environment,
                features,
                policy=policy,
                reference=state.reference,
                reward_bound=self.bounds.reward_bound,
                rng=rng,
            )
            noise = self.users.noise(number)
            reservation = self.ledger.reserve(
                self.update.event, promise=promise, scope=scopes[number]
            )
            direction = self.update.direction(batch, entropy=noise)
            state = replace(state, steps=(*state.steps, (reservation.release_id, direction)))
            state.write(self.path)
            reservation.commit(direction.digest)
            policy = policy.moved(direction.weights, state.step)
            if self.progress is not None:
                self.progress(number, direction)
        names = (name for name, _ in state.steps)
        return Run.of(state, self._paid(promise, set(scopes)), names)

    def _state(self, settings: dict[str, Any], promise: Guarantee) -> _RunState:
        """Return what the checkpoint holds, or a new run of which one batch is affordable."""
        state = _RunState.read(self.path)
        if state is not None:
            known = ("dimension", "actions", *(() if settings["step"] is not None else ("step",)))
            asked = settings | {name: state.settings.get(name) for name in known}
            names = sorted({*asked, *state.settings})
            differ = [name for name in names if asked.get(name) != state.settings.get(name)]
            if differ:
                raise UsageError(
                    f"The checkpoint was written with another {' and '.join(differ)}. Nothing was "
                    "spent. Use the settings it was started with, or another checkpoint."
                )
            state.settle(self.ledger, self.users.slots.scopes(state.run))
            return state
        slots, name = self.users.slots, f"run-{_random.new_release_id()}"
        scopes = slots.scopes(name)
        if self.path is not None:
            refuse_unwritable(self.path)
        self.ledger.check(self.update.event, promise=promise, scope=scopes[0])
        _, k, d = self.users.batch(0)[1].shape
        reference = settings["reference"]
        if isinstance(reference, list) and reference and len(reference) != d:
            raise UsageError(
                f"reference must have one weight for each of {d} features, got {len(reference)}. "
                "Nothing was spent."
            )
        step = settings["step"]
        if step is None:
            # √(2 log k/(T β W²)), β = B²: the step of least bound for NPG, from public numbers
            # alone. Whoever tries several and keeps the best on private users has spent all.
            # Source: PPO-DP, Theorem 2 (NPG); docs/policy_optimization.md, "Planning a run".
            smoothness = self.bounds.feature_bound**2
            step = math.sqrt(2 * math.log(max(k, 2)) / (slots.batches * smoothness))
            step /= self.bounds.radius
        sizes = {"dimension": d, "actions": k, "step": _validate.positive("step", step)}
        drawn = int(self.users.entropy.words(1)[0]) % slots.batches
        slots.declare(self.ledger, scopes)
        state = _RunState(settings=settings | sizes, run=name, drawn=drawn)
        state.write(self.path)
        return state

    def _paid(self, promise: Guarantee, scopes: set[str]) -> Guarantee:
        """Return the largest promise of a batch, composed anew of all entries of its scope."""
        spent: dict[str, Counter[Event]] = {}
        for row in self.ledger.spends:
            if row.scope in scopes:
                spent.setdefault(row.scope, Counter())[event_of(row)] += row.count
        epsilon = max(
            accounting.composed_epsilon(events, neighbors=self.neighbors, delta=promise.delta)
            for events in spent.values()
        )
        return merge([promise], epsilon=epsilon, delta=promise.delta)
