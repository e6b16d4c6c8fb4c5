"""Losses of one data set, against every neighbor of it: refitted one by one, and in many digits."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from tests.tiers import few

from sordino.auditing.instance_losses import (
    ArmAudit,
    LinearAudit,
    _fit_reach,
    gathered_arms,
)
from sordino.mechanisms.score_sensitivity import own_reward_step
from sordino.preferences.bandit_logs import BanditLogs

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "intrinsic.json").read_text())
ARMS = [row for row in VECTORS if row["name"] == "MAB instance"]
SHRUNKEN = [row for row in VECTORS if row["name"] == "MAB shrunken mean, all D"]
LINEAR = [row for row in VECTORS if row["name"] == "linear d=1 instance"]
ROUNDING = 1e-9  # relative, of sums of floats against 40 digits


def arm_loss(*arms, **rule):
    return ArmAudit(**rule).loss(*arms).for_curator_only()


def arm_delta(*arms, epsilon, **rule):
    return ArmAudit(**rule).delta(*arms, epsilon=epsilon).for_curator_only()


def arm_bound(counts, **rule):
    return ArmAudit(**rule).class_bound(counts).for_curator_only()


def linear_loss(*records, additions=None, **rule):
    return LinearAudit(**rule).loss(*records, additions).for_curator_only()


def linear_bound(*features, **rule):
    return LinearAudit(**rule).class_bound(*features).for_curator_only()


def summed(records):
    """Counts, sums, least and largest reward, as an audit takes them."""
    return (
        [len(rewards) for rewards in records],
        [sum(rewards) for rewards in records],
        [min(rewards, default=0.0) for rewards in records],
        [max(rewards, default=0.0) for rewards in records],
    )


def policy(records, *, temperature, shrinkage, center, penalty, reference):
    """The chances of all arms, in the digits of the context."""
    weights = []
    for rewards, start in zip(records, reference, strict=True):
        size = mpmath.mpf(len(rewards)) + mpmath.mpf(shrinkage)
        if not size:
            weights.append(mpmath.mpf(0))
            continue
        total = sum(map(mpmath.mpf, rewards)) + mpmath.mpf(shrinkage) * mpmath.mpf(center)
        score = total / size - mpmath.mpf(penalty) / mpmath.sqrt(size)
        weights.append(mpmath.mpf(start) * mpmath.exp(score / mpmath.mpf(temperature)))
    return [weight / sum(weights) for weight in weights]


def neighbors(records, width, inside=()):
    """Every data set with one record more or less."""
    for arm, rewards in enumerate(records):
        for reward in (0.0, width, *inside):
            yield [*records[:arm], [*rewards, reward], *records[arm + 1 :]]
        for gone in range(len(rewards)):
            yield [*records[:arm], rewards[:gone] + rewards[gone + 1 :], *records[arm + 1 :]]


def log_ratio(one, other):
    return max(
        mpmath.inf if bool(p) != bool(q) else abs(mpmath.log(p / q))
        for p, q in zip(one, other, strict=True)
        if p or q
    )


def excess(one, other, epsilon):
    rise = mpmath.exp(epsilon)
    return max(
        sum(max(mpmath.mpf(0), p - rise * q) for p, q in zip(a, b, strict=True))
        for a, b in ((one, other), (other, one))
    )


def random_arms(seed, *, fewest):
    """A small data set and a policy of it."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 5))
    width = float(rng.choice([0.5, 1.0, 3.0]))
    shrinkage = 0.0 if fewest > 1 else float(rng.choice([1e-3, 0.5, 1.0, 9.0]))
    records = [
        [float(width * r) for r in rng.choice([rng.random(), 0.0, 1.0], rng.integers(fewest, 6))]
        for _ in range(k)
    ]
    rule = {
        "temperature": float(rng.choice([0.02, 0.1, 0.5, 2.0, 50.0])),
        "shrinkage": shrinkage,
        "center": float(width * rng.random()),
        "penalty": float(rng.choice([0.0, 0.3, 2.0])),
        "reference": rng.dirichlet(np.full(k, 0.3)).clip(1e-9),
    }
    rule["reference"] = rule["reference"] / rule["reference"].sum()
    return records, width, rule


@pytest.mark.parametrize("row", ARMS)
def test_published_rows_of_arms(row):
    given = row["inputs"]
    settings = {"temperature": given["eta"], "reward_range": given["R"]}
    reference = None if given["pi0"] == "uniform" else [0.98, 0.01, 0.01]
    loss = arm_loss(*summed(given["data"]), penalty=given["beta0"], reference=reference, **settings)
    bound = arm_bound(
        [len(rewards) for rewards in given["data"]], penalty=given["beta0"], **settings
    )
    assert loss == pytest.approx(row["exact"], rel=1e-12)
    assert bound == pytest.approx(row["corrected"], rel=1e-12)
    assert loss <= bound < row["published"]


