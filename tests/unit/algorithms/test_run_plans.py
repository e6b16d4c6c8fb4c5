"""A plan is a function of public numbers, and it follows them."""

import math

import pytest

import sordino
from sordino.algorithms.policy_updates import plan_run, theoretical_step
from sordino.errors import PrivacyError, UsageError

PUBLIC = {
    "delta": 1e-5,
    "neighbors": sordino.REPLACE_SPECIAL,
    "dimension": 4,
    "actions": 6,
}


def test_the_step_of_the_theorem():
    assert theoretical_step(6, 20, radius=2.0) == pytest.approx(math.sqrt(2 * math.log(6) / 80))
    assert theoretical_step(6, 20, feature_bound=3.0, radius=2.0) == pytest.approx(
        theoretical_step(6, 20, radius=2.0) / 3
    )
    for wrong in ((0, 20, 2.0), (6, 0, 2.0), (6, 20, 0.0)):
        with pytest.raises(UsageError):
            theoretical_step(wrong[0], wrong[1], radius=wrong[2])


def test_a_plan_fits_and_is_the_best_of_its_neighbors():
    plan = plan_run(20_000, epsilon=1.0, **PUBLIC)
    assert plan.users <= 20_000 < (plan.batch + 1) * plan.batches
    assert plan.step == theoretical_step(6, plan.batches, radius=2.0)
    assert plan.error == plan.optimization_error + plan.sampling_error + plan.oracle_error
    assert plan.optimization_error == pytest.approx(2.0 * math.sqrt(2 * math.log(6) / plan.batches))


def test_plans_follow_what_is_public():
    """More users allow more batches; less privacy loss asks for larger ones."""
    batches = [plan_run(n, epsilon=1.0, **PUBLIC).batches for n in (10**3, 10**5, 10**7)]
    assert batches == sorted(batches)
    assert batches[0] < batches[-1]
    sizes = [plan_run(10**5, epsilon=e, **PUBLIC).batch for e in (math.inf, 1.0, 0.05)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    errors = [plan_run(n, epsilon=1.0, **PUBLIC).error for n in (10**3, 10**5, 10**7)]
    assert errors == sorted(errors, reverse=True)


def test_refusals():
    with pytest.raises(PrivacyError):
        plan_run(100, epsilon=1.0, **PUBLIC | {"neighbors": sordino.ADD_OR_REMOVE_ONE})
    for wrong in ({"dimension": 0}, {"actions": 0}, {"delta": 0.0}, {"neighbors": "swap"}):
        with pytest.raises(UsageError):
            plan_run(100, epsilon=1.0, **PUBLIC | wrong)
    with pytest.raises(UsageError):
        plan_run(0, epsilon=1.0, **PUBLIC)
