"""Policies improved in private batches of users: one loop, and three updates to choose from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from sordino import _random, _validate
from sordino._files import refuse_unwritable
from sordino.environments.interactions import Environment, feature_bound_of
from sordino.errors import DataError, UsageError
from sordino.mechanisms.least_squares import GaussianStatistics, Oracle
from sordino.policies.log_linear import LogLinearPolicy
from sordino.privacy import accounting
from sordino.privacy.events import Event
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, merge
from sordino.privacy.ledger import Ledger
from sordino.privacy.spend import event_of
from sordino.rewards.release_checks import entropy_of, refuse_large_delta

from .checkpoints import PaidStep, RunState, read_state
from .policy_runs import Run, chosen_policy, largest_ratio
from .policy_updates import Direction, Update, UpdateBounds, update_of
from .run_plans import theoretical_step
from .run_users import RunUsers
from .user_batches import Batch, interact
from .user_slots import Slots, UserSlots, refuse_shifting

__all__ = ["Run", "optimize"]

Output = Literal["last", "average", "drawn"]
_OUTPUTS: Final = ("last", "average", "drawn")
_CURRENT: Final = "current"
_LARGEST = 2.0**400  # of a public size, so that no product of a few overflows


def optimize(  # noqa: PLR0913 (each is one choice of the user)
    environment: Environment | UserSlots,
    *,
    update: str = "npg",
    oracle: Oracle | None = None,
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
    reference: LogLinearPolicy | Literal["current"] | None = None,
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
            :class:`~sordino.algorithms.user_slots.UserSlots`, users who arrive.
        update: ``"npg"``, ``"rebel"`` (both private least squares) or ``"pg"``.
        oracle: Recipe of the regression; Gaussian sufficient statistics if left out.
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
        reference: Explores in every round: a fixed policy, or ``"current"``. If left out, the
            uniform policy, and for ``"pg"`` the current one. With a fixed one, gradients are
            weighted by π/μ before they are clipped.
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
        >>> from sordino.environments.sphere import Sphere
        >>> budget = sordino.Guarantee(1.0, delta=1e-5, unit="person",
        ...     neighbors=sordino.REPLACE_SPECIAL, trust="central")
        >>> ledger = sordino.Ledger.open(
        ...     tempfile.mkdtemp() + "/spend.db", data="users", budget=budget)
        >>> run = optimize(Sphere(), users=2000, batches=4, epsilon=1.0, delta=1e-5,
        ...     neighbors=sordino.REPLACE_SPECIAL, ledger=ledger)
        >>> len(run.policies), run.guarantee.epsilon <= 1.0, run.coverage <= 6
        (5, True, True)
    """
    refuse_shifting(neighbors)
    slots = Slots(users=users, batches=batches)
    entropy = entropy_of(simulate_seed)
    bounds = _bounds(environment, radius, gradient_bound, reward_bound)
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
        ledger=ledger,
        path=None if checkpoint is None else Path(checkpoint),
        progress=progress,
    )
    settings = {
        "update": update,
        "mechanism": f"{made!r}",
        "users": users,
        "batches": batches,
        "reward_bound": bounds.reward_bound,
        "output": _validate.one_of("output", output, _OUTPUTS),
        "randomness": entropy.randomness,
        "reference": _reference(reference, update),
        "step": getattr(environment, "step", None) if step is None else step,
    }
    return loop._through(settings)  # noqa: SLF001 (its own loop)


def _bounds(
    environment: Environment | UserSlots,
    radius: float | None,
    gradient_bound: float | None,
    reward_bound: float | None,
) -> UpdateBounds:
    """Return the public sizes that are enforced, from what is given and what the world states."""
    longest = feature_bound_of(environment)
    stated = getattr(environment, "reward_bound", 1.0) if reward_bound is None else reward_bound
    most = _validate.positive("reward_bound", stated)
    for name, value in (("feature_bound", longest), ("reward_bound", most)):
        if not 1 / _LARGEST <= value <= _LARGEST:
            raise UsageError(f"{name} must be within 2^-400 and 2^400, got {value!r}.")
    size = 2 * most / longest if radius is None else radius
    clip = 4 * most * longest if gradient_bound is None else gradient_bound
    return UpdateBounds(
        feature_bound=longest,
        reward_bound=most,
        radius=_validate.positive("radius", size),
        gradient_bound=_validate.positive("gradient_bound", clip),
    )