@pytest.mark.parametrize("row", SHRUNKEN)
def test_no_records_and_a_rare_arm_attain_the_bound_of_the_shrunken_mean(row):
    given = row["inputs"]
    loss = arm_loss(
        *summed([[], []]),
        temperature=given["eta"],
        reward_range=given["R"],
        shrinkage=given["lam"],
        penalty=given["beta0"],
        reference=[np.exp(-40.0), 1.0],
    )
    assert loss == pytest.approx(row["exact"], rel=1e-12)


@pytest.mark.parametrize("fewest", [0, 2])
@pytest.mark.parametrize("seed", few(range(100), first=8))
def test_no_neighbor_of_arms_is_missed_and_one_attains_the_loss(seed, fewest):
    records, width, rule = random_arms(seed, fewest=fewest)
    epsilon = float(np.random.default_rng(seed).choice([0.0, 0.1, 1.0]))
    given = rule | {"reward_range": width}
    loss = arm_loss(*summed(records), **given)
    delta = arm_delta(*summed(records), epsilon=epsilon, **given)
    with mpmath.workdps(60):
        here = policy(records, **rule)
        others = [
            policy(other, **rule)
            for other in neighbors(records, width, inside=(0.3 * width, 0.8 * width))
        ]
        worst = max(log_ratio(here, there) for there in others)
        most = max(excess(here, there, epsilon) for there in others)
        assert abs(loss - worst) <= ROUNDING * worst
        assert abs(delta - most) <= ROUNDING * most + 1e-14


@pytest.mark.parametrize("seed", few(range(40), first=4))
def test_without_shrinkage_a_first_or_last_record_shows(seed):
    """An arm is never drawn without records, so ε is infinite, and δ is the chance that shows."""
    records, width, rule = random_arms(seed, fewest=2)
    records[0] = records[0][: seed % 2]
    given = rule | {"reward_range": width}
    assert arm_loss(*summed(records), **given) == np.inf
    delta = arm_delta(*summed(records), epsilon=0.4, **given)
    with mpmath.workdps(60):
        here = policy(records, **rule)
        worst = max(excess(here, policy(other, **rule), 0.4) for other in neighbors(records, width))
        assert abs(delta - worst) <= ROUNDING * worst + 1e-14


def test_the_smallest_losses_keep_their_digits():
    """Ten billion records: the loss is 1e-9, and none of its digits is rounding."""
    records = [10**10, 10**10], [4e9, 6e9], [0.0, 0.0], [1.0, 1.0]
    loss = arm_loss(*records, temperature=0.1, reward_range=1.0)
    with mpmath.workdps(60):
        n = mpmath.mpf(10**10)
        score = [mpmath.mpf("0.4"), mpmath.mpf("0.6")]
        worst = mpmath.mpf(0)
        for arm, mean in enumerate(score):
            share = 1 / (1 + mpmath.exp((score[1 - arm] - mean) * 10))
            added, removed = [-mean / (n + 1), (1 - mean) / (n + 1)], [mean, mean - 1]
            for step in (*added, *(step / (n - 1) for step in removed)):
                mixed = mpmath.log(1 - share + share * mpmath.exp(10 * step))
                worst = max(worst, abs(10 * step - mixed), abs(mixed))
        assert abs(loss - worst) <= 1e-12 * worst


def test_weights_that_no_float_can_hold():
    """One arm has all but e^-2000 of the chance, and a step of t = 1000 changes that."""
    loss = arm_loss(
        [0, 0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0],
        temperature=1 / 2000, reward_range=2.0, shrinkage=1.0, center=1.0,
    )  # fmt: skip
    with mpmath.workdps(60):
        step = mpmath.mpf(1000)
        exact = log_ratio([mpmath.mpf(0.5)] * 2, [1 / (1 + mpmath.exp(s)) for s in (step, -step)])
        assert loss == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("seed", few(range(100), first=10))
def test_arms_never_lose_more_than_their_class(seed):
    records, width, rule = random_arms(seed, fewest=1 if seed % 2 else 2)
    if seed % 2:
        rule["shrinkage"] = max(rule["shrinkage"], 1e-3)
    given = {"temperature": rule["temperature"], "reward_range": width}
    given |= {"shrinkage": rule["shrinkage"], "penalty": rule["penalty"]}
    loss = arm_loss(*summed(records), center=rule["center"], reference=rule["reference"], **given)
    bound = arm_bound([len(r) for r in records], **given)
    assert loss <= bound * (1 + 1e-12)


