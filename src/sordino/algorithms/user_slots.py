"""Who teaches which batch: each user has one slot, by order of arrival and public person id.

One change of one person then alters one batch alone. Deleting a user would move everybody behind
into another slot, so a relation that adds or removes users is refused. What the users of a batch
did and felt are rows that know nothing of each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Int64

from sordino import _random, _validate
from sordino.environments.values import Environment, bounded_contexts, bounded_rewards
from sordino.errors import DataError, UsageError
from sordino.policies.softmax import LogLinearPolicy, sampled
from sordino.preferences.bandit_logs import usable_reward_range
from sordino.preferences.containers import Progress
from sordino.preferences.files import read_rows, untold
from sordino.preferences.records import PERSON
from sordino.privacy.ledger import Ledger

RULE: Final = "person-id"
"""The ledger's rule by which batches share no person."""

Reward = Callable[[Any, Any, np.random.Generator], Any]


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many users a run takes, and in how many batches of one size."""

    users: int  # N, how many users there are; those that fill no batch are left out
    batches: int  # T, how many updates

    def __post_init__(self) -> None:
        _validate.integer("batches", self.batches, at_least=1)
        _validate.integer("users", self.users, at_least=1)
        if self.users < self.batches:
            raise UsageError(
                f"users must be at least batches={self.batches}, one for each slot, got "
                f"{self.users!r}. Nothing was spent. Use fewer batches."
            )

    @property
    def batch(self) -> int:
        """Return m, how many users one update learns from."""
        return self.users // self.batches

    def scopes(self, run: str) -> list[str]:
        """Return the name of every batch's scope on a ledger."""
        return [f"{run}/batch-{number}" for number in range(self.batches)]

    @staticmethod
    def declare(ledger: Ledger, scopes: list[str]) -> None:
        """Record, before the first spend, that no two batches share a person."""
        if len(scopes) > 1:  # one batch alone is disjoint from nothing
            ledger.declare_disjoint(scopes, rule=RULE)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _UserBatch:
    """The users of one closed batch, as an environment that has no others."""

    features: Float[np.ndarray, "m k d"]  # of every action of every user
    feature_bound: float  # norm to which features are clipped
    reward: Reward  # what a user feels after an action, as `UserSlots` takes it

    def contexts(self, _rng: np.random.Generator, _n: int) -> Float[np.ndarray, "m k d"]:
        """Return the features of the users of this batch, whatever is asked for."""
        return self.features


