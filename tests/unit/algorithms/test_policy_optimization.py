"""Policy optimization: what a run promises, spends, keeps in its file and leaves behind."""

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sordino
from sordino.algorithms import policy_optimization
from sordino.algorithms.policy_optimization import (
    Direction,
    Run,
    _largest_ratio,
    _RunState,
    optimize,
)
from sordino.environments.linear_worlds import Sphere
from sordino.errors import BudgetExceeded, DataError, LedgerMismatch, PrivacyError, UsageError
from sordino.policies.softmax import LogLinearPolicy
from sordino.privacy.ledger import Ledger, Reservation

PUBLISHED = {  # N = 20,000 without reward noise: suboptimality by update and ε
    "npg": {math.inf: 0.0015, 5.0: 0.0016, 1.0: 0.0024, 0.5: 0.0039},
    "rebel": {math.inf: 0.0015, 5.0: 0.0016, 1.0: 0.0023, 0.5: 0.0033},
}
TERMS = {"delta": 1e-5, "neighbors": sordino.REPLACE_SPECIAL}


MEMORY = Path("/dev/shm")  # forty durable writes a run are slow on a disk


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture
def opened(folder):
    def make(epsilon=1.0, name="spend", neighbors=sordino.REPLACE_SPECIAL, unit="person"):
        budget = sordino.Guarantee(
            epsilon, delta=1e-5, unit=unit, neighbors=neighbors, trust="central"
        )
        return sordino.Ledger.open(folder / f"{name}.db", data="users", budget=budget)

    return make


class World:
    """Two features, three actions; its reward may be spoiled in the batch of one's choice."""

    feature_bound = 1.0
    reward_bound = 1.0

    def __init__(self, *, size=1.0, spoil=None, at=0):
        self.size, self.spoil, self.at, self.calls = size, spoil, at, 0

    def contexts(self, rng, n):
        return rng.uniform(-0.7, 0.7, size=(n, 3, 2))

    def reward(self, context, action, rng):
        felt = self.size * context[np.arange(len(context)), action, 0]
        self.calls += 1
        if self.spoil is not None and self.calls > 2 * self.at:
            felt = self.spoil(felt)
        return felt


def run(world, ledger, **more):
    given = {"users": 400, "batches": 4, "epsilon": 1.0, "ledger": ledger} | TERMS | more
    return optimize(world, **given)


@pytest.mark.deep
@pytest.mark.parametrize("update", sorted(PUBLISHED))
def test_the_published_figures(update, folder):
    """Ten seeds each; nothing is random in this test but by those seeds."""
    for epsilon, known in PUBLISHED[update].items():
        lost = []
        for seed in range(10):
            budget = sordino.Guarantee(epsilon, unit="person", trust="central", **TERMS)
            path = folder / f"{epsilon}-{seed}.db"
            ledger = sordino.Ledger.open(path, data="users", budget=budget)
            found = optimize(
                Sphere(reward_noise=0.0),
                update=update,
                epsilon=epsilon,
                ledger=ledger,
                step=2.0,
                simulate_seed=seed,
                **TERMS,
            )
            lost.append(Sphere().suboptimality(found.policy, np.random.default_rng(seed), 3000))
        assert np.mean(lost) <= 1.15 * known, (update, epsilon, np.mean(lost))


def test_gradients_climb(opened):
    start = Sphere().suboptimality(LogLinearPolicy.uniform(4), np.random.default_rng(1))
    found = run(Sphere(), opened(), update="pg", users=4000, step=2.0, simulate_seed=1)
    assert Sphere().suboptimality(found.policy, np.random.default_rng(1)) < 0.8 * start
    assert found.coverage == 1.0
    assert None not in [step.squared_gradient for step in found.directions]
    assert found.guarantee.caveats == ("simulated",)  # noise on a grid: no arithmetic caveat


def test_what_a_run_holds(opened):
    ledger = opened()
    told = []
    found = run(Sphere(), ledger, step=2.0, progress=lambda *batch: told.append(batch))
    assert isinstance(found, Run)
    assert told == [*enumerate(found.directions)]
    assert len(found.policies) == 5
    assert found.policy is found.policies[-1]
    assert found.guarantee.unit == "person"
    assert found.guarantee.trust == "central"
    assert found.guarantee.epsilon <= 1.0
    assert [row.release_id for row in ledger.spends] == list(found.release_ids)
    assert [step.squared_gradient for step in found.directions] == [None] * 4
    features = np.random.default_rng(0).uniform(-0.4, 0.4, size=(50, 6, 4))
    assert found.policy.probabilities(features).shape == (50, 6)
    assert 1.0 <= ratio_on(features, found.reference, found.policy) <= found.coverage <= 6.0
    moved = np.diff([policy.weights for policy in found.policies], axis=0)
    assert np.allclose(moved, 2.0 * np.array([one.weights for one in found.directions]))


