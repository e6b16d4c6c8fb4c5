"""Users in slots: one slot for each person, and rows that know nothing of each other."""

import numpy as np
import pytest

import sordino
from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.algorithms.policy_optimization import optimize
from sordino.algorithms.user_slots import RunUsers, Slots, UserSlots, interact
from sordino.environments.linear_worlds import Sphere
from sordino.errors import DataError, UsageError
from sordino.policies.softmax import LogLinearPolicy


def arriving(*ids):
    return [(person, np.full((2, 1), 0.1 * number)) for number, person in enumerate(ids)]


def reward(context, action, rng):
    return context[np.arange(len(context)), action, 0]


def test_slots_are_of_one_size():
    slots = Slots(users=11, batches=3)
    assert slots.batch == 3
    assert slots.scopes("a") == ["a/batch-0", "a/batch-1", "a/batch-2"]
    for users, batches in ((2, 3), (0, 1), (3, 0), (2.5, 1)):
        with pytest.raises(UsageError):
            Slots(users=users, batches=batches)


def test_a_batch_closes_with_its_last_arrival():
    slots, taken = None, []

    def stream():
        for person, features in arriving(*"abcdef"):
            taken.append(person)
            yield person, features

    slots = UserSlots(stream(), reward)
    assert not taken
    slots.batch(0, 2)
    assert taken == ["a", "b"]
    slots.batch(2, 2)
    assert taken == list("abcdef")


def test_asked_again_a_batch_has_the_same_users():
    slots = UserSlots(arriving(*"abcd"), reward)
    one, again = slots.batch(1, 2), slots.batch(1, 2)
    assert np.array_equal(one.contexts(None, 2), again.contexts(None, 2))
    assert np.array_equal(one.features[:, 0, 0], [0.2, 0.1 * 3])
    with pytest.raises(UsageError, match="past"):
        slots.batch(0, 2)


def test_who_was_served_before_has_no_second_slot():
    slots = UserSlots(arriving(*"abcab"), reward, served="ab", first_batch=4)
    assert slots.batch(4, 1).features.shape == (1, 2, 1)
    with pytest.raises(DataError, match="Batch 5 has 1 slots and only 0 users"):
        slots.batch(5, 1)
    slots.extend(arriving("z"))
    assert slots.batch(5, 1).features.shape == (1, 2, 1)
    assert repr(slots) == "UserSlots(batch=5)"
    assert slots.served == {*"abcz"}


@pytest.mark.parametrize("shape", [(3, 1), (2,)])
def test_users_of_another_shape_are_refused(shape):
    rows = [("a", np.zeros((2, 1))), ("b", np.zeros(shape))]
    with pytest.raises(DataError, match="user 1"):
        UserSlots(rows, reward).batch(0, 2)


def test_a_stream_that_ends_early_is_resumed_when_more_arrive(tmp_path):
    budget = sordino.Guarantee(
        1.0, delta=1e-5, unit="person", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="users", budget=budget)
    slots = UserSlots(arriving(*range(7)), reward)
    given = {
        "users": 9,
        "batches": 3,
        "epsilon": 1.0,
        "delta": 1e-5,
        "neighbors": sordino.REPLACE_ONE,
        "ledger": ledger,
        "checkpoint": tmp_path / "run.json",
    }
    with pytest.raises(DataError, match="3 slots and only 1 users"):
        optimize(slots, **given)
    assert len(ledger.spends) == 2
    slots.extend(arriving(*range(9)))  # seven of them return
    assert len(optimize(slots, **given).policies) == 4
    assert len(ledger.spends) == 3


def test_a_buffer_that_is_used_again_makes_no_user_of_another():
    buffer = np.zeros((2, 1))

    def stream():
        for number in range(4):
            buffer[:] = number / 10
            yield number, buffer

    slots = UserSlots(stream(), reward)
    batch = slots.batch(0, 4)
    found = batch.contexts(np.random.default_rng(0), 4)
    np.testing.assert_allclose(found[:, 0, 0], [0.0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize("person", [float("nan"), None, 1.5, True])
def test_what_tells_no_person_from_another_is_no_id(person):
    slots = UserSlots([(person, np.zeros((2, 1)))] * 2, reward)
    with pytest.raises(DataError, match="A person id must be a text or a whole number"):
        slots.batch(0, 2)


SLOTS = Slots(users=30, batches=3)


def test_a_study_that_is_resumed_is_the_same_study():
    one = RunUsers(Sphere(), SLOTS, SimulatedEntropy(1))
    other = RunUsers(Sphere(), SLOTS, SimulatedEntropy(1))
    batches = [one.batch(number)[1] for number in range(3)]
    assert np.array_equal(batches[2], other.batch(2)[1])  # the first two were not asked for
    assert not np.array_equal(batches[0], batches[1])
    assert np.array_equal(one.noise(2).words(3), other.noise(2).words(3))
    assert not np.array_equal(one.noise(1).words(3), other.noise(2).words(3))


def test_nobody_is_skipped_when_a_batch_is_asked_for_again():
    users = RunUsers(Sphere(), SLOTS, SystemEntropy())
    first = users.batch(0)[1]
    assert users.batch(0)[1] is first
    users.noise(0)
    assert users.batch(0)[1] is not first


WORLD = Sphere(reward_noise=0.0)


def batch(reference=None, users=400, **more):
    rng = np.random.default_rng(0)
    policy = LogLinearPolicy(np.array([1.0, -2.0, 0.5, 0.0]))
    given = {"policy": policy, "reference": reference, "reward_bound": 1.0, "rng": rng} | more
    return interact(WORLD, WORLD.contexts(rng, users), **given)


def test_advantages_and_rows():
    found = batch()
    rows = np.arange(len(found))
    means = WORLD.mean_rewards(found.features)
    assert np.allclose(
        found.advantages, means[rows, found.actions] - means[rows, found.others], atol=1e-12
    )
    assert np.allclose(found.differences() @ WORLD.weights, found.advantages, atol=1e-12)
    centered = found.policy.centered(found.features)
    assert np.allclose(found.scores(), centered[rows, found.actions], atol=1e-12)
    assert np.array_equal(found.ratios, np.ones(400))


def test_rewards_are_clipped_before_they_are_subtracted():
    found = batch(reward_bound=0.1)
    assert abs(found.advantages).max() <= 0.2
    means = np.clip(WORLD.mean_rewards(found.features), -0.1, 0.1)
    rows = np.arange(len(found))
    assert np.allclose(found.advantages, means[rows, found.actions] - means[rows, found.others])


def test_ratios_undo_the_exploration():
    """E[π/μ] = 1 under μ: with 40,000 users the mean is within 5 standard errors."""
    found = batch(LogLinearPolicy.uniform(4), users=40_000)
    error = found.ratios.std() / 200
    shy = LogLinearPolicy(np.array([-400.0, 800.0, -200.0, 0.0]))
    assert np.isfinite(batch(shy).ratios).all()
    assert abs(found.ratios.mean() - 1) < 5 * error < 0.05
    assert not np.allclose(found.ratios, 1.0)