def test_a_rare_arm_attains_the_bound_of_its_class():
    """One reward of R among m − 1 of 0, in an arm that is hardly ever drawn."""
    given = {"temperature": 0.5, "reward_range": 1.0, "penalty": 0.0}
    loss = arm_loss(
        [4, 9], [1.0, 4.0], [0.0, 0.0], [1.0, 1.0], reference=[1e-12, 1 - 1e-12], **given
    )
    assert loss >= 0.999 * arm_bound([4, 9], **given)


def test_logs_are_summed_from_the_lower_end_of_their_range():
    records = [[0.5, 1.1], [0.2, 0.9], [0.0, 0.25]]
    arms = [arm for arm, rewards in enumerate(records) for _ in rewards]
    logs = BanditLogs.from_arrays(
        arms, [r for rewards in records for r in rewards], catalogue=4, reward_range=(-1.0, 2.0)
    )
    shifted = summed([[r + 1 for r in rewards] for rewards in [*records, []]])
    rule = {"temperature": 0.7, "shrinkage": 0.5, "penalty": 0.2}
    assert arm_loss(*gathered_arms(logs), reward_range=3.0, **rule) == arm_loss(
        *shifted, reward_range=3.0, **rule
    )
    assert arm_delta(*gathered_arms(logs), epsilon=0.1, reward_range=3.0, **rule) == arm_delta(
        *shifted, epsilon=0.1, reward_range=3.0, **rule
    )


def linear_policies(rows, rewards, queries, *, ridge, temperature, penalty, reference, center=0.0):
    """The logarithms of the chances of all actions of all questions, from a fit of its own."""
    second = rows.T @ rows + ridge * np.eye(rows.shape[1])
    theta = np.linalg.solve(second, rows.T @ (rewards - center))
    widths = np.sqrt(np.einsum("qkd,qkd->qk", queries @ np.linalg.inv(second), queries))
    logs = np.log(reference) + (queries @ theta - penalty * widths) / temperature
    return logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)


def unit_rows(rng, *shape):
    rows = rng.standard_normal(shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True) * rng.random((*shape[:-1], 1))


def random_linear(seed):
    rng = np.random.default_rng(seed)
    d, k = int(rng.integers(1, 5)), int(rng.integers(2, 5))
    n = int(rng.integers(0, 25))
    width = float(rng.choice([0.5, 1.0, 3.0]))
    rule = {
        "ridge": float(rng.choice([0.05, 0.5, 2.0, 20.0])),
        "temperature": float(rng.choice([0.02, 0.2, 1.0, 20.0])),
        "penalty": float(rng.choice([0.0, 0.3, 2.0])),
        "center": float(rng.choice([0.0, width / 2])),
        "reference": rng.dirichlet(np.full(k, 0.5)).clip(1e-6),
    }
    rule["reference"] = rule["reference"] / rule["reference"].sum()
    rewards = width * rng.choice([0.0, 1.0, rng.random()], n)
    return unit_rows(rng, n, d), rewards, unit_rows(rng, 2, k, d), unit_rows(rng, 3, d), width, rule


def refitted_losses(rows, rewards, queries, additions, grid, rule):
    """The largest losses over all removals, and over all additions of rewards on a grid."""
    here = linear_policies(rows, rewards, queries, **rule)

    def loss(features, gains):
        return abs(linear_policies(features, gains, queries, **rule) - here).max()

    removed = [
        loss(np.delete(rows, gone, axis=0), np.delete(rewards, gone)) for gone in range(len(rows))
    ]
    added = [
        loss(np.vstack([rows, new]), np.append(rewards, reward))
        for new in additions
        for reward in grid
    ]
    return max(removed, default=0.0), max(added)


@pytest.mark.parametrize("seed", few(range(150), first=15))
def test_no_neighbor_of_linear_logs_is_missed_and_one_attains_the_loss(seed):
    rows, rewards, queries, additions, width, rule = random_linear(seed)
    grid = np.linspace(0.0, width, 201)
    removed, added = refitted_losses(rows, rewards, queries, additions, grid, rule)
    given = (rows, rewards, queries)
    left = linear_loss(*given, reward_range=width, **rule)
    loss = linear_loss(*given, reward_range=width, additions=additions, **rule)
    assert left == pytest.approx(removed, rel=1e-8, abs=1e-11)
    assert loss >= max(removed, added) * (1 - 1e-8)
    assert loss <= max(removed, added) * (1 + 1e-3) + 1e-11  # rewards between those of the grid