def test_outputs(opened):
    same = {"simulate_seed": 3, "step": 1.0}
    last = run(Sphere(), opened(name="a"), **same)
    average = run(Sphere(), opened(name="b"), output="average", **same)
    drawn = run(Sphere(), opened(name="c"), output="drawn", **same)
    assert np.allclose(
        average.policy.weights, np.mean([p.weights for p in last.policies[1:]], axis=0)
    )
    assert any(drawn.policy is policy for policy in drawn.policies[:-1])
    seen = set()
    for seed in range(12):
        given = {"users": 4, "batches": 2, "output": "drawn", "simulate_seed": seed}
        found = run(World(), opened(name=f"d{seed}"), **given)
        seen.add([found.policy is policy for policy in found.policies].index(True))
    assert seen == {0, 1}


def test_who_explores(opened):
    """Users of one action each round explored by a policy that never takes the others."""
    sure = LogLinearPolicy(np.array([60.0, 0.0]))
    fixed = run(World(), opened(name="a"), reference=sure)
    current = run(World(), opened(name="b"), reference="current")
    assert current.reference is None
    assert current.coverage == 1.0
    assert fixed.coverage > 1e6  # nothing is known of what it never did
    with pytest.raises(UsageError, match="reference"):
        run(World(), opened(name="c"), reference="none")
    with pytest.raises(UsageError, match="one weight for each of 2 features"):
        run(World(), opened(name="d"), reference=LogLinearPolicy.uniform(7))
    assert not opened(name="d").spends


def test_gradients_of_a_fixed_exploration_are_weighted(opened):
    """Both estimate the same gradient; the noise of 30,000 users leaves them within .02."""
    explored = LogLinearPolicy(np.array([1.0, 0.0]))
    found = [
        run(
            World(),
            opened(math.inf, name=str(number)),
            update="pg",
            users=30_000,
            batches=1,
            epsilon=math.inf,
            reference=reference,
            simulate_seed=4,
        )
        for number, reference in enumerate([explored, "current"])
    ]
    one, other = (each.directions[0].weights for each in found)
    assert np.linalg.norm(one) > 0.08
    assert np.linalg.norm(one - other) < 0.02


def test_the_step_is_the_worlds_or_the_theorems(opened):
    class Stepping(World):
        step = 0.7

    assert run(Stepping(), opened(name="a")).step == 0.7
    assert run(Stepping(), opened(name="b"), step=0.3).step == 0.3
    theorem = math.sqrt(2 * math.log(3) / 4) / 2
    assert run(World(), opened(name="c")).step == pytest.approx(theorem)
    with pytest.raises(UsageError, match="step"):
        run(World(), opened(name="d"), step=-1.0)
    with pytest.raises(UsageError, match="a ledger is needed"):
        run(World(), None)


def test_rewards_out_of_range_are_clipped(opened):
    """A huge reward counts as the bound: the same directions as of the clipped world."""
    seeded = {"simulate_seed": 5, "step": 1.0}
    huge = run(World(size=1e9), opened(name="a"), **seeded)
    signs = run(World(spoil=np.sign), opened(name="b"), **seeded)
    assert np.allclose(huge.policy.weights, signs.policy.weights)


def nan_at_two(felt):
    return np.where(np.arange(len(felt)) == 2, np.nan, felt)


class Growing(World):
    drawn = 0

    def contexts(self, rng, n):
        self.drawn += 1
        return np.zeros((n, 3 if self.drawn < 3 else 4, 2))


@pytest.mark.parametrize(
    "world",
    [World(spoil=nan_at_two, at=2), World(spoil=lambda felt: felt[:-1], at=2), Growing()],
    ids=["nan", "short", "another-shape"],
)
def test_unusable_users_are_refused_before_the_batch_is_paid(opened, world):
    ledger = opened()
    with pytest.raises(DataError):
        run(world, ledger)
    assert len(ledger.spends) == 2  # the first two batches, which were fine