class UserSlots:
    """Real users in their order of arrival: an environment for :func:`optimize`."""

    # A batch closes as soon as it has its m users. A person who arrives again has a slot already:
    # later arrivals of the same id are shown actions like anybody, and teach nothing. Ids are
    # public and decide alone (1, "1" and " 1" are one id); two users of equal content are two
    # users.
    # Source: docs/policy_optimization.md, "Setting and privacy unit".

    def __init__(
        self,
        arrivals: Iterable[tuple[str | int, Any]],
        reward: Reward,
        *,
        feature_bound: float = 1.0,
        reward_bound: float = 1.0,
        served: Collection[str | int] = (),
        first_batch: int = 0,
    ) -> None:
        """Take nobody yet: users are read as batches ask for them."""
        self.feature_bound = _validate.positive("feature_bound", feature_bound)
        self.reward_bound = _validate.positive("reward_bound", reward_bound)
        self._reward = reward
        self._arrivals = iter(arrivals)
        self._served = set(map(_known, served))
        self._number = _validate.integer("first_batch", first_batch, at_least=0)
        self._rows: list[Any] = []

    def __repr__(self) -> str:
        """Return which batch is open; no user."""
        return f"UserSlots(batch={self._number})"

    @property
    def served(self) -> frozenset[str]:
        """Return the ids of all who have a slot so far: keep them to resume in another process."""
        return frozenset(self._served)

    def extend(self, arrivals: Iterable[tuple[str | int, Any]]) -> None:
        """Add users who arrived since."""
        self._arrivals = chain(self._arrivals, arrivals)

    def batch(self, number: int, size: int) -> _UserBatch:
        """Return a batch once it has all its users; asked again, it has the same ones."""
        if number < self._number:
            raise UsageError(
                f"Batch {number} is past: users are in batch {self._number} by now. Nothing was "
                "spent. Start from the arrivals of that batch, with first_batch."
            )
        while self._number < number:
            self._fill(size)
            self._rows, self._number = [], self._number + 1
        self._fill(size)
        shapes = [np.shape(row) for row in self._rows]
        wrong = [i for i, own in enumerate(shapes) if len(own) != 2 or own != shapes[0]]  # noqa: PLR2004
        if wrong:
            raise DataError(
                f"Features of every user must be of one shape (k, d): user {wrong[0]} of a batch "
                f"has {shapes[wrong[0]]}, user 0 has {shapes[0]}. Nothing was spent on this batch."
            )
        features = np.asarray(self._rows, dtype=np.float64)
        return _UserBatch(features=features, feature_bound=self.feature_bound, reward=self._reward)

    def _fill(self, size: int) -> None:
        """Give slots of the open batch to persons who have none yet."""
        while len(self._rows) < size:
            arrival = next(self._arrivals, None)
            if arrival is None:
                raise DataError(
                    f"Batch {self._number} has {size} slots and only {len(self._rows)} users "
                    "arrived who had none before. Nothing was spent on this batch. Use fewer "
                    "users, or resume from the checkpoint when more have arrived."
                )
            person, features = arrival
            name = _known(person)
            if name not in self._served:
                self._served.add(name)
                self._rows.append(np.array(features))  # a caller may reuse its buffer


def _known(person: str | int) -> str:
    """Return an id as everywhere in the library: whoever counts as two has two slots."""
    try:
        return _validate.person_id("A person id", person)
    except DataError as error:
        raise DataError(f"{error} Nothing was spent on this batch.") from None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordedUsers:
    """Users of a file, each with a slot, of whom the reward of every action is known.

    An environment for :func:`optimize`, made by :func:`read_users`; confidential.
    """

    persons: tuple[str, ...]  # public ids, in the order of arrival, each once
    features: Float[np.ndarray, "n k d"]  # of every action of every user
    rewards: Float[np.ndarray, "n k"]
    feature_bound: float
    reward_bound: float

    def __post_init__(self) -> None:
        if len({*map(_known, self.persons)}) != len(self.features):
            raise DataError("persons must be different: who is there twice would have two slots.")

    def __len__(self) -> int:
        return len(self.persons)

    def __repr__(self) -> str:
        return f"RecordedUsers(actions={self.features.shape[1]}, d={self.features.shape[2]})"

    @property
    def order(self) -> str:
        """Return a digest of who came when: a run goes on only with everybody in the same slot."""
        return hashlib.sha256(json.dumps(self.persons).encode()).hexdigest()

    def batch(self, number: int, size: int) -> _UserBatch:
        """Return the users of the slots of one batch."""
        rows = slice(number * size, (number + 1) * size)
        if rows.stop > len(self):
            raise DataError(
                f"Batch {number} ends at slot {rows.stop}, and the file has {len(self)} persons. "
                "Nothing was spent on this batch. Use fewer users."
            )
        felt = self.rewards[rows]

        def reward(context: np.ndarray, action: np.ndarray, rng: object) -> np.ndarray:
            del context, rng  # who is in which row is known
            return np.asarray(felt[np.arange(len(felt)), action])

        bound = self.feature_bound
        return _UserBatch(features=self.features[rows], feature_bound=bound, reward=reward)


