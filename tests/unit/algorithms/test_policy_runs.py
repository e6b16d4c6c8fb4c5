"""The bound on coverage holds and is attained; outputs are what they are called."""

import numpy as np
import pytest

from sordino.algorithms.policy_optimization import chosen_policy, largest_ratio
from sordino.policies.softmax import LogLinearPolicy, coverage_of


@pytest.mark.parametrize("seed", range(20))
def test_no_context_exceeds_the_largest_ratio(seed):
    rng = np.random.default_rng(seed)
    reference, policy = (LogLinearPolicy(rng.normal(size=3) * rng.uniform(0, 4)) for _ in "ab")
    features = rng.normal(size=(2000, 4, 3))
    features *= 1.5 / np.linalg.norm(features, axis=2, keepdims=True)
    most = largest_ratio(reference, policy, actions=4, feature_bound=1.5)
    assert coverage_of(reference, policy, features) <= most * (1 + 1e-12)


def test_it_is_attained_from_a_uniform_reference():
    policy = LogLinearPolicy(np.array([0.7, 0.0]))
    features = np.array([[[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]])
    most = largest_ratio(LogLinearPolicy.uniform(2), policy, actions=3, feature_bound=1.0)
    assert coverage_of(LogLinearPolicy.uniform(2), policy, features) == pytest.approx(most)


def test_the_extremes():
    far = LogLinearPolicy(np.array([1e6, 0.0]))
    assert largest_ratio(None, far, actions=3, feature_bound=1.0) == 1.0
    assert largest_ratio(far, far, actions=3, feature_bound=1.0) == 1.0
    assert largest_ratio(far.moved(far.weights, -2.0), far, actions=3, feature_bound=1.0) > 1e300


def test_outputs():
    policies = [LogLinearPolicy(np.array([float(number)])) for number in range(4)]
    assert chosen_policy(policies, "last", 1) is policies[3]
    assert chosen_policy(policies, "drawn", 1) is policies[1]
    assert chosen_policy(policies, "average", 1).weights.tolist() == [2.0]