@pytest.mark.parametrize("update", ["npg", "rebel", "pg"])
def test_add_or_remove_is_refused(opened, update):
    ledger = opened(neighbors=sordino.ADD_OR_REMOVE_ONE)
    with pytest.raises(PrivacyError, match="another slot"):
        run(World(), ledger, update=update, neighbors=sordino.ADD_OR_REMOVE_ONE)
    assert len(ledger.rows) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"users": 3},
        {"batches": 0},
        {"update": "ppo"},
        {"output": "best"},
        {"radius": 0.0},
        {"gradient_bound": math.inf},
        {"reward_bound": -1.0},
        # twice such a bound may be infinite, and then one person would decide whether a run fails
        {"reward_bound": 2.0**401},
        {"reward_bound": 2.0**-401, "update": "pg"},
        {"delta": 0.0},
        {"delta": 1e-3},
        {"epsilon": 0.0},
        {"oracle": "gaussian"},
        {"simulate_seed": -1},
    ],
)
def test_settings_are_refused_before_anything(opened, given):
    ledger = opened()
    with pytest.raises(UsageError):
        run(World(), ledger, **given)
    assert len(ledger.rows) == 1


@pytest.mark.parametrize(
    ("terms", "given", "error"),
    [
        ({"epsilon": 0.5}, {}, BudgetExceeded),
        ({}, {"epsilon": math.inf}, BudgetExceeded),
        ({"unit": "record"}, {}, PrivacyError),
        ({}, {"neighbors": sordino.REPLACE_ONE}, PrivacyError),
    ],
)
def test_a_ledger_that_cannot_pay_is_refused_before_anything(opened, terms, given, error):
    ledger, world = opened(**terms), World()
    with pytest.raises(error):
        run(world, ledger, **given)
    assert len(ledger.rows) == 1
    assert world.calls == 0


def test_long_directions_are_projected_and_counted(opened):
    found = run(World(), opened(), radius=0.01, step=1.0, users=4000)
    assert found.projected == 4
    assert np.allclose([np.linalg.norm(one.weights) for one in found.directions], 0.01)
    steep = run(World(), opened(name="b"), update="pg", radius=1e-4, step=1e6, users=4000)
    assert steep.projected == 4
    assert np.isfinite(steep.policy.probabilities(np.ones((2, 3, 2)))).all()


class Stop(Exception):
    pass


def stop(felt):
    raise Stop


def test_a_reward_that_raises_midway_leaves_a_run_to_resume(opened, tmp_path):
    kept = {"checkpoint": tmp_path / "run.json", "simulate_seed": 8}
    ledger = opened()
    with pytest.raises(Stop):
        run(World(spoil=stop, at=2), ledger, **kept)
    assert len(ledger.spends) == 2
    found = run(World(), ledger, **kept)
    whole = run(World(), opened(name="b"), simulate_seed=8)
    assert len(ledger.spends) == 4
    assert found.guarantee == whole.guarantee
    for one, other in zip(found.policies, whole.policies, strict=True):
        assert np.array_equal(one.weights, other.weights)
    again = run(World(spoil=stop), ledger, **kept)  # nothing is left to do
    assert np.array_equal(again.policy.weights, found.policy.weights)
    assert len(ledger.spends) == 4


def test_a_draw_that_nobody_saw_is_paid_again(opened, tmp_path, monkeypatch):
    """Killed between entry and noise: the batch pays twice, and the run says so."""
    ledger, kept = opened(3.0), {"checkpoint": tmp_path / "run.json"}
    update = policy_optimization.update_of

    class Dying:
        def __init__(self, honest):
            self.honest, self.left = honest, 1
            self.event, self.guarantee = honest.event, honest.guarantee

        def __repr__(self):
            return repr(self.honest)

        def direction(self, batch, *, entropy):
            if not self.left:
                raise Stop
            self.left -= 1
            return self.honest.direction(batch, entropy=entropy)

    monkeypatch.setattr(
        policy_optimization, "update_of", lambda *given, **more: Dying(update(*given, **more))
    )
    with pytest.raises(Stop):
        run(World(), ledger, **kept)
    assert len(ledger.spends) == 2
    monkeypatch.setattr(policy_optimization, "update_of", update)
    found = run(World(), ledger, **kept)
    scopes = [row.scope for row in ledger.spends]
    assert [scopes.count(scope) for scope in sorted(set(scopes))] == [1, 2, 1, 1]
    assert 1.0 < found.guarantee.epsilon <= 2.0
    assert found.guarantee.epsilon == pytest.approx(ledger.total().epsilon)
    assert len(set(found.release_ids)) == 4


def test_paying_again_needs_a_budget(opened, tmp_path, monkeypatch):
    ledger, kept = opened(1.0), {"checkpoint": tmp_path / "run.json"}
    monkeypatch.setattr(Ledger, "reserve", reserve_and_stop(Ledger.reserve))
    with pytest.raises(Stop):
        run(World(), ledger, **kept)
    monkeypatch.undo()
    with pytest.raises(BudgetExceeded):
        run(World(), ledger, **kept)
    assert len(ledger.spends) == 1


def reserve_and_stop(reserve):
    def reserved(*given, **more):
        reserve(*given, **more)
        raise Stop

    return reserved