def read_users(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    reward_range: tuple[float, float],
    feature_bound: float = 1.0,
    person_field: str = PERSON,
    progress: Progress | None = None,
) -> RecordedUsers:
    """Return the users of a file (no table), in order of arrival; only the first record counts.

    A record holds a person id, ``candidates`` (the features of every action), or ``context`` (then
    every action has weights of its own), and ``rewards``, of every action.

    Args:
        source: As :func:`sordino.read_pairs` takes it.
        reward_range: Lowest and highest reward; public. Others are set to the nearer end.
        feature_bound: Norm to which features are shortened.
        person_field: Name of the public person id.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A field is missing, or a record cannot be used: which one is not said.
        UsageError: A setting is out of range.

    Guarantee:
        None: everything here but the ids is confidential. What one user adds to a run is a function
        of that user's record. Shown by tests/soundness/test_recorded_users.py.

    Source:
        docs/policy_optimization.md, "Recorded users".
    """
    low, high = usable_reward_range(reward_range)
    middle = (low + high) / 2
    rows = read_rows(source, unnamed=True, person_field=person_field, progress=progress)
    names: Collection[str] = ()
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def parsed(row: Mapping[str, Any], where: str) -> tuple[np.ndarray, np.ndarray]:
        own = "context" if "context" in names else "candidates"
        vectors = _validate.finite_array(where, row[own], ndim=1 if own == "context" else 2)
        felt = _validate.finite_array(where, row["rewards"], ndim=1)
        felt = np.clip(felt, low, high) - middle
        if own == "context":  # each action has its own block
            vectors = np.kron(np.eye(len(felt)), vectors)
        shape = next(iter(found.values()))[0].shape if found else vectors.shape
        if len(felt) != len(vectors) or vectors.shape != shape or not vectors.size:
            raise DataError(where)
        return vectors, felt

    for where, row in rows:
        if not names:  # what the first record holds is what the columns of a table would be
            names = row.keys() if isinstance(row, Mapping) else ("nothing",)
            _refuse_unusable_columns(names, person_field)
        with untold(hides_records=True):
            try:
                name = _validate.person_id(where, row[person_field])
                if name not in found:
                    found[name] = parsed(row, where)
            except (KeyError, TypeError, ValueError, OverflowError, UsageError):
                raise DataError(where) from None
    return RecordedUsers(
        persons=tuple(found),
        features=np.stack([features for features, _ in found.values()]),
        rewards=np.stack([felt for _, felt in found.values()]),
        feature_bound=_validate.positive("feature_bound", feature_bound),
        reward_bound=(high - low) / 2,
    )


def _refuse_unusable_columns(names: Collection[str], person_field: str) -> None:
    """Refuse records of which nothing honest can be learned."""
    lacking = {
        f"Records have no {person_field!r}, the public id of the person: whoever came twice would "
        "have two slots. Name the field (--person-field), or give each record an id.": (
            person_field not in names
        ),
        "A record needs either 'candidates', a list with the features of every action, or "
        "'context', a list of numbers. Lists are read from JSON Lines or Parquet.": (
            ("candidates" in names) is ("context" in names)
        ),
        "A record needs 'rewards', one of every action. From shown actions alone nothing unbiased "
        "can be learned here; `sordino bandit` reads a log of them.": "rewards" not in names,
    }
    for problem, holds in lacking.items():
        if holds:
            raise DataError(f"{problem} Nothing was spent.")


_LARGEST_RATIO: Final = 1e12  # beyond it every part is clipped anyway; it keeps them finite


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batch:
    """What m users did in one round; private until an update made a direction of it."""

    # Row i is a function of user i, of the policies and of coins: nothing is centered, ranked or
    # scaled by the other rows, which would let one user move everybody's.

    policy: LogLinearPolicy  # π, which the update improves
    features: Float[np.ndarray, "m k d"]  # φ of all actions, clipped
    probabilities: Float[np.ndarray, "m k"]  # π of all actions
    actions: Int64[np.ndarray, " m"]  # y, drawn from the exploration policy
    others: Int64[np.ndarray, " m"]  # y′, drawn from π
    advantages: Float[np.ndarray, " m"]  # r(y) − r(y′), each reward clipped first
    ratios: Float[np.ndarray, " m"]  # π(y)/μ(y); 1 where the current policy explores

    def __len__(self) -> int:
        return len(self.features)

    def scores(self) -> Float[np.ndarray, "m d"]:
        """Return φ(y) − E φ under π: the gradient of log π(y), and what NPG regresses on."""
        return self.policy.scores(self.features, self.actions, probabilities=self.probabilities)

    def differences(self) -> Float[np.ndarray, "m d"]:
        """Return φ(y) − φ(y′), which REBEL regresses on."""
        rows = np.arange(len(self))
        return np.asarray(self.features[rows, self.actions] - self.features[rows, self.others])


