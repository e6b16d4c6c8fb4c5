"""Users and coins of every batch, as often as they are asked for."""

import numpy as np

from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.algorithms.user_slots import RunUsers, Slots
from sordino.environments.linear_worlds import Sphere

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


def test_real_noise_is_of_the_system():
    users = RunUsers(Sphere(), SLOTS, SystemEntropy())
    assert not users.simulated
    assert users.noise(1).randomness == "system"