def test_a_draw_that_was_stored_is_used_and_never_drawn_again(opened, tmp_path, monkeypatch):
    """Killed between the file and the commit: the stored direction is the release."""
    ledger, path = opened(), tmp_path / "run.json"

    def commit_and_stop(self, digest):
        raise Stop

    monkeypatch.setattr(Reservation, "commit", commit_and_stop)
    with pytest.raises(Stop):
        run(World(), ledger, checkpoint=path)
    monkeypatch.undo()
    stored = json.loads(path.read_text())["steps"]
    assert len(stored) == 1
    assert not [row for row in ledger.rows if row.kind == "commit"]
    found = run(World(), ledger, checkpoint=path)
    assert found.directions[0].weights.tolist() == stored[0]["weights"]
    assert found.release_ids[0] == stored[0]["release_id"]
    assert len(ledger.spends) == 4
    assert len([row for row in ledger.rows if row.kind == "commit"]) == 4


def test_a_checkpoint_is_of_one_run_and_one_ledger(opened, tmp_path):
    path = tmp_path / "run.json"
    run(World(), opened(), checkpoint=path)
    for other in ({"epsilon": 0.9}, {"users": 404}, {"update": "rebel"}, {"step": 9.0}):
        with pytest.raises(UsageError, match="written with another"):
            run(World(), opened(), checkpoint=path, **other)
    with pytest.raises(LedgerMismatch, match="no entry"):
        run(World(), opened(name="b"), checkpoint=path)
    changed = json.loads(path.read_text())
    changed["steps"][0]["weights"][0] += 1
    path.write_text(json.dumps(changed))
    with pytest.raises(LedgerMismatch, match="not what its entry paid for"):
        run(World(), opened(), checkpoint=path)
    ours = json.loads(path.read_text())
    for broken in ({}, ours | {"version": 2}, ours | {"steps": [{}]}):
        path.write_text(json.dumps(broken))
        with pytest.raises(DataError):
            run(World(), opened(), checkpoint=path)


def ratio_on(features, reference, policy):
    """Return the largest ratio of a policy's probability to the reference's in some contexts."""
    gaps = policy.log_probabilities(features) - reference.log_probabilities(features)
    return np.exp(gaps.max())


@pytest.mark.parametrize("seed", range(5))
def test_no_context_exceeds_the_largest_ratio(seed):
    rng = np.random.default_rng(seed)
    reference, policy = (LogLinearPolicy(rng.normal(size=3) * rng.uniform(0, 4)) for _ in "ab")
    features = rng.normal(size=(2000, 4, 3))
    features *= 1.5 / np.linalg.norm(features, axis=2, keepdims=True)
    most = _largest_ratio(reference, policy, actions=4, feature_bound=1.5)
    assert ratio_on(features, reference, policy) <= most * (1 + 1e-12)


def test_the_largest_ratio_is_attained_from_a_uniform_reference_and_stays_a_number():
    policy, far = LogLinearPolicy(np.array([0.7, 0.0])), LogLinearPolicy(np.array([1e6, 0.0]))
    features = np.array([[[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]])
    terms = {"actions": 3, "feature_bound": 1.0}
    most = _largest_ratio(LogLinearPolicy.uniform(2), policy, **terms)
    assert ratio_on(features, LogLinearPolicy.uniform(2), policy) == pytest.approx(most)
    assert _largest_ratio(None, far, **terms) == _largest_ratio(far, far, **terms) == 1.0
    assert _largest_ratio(far.moved(far.weights, -2.0), far, **terms) > 1e300


def step(number):
    direction = Direction(weights=np.array([0.1, number / 3]), error=0.5, projected=False)
    return f"id-{number}", direction


STATE = _RunState(settings={"update": "npg", "step": 0.1}, run="run-1", drawn=1, steps=(step(0),))


def test_a_state_survives_its_file(tmp_path):
    path = tmp_path / "run.json"
    replace(STATE, steps=(*STATE.steps, step(1))).write(path)
    replace(STATE, steps=(*STATE.steps, step(1))).write(path)
    found = _RunState.read(path)
    assert (found.settings, found.run, found.drawn) == (dict(STATE.settings), "run-1", 1)
    paid = [(name, made.digest) for name, made in found.steps]
    assert paid == [(name, made.digest) for name, made in (step(0), step(1))]
    assert repr(found) == "RunState(2 steps)"


@pytest.mark.parametrize("part", ["settings", "run", "drawn", "steps"])
def test_a_file_that_lacks_a_part_is_refused(tmp_path, part):
    path = tmp_path / "run.json"
    STATE.write(path)
    content = json.loads(path.read_text())
    del content[part]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="nothing was spent"):
        _RunState.read(path)