def interact(
    environment: Environment,
    features: Float[np.ndarray, "m k d"],
    *,
    policy: LogLinearPolicy,
    reference: LogLinearPolicy | None,
    reward_bound: float,
    rng: np.random.Generator,
) -> Batch:
    """Return what users did and felt: one action of exploration and one of the policy each."""
    # Source: docs/policy_optimization.md, "Setting and privacy unit".
    chances = policy.probabilities(features)
    explored = chances if reference is None else reference.probabilities(features)
    actions, others = sampled(explored, rng), sampled(chances, rng)
    rows = np.arange(len(features))
    chosen = chances[rows, actions]
    mine, theirs = (
        bounded_rewards(environment, features, taken, rng, reward_bound=reward_bound)
        for taken in (actions, others)
    )
    return Batch(
        policy=policy,
        features=features,
        probabilities=chances,
        actions=actions,
        others=others,
        advantages=mine - theirs,
        # μ gives drawn actions a probability above 0
        ratios=chosen
        / np.maximum(explored[rows, actions], np.maximum(chosen / _LARGEST_RATIO, 1e-300)),
    )


@dataclass(repr=False, eq=False)
class RunUsers:
    """The users of every batch, and the coins for them and for the noise."""

    # Users who are simulated, who arrive, or who were recorded.
    environment: Environment | UserSlots | RecordedUsers
    slots: Slots  # how many in a batch
    # Where all coins come from. Of a seeded source every batch gets two seeds of its own at once,
    # so that a study that is resumed is the same study.
    entropy: _random.Entropy
    _open: dict[int, tuple[Environment, Float[np.ndarray, "m k d"], np.random.Generator]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        n = self.slots.batches
        self._seeds: list[list[int]] = []
        if self.entropy.randomness == "simulated":
            self._seeds = self.entropy.words(2 * n).reshape(n, 2).tolist()

    def batch(
        self, number: int
    ) -> tuple[Environment, Float[np.ndarray, "m k d"], np.random.Generator]:
        """Return the environment of a batch, its users' features, and the coins for them.

        Guarantee:
            None, and none rests on it. That all others' actions show no more of a user than the
            updates do is shown by tests/soundness/test_policy_optimization.py.
        """
        # Asked twice it is the same users: nobody is skipped because something went wrong.
        if number not in self._open:
            source = self._source(number, 0)
            # Nothing is hidden by these coins: the noise of an update hides a user whatever the
            # user was shown, so whoever knew every action would learn no more.
            rng = np.random.Generator(np.random.PCG64([int(word) for word in source.words(4)]))
            size, world = self.slots.batch, self.environment
            open_now: Environment | _UserBatch = (
                world.batch(number, size) if isinstance(world, UserSlots | RecordedUsers) else world
            )
            self._open[number] = (open_now, bounded_contexts(open_now, rng, size), rng)
        return self._open[number]

    def noise(self, number: int) -> _random.Entropy:
        """Return the entropy of a batch's noise, and let go of its users."""
        # Guarantee: None of its own: it is handed to the update, after the entry was written.
        self._open.pop(number, None)
        return self._source(number, 1)

    def _source(self, number: int, which: int) -> _random.Entropy:
        """Return system entropy, or in a study that of one of the batch's two seeds."""
        if not self._seeds:
            return self.entropy
        return _random.SimulatedEntropy(self._seeds[number][which])