def test_a_reward_inside_the_range_can_lose_most():
    """The action whose width shrinks gains most while the two others stay in balance."""
    few = np.array([[0.308, -0.0132], [-0.0754, 0.0228], [-0.388, -0.011], [-0.0726, 0.0237]])
    rows = np.repeat(np.vstack([few, [[0.147, -0.0096]]]) / 20, 400, axis=0)
    rewards = np.repeat([0.0, 1.0, 0.0, 1.0, 0.0], 400) / 20
    queries = np.array([[[-0.266, 0.414], [0.0621, 0.0506], [0.27, 0.2]]])
    additions = np.array([[1.395, 1.387]])
    rule = {"ridge": 0.0122, "temperature": 0.0283, "penalty": 0.414}
    rule["reference"] = np.array([0.094, 0.738, 0.168])
    given = (rows, rewards, queries, additions)
    removed, added = refitted_losses(*given, np.linspace(0.0, 1.0, 501), rule)
    _, ends = refitted_losses(*given, (0.0, 1.0), rule)
    loss = linear_loss(rows, rewards, queries, additions=additions, reward_range=1.0, **rule)
    assert max(ends, removed) < 0.75 * added
    assert added * (1 - 1e-8) <= loss <= added * (1 + 1e-4)


@pytest.mark.parametrize("row", LINEAR)
def test_published_rows_of_linear_logs(row):
    """The bound of the class holds where the published appendix formula is broken."""
    given = row["inputs"]
    kept, phi = (32, 0.5) if given["lam"] == 0.5 else (200, 0.1)
    rows = np.array([[phi]] * kept + [[-1.0]])
    common = {"ridge": given["lam"], "temperature": 1.0, "reward_range": 1.0}
    reference = [np.exp(-60.0), 1.0]
    losses = [
        linear_loss(rows, np.ones(len(rows)), [[1.0], [-1.0]], reference=r, **common)
        for r in (reference, reference[::-1])
    ]
    assert max(losses) == pytest.approx(row["exact"], rel=1e-9)


@pytest.mark.parametrize("seed", few(range(150), first=14))
def test_linear_logs_never_lose_more_than_their_class(seed):
    rows, rewards, queries, additions, width, rule = random_linear(seed)
    rows = np.vstack([rows, np.repeat(np.eye(rows.shape[1]), seed % 7, axis=0)])
    rewards = np.append(rewards, np.full(len(rows) - len(rewards), width))
    given = {key: rule[key] for key in ("ridge", "temperature", "penalty")}
    given["reward_range"] = width
    loss = linear_loss(
        rows, rewards, queries, additions=additions, reference=rule["reference"],
        center=rule["center"], **given,
    )  # fmt: skip
    bound = linear_bound(rows, queries, **given)
    assert loss <= bound * (1 + 1e-9)


def test_the_bound_of_a_linear_class_is_nearly_attained():
    """One direction, every reward 1, and one record that pulls the other way."""
    rows = np.array([[0.1]] * 200 + [[-1.0]])
    given = {"ridge": 0.5, "temperature": 1.0, "reward_range": 1.0}
    queries = [[1.0], [-1.0]]
    loss = linear_loss(
        rows[:-1], np.ones(200), queries, additions=[[-1.0]], reference=[1e-9, 1 - 1e-9], **given
    )
    bound = linear_bound(rows, queries, **given)
    assert 0.9 * bound <= loss <= bound


def test_a_new_direction_attains_the_penalty_of_its_class():
    """Without records, the first one narrows the width of one action and of no other."""
    given = {"ridge": 0.3, "temperature": 0.2, "reward_range": 1e-9, "penalty": 0.7}
    none = np.empty((0, 2))
    loss = linear_loss(
        none, [], np.eye(2), additions=[[1.0, 0.0]], reference=[1e-12, 1 - 1e-12], **given
    )
    bound = linear_bound(none, np.eye(2), **given)
    assert 0.9999 * bound <= loss <= bound


@pytest.mark.parametrize("ridge", [0.01, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("more", [1.0, 1.3, 2.0, 2.1, 10.0, 1000.0])
def test_how_far_one_record_reaches_is_bounded_over_all_spectra(ridge, more):
    """Over x = φᵀΣ⁻¹φ ≤ 1/l and y = ‖Σ⁻¹φ‖² in [x², x/l]: reached where the formula is exact."""
    size = ridge * more
    x = np.linspace(1e-6, 1 / size, 2001)[:, None]
    y = x**2 + np.linspace(0.0, 1.0, 501) * (x / size - x**2)
    own = (np.sqrt(y) / (1 + x)).max()
    fitted = (np.sqrt(np.maximum(y * (x - ridge * y), 0.0)) / (1 + x)).max()
    assert own <= own_reward_step(size) * (1 + 1e-12)
    assert own >= 0.999 * own_reward_step(size)
    assert fitted <= _fit_reach(size, ridge) * (1 + 1e-12)
    assert _fit_reach(size, ridge) <= 1 / (math.sqrt(size) * (1 + size))
    if more >= 2:
        assert fitted >= 0.999 * _fit_reach(size, ridge)