def _reference(reference: object, update: str) -> str | list[float]:
    """Return the exploration policy as JSON holds it; an empty list is the uniform policy."""
    if reference is None:
        return _CURRENT if update == "pg" else []
    if isinstance(reference, LogLinearPolicy):
        return [float(weight) for weight in reference.weights]
    if reference == _CURRENT:
        return _CURRENT
    raise UsageError(
        "reference must be a LogLinearPolicy, 'current', or left out, got "
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
        promise = self._promise()
        state = read_state(self.path)
        state = (
            self._started(settings, promise) if state is None else self._resumed(state, settings)
        )
        d, step = state.settings["dimension"], state.settings["step"]
        reference = _policy(state.settings["reference"], d)
        scopes = self.users.slots.scopes(state.run)
        policies = [LogLinearPolicy.uniform(d)]
        for paid in state.steps:
            policies.append(policies[-1].moved(paid.direction.weights, step))
        for number in range(len(state.steps), len(scopes)):
            batch = self._interactions(number, policies[-1], reference, state.settings["actions"])
            state = self._pay_and_move(state, batch, promise, scopes[number])
            policies.append(policies[-1].moved(state.steps[-1].direction.weights, step))
            if self.progress is not None:
                self.progress(number, state.steps[-1].direction)
        output = chosen_policy(policies, settings["output"], state.drawn)
        return Run(
            policies=tuple(policies),
            policy=output,
            guarantee=self._paid(promise, set(scopes)),
            coverage=largest_ratio(
                reference,
                output,
                actions=state.settings["actions"],
                feature_bound=self.bounds.feature_bound,
            ),
            reference=reference,
            directions=tuple(paid.direction for paid in state.steps),
            step=step,
            release_ids=tuple(paid.release_id for paid in state.steps),
        )

    def _promise(self) -> Guarantee:
        """Return what one batch promises to each of its persons."""
        promise = self.update.guarantee(self.neighbors)
        refuse_large_delta(promise, None)
        if self.users.simulated:
            promise = promise.with_caveats("simulated")
        return replace(promise, randomness=self.users.entropy.randomness)

    def _started(self, settings: dict[str, Any], promise: Guarantee) -> RunState:
        """Return a new run with disjoint scopes, of which at least one batch is affordable."""
        slots, name = self.users.slots, f"run-{_random.new_release_id()}"
        scopes = slots.scopes(name)
        if self.path is not None:
            refuse_unwritable(self.path)
        self.ledger.check(self.update.event, promise=promise, scope=scopes[0])
        _, k, d = self.users.batch(0)[1].shape
        _refuse_other_dimension(settings["reference"], d)
        step = settings["step"]
        if step is None:
            size = self.bounds
            step = theoretical_step(
                k, slots.batches, feature_bound=size.feature_bound, radius=size.radius
            )
        known = {"dimension": d, "actions": k, "step": _validate.positive("step", step)}
        drawn = int(self.users.entropy.words(1)[0]) % slots.batches
        slots.declare(self.ledger, scopes)
        state = RunState(settings=settings | known, run=name, drawn=drawn)
        state.write(self.path)
        return state

    def _resumed(self, state: RunState, settings: dict[str, Any]) -> RunState:
        """Return the state of a checkpoint, every step of it committed."""
        found = {name: state.settings.get(name) for name in ("dimension", "actions")}
        if settings["step"] is None:
            found["step"] = state.settings.get("step")
        state.refuse_other_settings(settings | found)
        state.settle(self.ledger, self.users.slots.scopes(state.run))
        return state

    def _interactions(
        self, number: int, policy: LogLinearPolicy, reference: LogLinearPolicy | None, actions: int
    ) -> Batch:
        """Return what the users of a batch did; nothing is spent yet, whatever goes wrong."""
        environment, features, rng = self.users.batch(number)
        expected = (actions, len(policy.weights))
        if features.shape[1:] != expected:
            raise DataError(
                f"contexts of batch {number} must have shape (m, {actions}, {expected[1]}) as "
                f"before, got {features.shape}. Nothing was spent on this batch."
            )
        return interact(
            environment,
            features,
            policy=policy,
            reference=reference,
            reward_bound=self.bounds.reward_bound,
            rng=rng,
        )

    def _pay_and_move(
        self, state: RunState, batch: Batch, promise: Guarantee, scope: str
    ) -> RunState:
        """Return the state with one more direction, paid before it was drawn."""
        noise = self.users.noise(len(state.steps))
        reservation = self.ledger.reserve(self.update.event, promise=promise, scope=scope)
        direction = self.update.direction(batch, entropy=noise)
        paid = PaidStep(release_id=reservation.release_id, direction=direction)
        state = state.with_step(paid)
        state.write(self.path)
        reservation.commit(paid.digest)
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


def _policy(reference: str | list[float], d: int) -> LogLinearPolicy | None:
    """Return the policy that explores; None for the current one."""
    if isinstance(reference, str):
        return None
    return LogLinearPolicy(np.asarray(reference)) if reference else LogLinearPolicy.uniform(d)


def _refuse_other_dimension(reference: str | list[float], d: int) -> None:
    """Refuse a reference that cannot be asked about these features."""
    if isinstance(reference, list) and reference and len(reference) != d:
        raise UsageError(
            f"reference must have one weight for each of {d} features, got {len(reference)}. "
            "Nothing was spent."
        )
