"""A record fit hides every record: order of steps, sizes, errors, coins, and what is minimized.

Records are in memory, or in files: then tasks clip, and one process tilts and noises.
"""

import dataclasses
import hashlib
import json
import math
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.special import expit
from tests.tiers import few

import sordino
from sordino import _random
from sordino._random import normals, words_of_secret
from sordino.engines.engine import InProcess, Rows
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms import objective_perturbation as _tilted
from sordino.mechanisms.gaussian import SecondMoment, joint_mechanisms
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.features import HashedText
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards import record_release
from sordino.rewards.confidence import least_ridge
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.record_release import _decided_labels, fit_records, release_records
from sordino.rewards.solver import nearest_minimum

N, D, DELTA, BALL = 600, 3, 1e-6, 1.0
RELATIONS = (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE, REPLACE_ONE)


def open_ledger(path, neighbors, *, epsilon=1.0):
    path.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=DELTA, unit="record", neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(path / "spend.db", data="test", budget=budget)


def mechanisms(neighbors, *, d=3):
    settings = {"delta": DELTA, "bound": 1.0, "neighbors": neighbors}
    ridge = least_ridge(joint_mechanisms(1.0, **settings)[1], d=d, ball=BALL)
    return joint_mechanisms(1.0, ridge=1.01 * ridge, **settings)


def fitted(pairs, path, neighbors=ADD_OR_REMOVE_ONE, **settings):
    noise, moment = mechanisms(neighbors)
    ledger = open_ledger(path, neighbors)
    given = {"ball": BALL, "second_moment": moment, "simulate_seed": 0} | settings
    return fit_records(pairs, noise, ledger=ledger, **given), ledger


@pytest.fixture
def drawn(monkeypatch):
    """Record what the mechanisms draw and get, in the order in which it happens."""
    steps = []

    def watch(owner, name):
        honest = getattr(owner, name)

        def call(self, *args, **settings):
            result = honest(self, *args, **settings)
            steps.append((name, self, args, result))
            return result

        monkeypatch.setattr(owner, name, call)

    honest = ObjectivePerturbation.release

    def release(self, minimize, **given):
        def noted(tilt):
            found = minimize(tilt)
            steps.append(("minimize", self, (tilt, found.theta), found))
            return found

        steps.append(("release", self, (), honest(self, noted, **given)))
        return steps[-1][-1]

    monkeypatch.setattr(ObjectivePerturbation, "release", release)
    watch(SecondMoment, "total")
    watch(SecondMoment, "release_total")
    return steps


# --- what is minimized ------------------------------------------------------------------------


@pytest.mark.parametrize("ball", [1e-3, 0.3, 50.0])
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_the_released_minimizer_solves_the_tilted_problem(
    linear_world, tmp_path, drawn, neighbors, ball
):
    """First-order conditions inside the ball, for records written out as ±x, shrunk to 1."""
    pairs, _ = linear_world(300, 3, size=2.0)
    pairs = dataclasses.replace(pairs, given=pairs.given * np.linspace(0.1, 3, 300)[:, np.newaxis])
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=neighbors)
    given = {"ledger": open_ledger(tmp_path, neighbors), "ball": ball}
    found = fit_records(pairs, noise, **given)
    (_, _, (tilt, theta), _), (_, _, _, released) = drawn
    signs = np.where(pairs.labels == 1, 1.0, -1.0)[:, np.newaxis]
    z = signs * pairs.given / np.maximum(np.linalg.norm(pairs.given, axis=1), 1.0)[:, np.newaxis]
    gradient = -expit(-z @ theta) @ z + noise.ridge * theta + tilt
    size = np.linalg.norm(theta)
    assert size <= ball
    on_sphere = size >= ball * (1 - 1e-12)
    pushed = max(-float(gradient @ theta) / size**2, 0.0) if on_sphere else 0.0
    assert np.linalg.norm(gradient + pushed * theta) <= 2 * noise.atol
    if ball < 0.1:
        assert on_sphere  # or the case would say nothing of the ball
    assert found.weights.tolist() == released.tolist()
    assert 0 < np.linalg.norm(released - theta) < 20 * noise.output_standard_deviation


def test_the_moment_is_exactly_that_of_the_fitted_records(linear_world, tmp_path, drawn):
    pairs, _ = linear_world(200, 3)
    _, moment = mechanisms(ADD_OR_REMOVE_ONE)
    fitted(dataclasses.replace(pairs, given=3 * pairs.given), tmp_path)
    records = next(args[0] for name, _, args, _ in drawn if name == "total")
    assert np.linalg.norm(records, axis=1).max() <= 1.0
    assert (moment._sum(records) * moment.step**2 == records.T @ records).all()
    np.testing.assert_allclose(records, pairs.given, atol=1e-5)


# --- the promise ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", few([0.3, 1.0, 3.0], 1.0))
@pytest.mark.parametrize("excess", few([1.01, 3.0], first=1))
def test_a_judgment_decided_by_a_coin_shows_no_more_than_a_decided_one(epsilon, excess):
    """In 1-D, δ(ε) of a record of either sign, by a coin, against none: integrated on a grid.

    A coin that always falls on one side is the worst decided record, and comes close to δ.
    """
    least = 1 / (4 * math.expm1(epsilon))
    noise = ObjectivePerturbation(
        epsilon, delta=DELTA, bound=1.0, neighbors=REPLACE_SPECIAL, ridge=excess * least
    )
    around = noise.worst_case(REPLACE_SPECIAL).other
    grid = np.linspace(-60.0, 120.0, 180_001)[:, np.newaxis]

    def density(*more):
        records = np.vstack([around, *[[[value]] for value in more]])
        log = _tilted._log_density(
            grid,
            np.stack([records, np.zeros_like(records)], axis=1),
            noise.ridge,
            noise.standard_deviation,
        )
        scale = noise.standard_deviation * math.sqrt(2 * math.pi)
        return np.exp(log) / scale

    def missed(one, other):
        above = np.maximum(one - math.exp(epsilon) * other, 0.0)
        return float(np.trapezoid(above, grid[:, 0]))

    none, up, down = density(), density(1.0), density(-1.0)
    assert np.trapezoid(up, grid[:, 0]) == pytest.approx(1.0, abs=1e-3)
    coin = (up + down) / 2
    decided = max(missed(up, none), missed(none, up), missed(down, none), missed(none, down))
    assert max(missed(coin, none), missed(none, coin)) <= decided
    assert decided <= DELTA


def test_coins_are_fair_and_leave_decided_judgments_alone():
    labels = np.tile(np.array([0, 1, 2, 2], dtype=np.int8), 5000)
    targets = _decided_labels(labels, _random.entropy(0).words(len(labels)))
    assert (targets[labels == 0] == 0).all()
    assert (targets[labels == 1] == 1).all()
    heads = targets[labels == 2]
    assert set(heads) == {0.0, 1.0}
    assert abs(heads.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(heads))


# --- the order of the steps -------------------------------------------------------------------


@pytest.mark.parametrize("with_moment", [False, True])
def test_one_entry_pays_for_weights_and_moment_together(linear_world, tmp_path, with_moment):
    pairs, _ = linear_world(50, 3)
    noise, moment = mechanisms(ADD_OR_REMOVE_ONE)
    if not with_moment:
        noise, moment = dataclasses.replace(noise, second_moment_mu=0.0), None
    ledger = open_ledger(tmp_path, ADD_OR_REMOVE_ONE)
    found = fit_records(pairs, noise, ledger=ledger, ball=BALL, second_moment=moment)
    (spend,) = ledger.spends
    assert (spend.event, json.loads(spend.parameters)) == (
        "approximate",
        {"epsilon": 1.0, "delta": DELTA},
    )
    assert ledger.total().epsilon == pytest.approx(1.0, rel=1e-9)
    released = found.weights.tobytes() + (found.moment.matrix.tobytes() if moment else b"")
    assert found.artifact == hashlib.sha256(released).hexdigest()
    assert json.loads(ledger.rows[-1].payload) == {"artifact": found.artifact}
    assert found.release_ids == (spend.release_id,)


def nasty(d, seed=0):
    """Records of the kinds that strain a minimizer; the first two differ by one record."""
    rows = np.random.default_rng(seed).normal(size=(500, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    one, labels = np.full((1, d), 1 / math.sqrt(d)), (rows[:, 0] > 0).astype(int)
    return {
        "none": (np.zeros((0, d)), np.zeros(0, dtype=int)),
        "one": (one, np.ones(1, dtype=int)),
        "tiny": (rows * 1e-9, labels),
        "alike": (np.repeat(one, 20_000, axis=0), np.ones(20_000, dtype=int)),
        "torn": (np.repeat(one, 20_001, axis=0), np.arange(20_001) % 2),
        "uneven": (rows * np.logspace(0, -8, d), labels),
    }


def solved(noise, rows, labels, *, ball, seed):
    d = rows.shape[1]
    tilt = noise.standard_deviation * normals(_random.SimulatedEntropy(seed), d)
    loss = DebiasedLogistic(rows, targets=labels.astype(float), pull=-tilt)
    return nearest_minimum(loss, ridge=noise.ridge, atol=noise.atol, ball=ball)


def with_atol(noise, atol):
    """A mechanism with an atol that it would refuse."""
    object.__setattr__(noise, "atol", atol)
    return noise


@pytest.mark.parametrize("epsilon", [1e-7, 1.0, 20.0])
def test_rounding_stays_below_the_least_atol_on_all_records(epsilon):
    """Also where the ball binds; and nothing that would be smaller may be asked for."""
    settings = {"delta": DELTA, "bound": 1.0, "neighbors": ADD_OR_REMOVE_ONE}
    usual = ObjectivePerturbation(epsilon, **settings)
    least = max(2.0**-32, usual.standard_deviation * 2.0**-36)
    assert usual.atol == max(1e-8, least)
    with pytest.raises(UsageError, match="Nothing was spent"):
        ObjectivePerturbation(epsilon, **settings, atol=least * (1 - 1e-9))
    noise = ObjectivePerturbation(epsilon, **settings, atol=least)
    for rows, labels in nasty(4).values():
        for ball, seed in ((0.3, 0), (50.0, 1)):
            assert solved(noise, rows, labels, ball=ball, seed=seed).gradient_norm <= least


@pytest.mark.deep
@pytest.mark.parametrize("kind", sorted(nasty(2)))
def test_no_fit_of_records_is_refused_where_rounding_ends_it(kind):
    """An atol that no float reaches: what is returned is the minimum up to rounding all the same.

    To refuse would tell of the records: of one record in every tenth run, and never of none.
    """
    rows, labels = nasty(2)[kind]
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=ADD_OR_REMOVE_ONE)
    for ball, seed in ((0.3, 0), (50.0, 1)):
        exact = solved(noise, rows, labels, ball=ball, seed=seed)
        strained = solved(with_atol(noise, 1e-300), rows, labels, ball=ball, seed=seed)
        assert strained.gradient_norm <= 1e-11
        assert np.linalg.norm(strained.theta - exact.theta) <= 1e-7
        held = Rows.of(rows, labels)
        weights = release_records(
            held, noise, ball=ball, second_moment=None, entropy=_random.SimulatedEntropy(seed)
        )
        assert np.isfinite(weights).all()
        with_atol(noise, 1e-8)


# --- what is not told -------------------------------------------------------------------------


def shape(value):
    """Return what a value looks like, numbers of releases apart."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str
    if dataclasses.is_dataclass(value) and not isinstance(value, ObjectivePerturbation):
        return {f.name: shape(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return tuple(map(shape, value))
    return len(value) if isinstance(value, str) and re.fullmatch("[0-9a-f]{16,}", value) else value


def test_the_number_of_records_never_shows(linear_world, tmp_path):
    found, rows = [], []
    for n in (57, 83):
        pairs, _ = linear_world(n, 3)
        pairs = dataclasses.replace(pairs, dropped=n // 3)
        fit, ledger = fitted(pairs, tmp_path / str(n))
        found.append(fit)
        rows.append([(row.kind, shape(row.parameters), row.count, row.unit) for row in ledger.rows])
        payload = json.loads(ledger.spends[0].payload)
        assert payload == {
            "caveats": ["person-group", "real-arithmetic", "simulated"]
        }  # no digest, no total
    one, other = found
    assert shape(one) == shape(other)  # every scalar is the same number
    assert one.pairs is None
    assert one.gradient_norm == one.atol == mechanisms(ADD_OR_REMOVE_ONE)[0].atol
    assert rows[0] == rows[1]
    assert repr(one) == repr(other)
    assert repr(one.moment) == repr(other.moment)
    public = [fit.ellipsoid.to_dict() for fit in found]
    for name in public[0].keys() - {"center", "metric"}:
        assert public[0][name] == public[1][name]
    assert len(public[0]["metric"]) == len(public[1]["metric"])


def test_one_record_made_empty_changes_the_released_numbers_alone(linear_world, tmp_path):
    pairs, _ = linear_world(60, 3)
    fewer = dataclasses.replace(pairs.part(range(59)), dropped=pairs.dropped + 1)
    (one, _), (other, _) = (
        fitted(part, tmp_path / str(index), REPLACE_SPECIAL)
        for index, part in enumerate((pairs, fewer))
    )
    assert shape(one) == shape(other)
    assert one.pairs == other.pairs == 60
    assert one.weights.tolist() != other.weights.tolist()
    assert np.abs(one.weights - other.weights).max() < 1.1 / mechanisms(REPLACE_SPECIAL)[0].ridge


def test_errors_about_features_name_no_record(tmp_path):
    messages = set()
    for n in (20, 33):
        records = [
            {"prompt": f"q{i}", "first": "yes", "second": f"no {i}", "label": 1} for i in range(n)
        ]
        features = sordino.FunctionFeatures(
            lambda prompts, answers: [[math.nan if a[-1] == "9" else 1.0] for a in answers],
            dimension=1,
            name="broken",
            declare_unread=True,
        )
        ledger = open_ledger(tmp_path / str(n), ADD_OR_REMOVE_ONE)
        noise = ObjectivePerturbation(1.0, delta=DELTA, bound=2.0, neighbors=ADD_OR_REMOVE_ONE)
        with pytest.raises(DataError) as caught:
            fit_records(
                sordino.read_pairs(records), noise, ledger=ledger, ball=1.0, features=features
            )
        assert not ledger.spends
        assert caught.value.__context__ is None
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert not re.search(r"\d", messages.pop())


def test_an_extreme_data_set_is_fitted_too(tmp_path):
    """Convergence is itself an output: it must not depend on the data."""
    generator = np.random.default_rng(0)
    spread = generator.normal(size=(500, 3))
    cases = {
        "one": np.eye(3)[:1],
        "same": np.tile([[1.0, 0.0, 0.0]], (500, 1)),
        "long": spread * 1e200,
        "tiny": spread * 1e-200,
        "decaying": spread * np.array([1.0, 1e-6, 1e-12]),
    }
    for name, rows in cases.items():
        for labels in (np.ones(len(rows)), np.arange(len(rows)) % 2, np.full(len(rows), 0.5)):
            pairs = sordino.Pairs.from_features(rows, labels)
            path = tmp_path / f"{name}{labels[-1]}"
            found, _ = fitted(pairs, path)
            assert np.isfinite(found.weights).all()
    empty = pairs.part([])
    assert np.isfinite(fitted(empty, tmp_path / "none")[0].weights).all()


# --- the release is a certified artifact ------------------------------------------------------


def test_a_seed_is_said(linear_world, tmp_path):
    pairs, _ = linear_world(40, 3)
    seeded, _ = fitted(pairs, tmp_path / "0")
    again, _ = fitted(pairs, tmp_path / "1")
    system, _ = fitted(pairs, tmp_path / "2", simulate_seed=None)
    assert seeded.guarantee.simulated
    assert "simulated" in seeded.guarantee.caveats
    assert not system.guarantee.simulated
    assert seeded.weights.tolist() == again.weights.tolist()
    assert seeded.weights.tolist() != system.weights.tolist()


class Twice(InProcess):
    """An engine whose every task is lost once, after it was done, and run again."""

    def fold(self, chunks, task, add, *, taken=None):
        def again(chunk):
            task(chunk)
            return task(chunk)

        return super().fold(chunks, again, add, taken=taken)


@pytest.fixture
def world():
    """Feature differences, a few of them far beyond any bound, and labels."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(N, D)) / 2
    rows[:4] *= [[1e3], [1e150], [1e-150], [1e300]]
    labels = (generator.random(N) < expit(2 * rows[:, 0])).astype(np.int8)
    return rows, labels


def write(folder, rows, labels, *, files=3, **columns):
    """Write records in Parquet files with several groups each."""
    folder.mkdir(exist_ok=True)
    for file, part in enumerate(np.array_split(np.arange(len(rows)), files)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows[part].ravel()), rows.shape[1])
        more = {name: [values[at] for at in part] for name, values in columns.items()}
        table = pa.table({"difference": lists, "label": labels[part], **more})
        parquet.write_table(table, folder / f"{file}.parquet", row_group_size=70)
    return sordino.find_chunks(folder)


def fit_files(chunks, path, neighbors=REPLACE_ONE, engine=None, **settings):
    noise, moment = mechanisms(neighbors)
    ledger = open_ledger(path, neighbors)
    given = {"ball": BALL, "second_moment": moment, "simulate_seed": 0} | settings
    return released(chunks, noise, ledger, engine, **given), ledger


def released(chunks, noise, ledger, engine=None, **given):
    engine = engine or InProcess()
    with survey_chunks(chunks, engine) as survey:
        return fit_records(survey, noise, ledger=ledger, **given)


# --- in files: the same as in memory ----------------------------------------------------------


@pytest.mark.parametrize("files", few([4, 1], first=1))
@pytest.mark.parametrize("neighbors", few(RELATIONS, first=1))
def test_weights_and_moment_are_those_of_the_release_in_memory(world, tmp_path, neighbors, files):
    noise, moment = mechanisms(neighbors)
    pairs = sordino.preferences.pairs.Pairs.from_features(*world)
    expected = fit_records(
        pairs,
        noise,
        ledger=open_ledger(tmp_path / "m", neighbors),
        ball=BALL,
        second_moment=moment,
        simulate_seed=0,
    )
    found, _ = fit_files(write(tmp_path / "in", *world, files=files), tmp_path / "p", neighbors)
    assert (found.moment.matrix == expected.moment.matrix).all()  # to the last bit
    # both are within atol/ridge of the minimizer, plus other draws of the output noise
    near = 10 * noise.output_standard_deviation + 2 * noise.atol / noise.ridge
    assert np.linalg.norm(found.weights - expected.weights) < near
    assert (found.pairs, found.guarantee) == (expected.pairs, expected.guarantee)
    assert (found.pairs is None) == (neighbors == ADD_OR_REMOVE_ONE)
    assert found.ellipsoid is not None


def test_texts_too(tmp_path):
    generator = np.random.default_rng(1)
    lines = [
        {
            "prompt": f"question {at}",
            "chosen": f"word{generator.integers(9)} good",
            "rejected": f"word{generator.integers(9)} bad",
        }
        for at in range(400)
    ]
    (tmp_path / "in").mkdir()
    for file in range(3):
        text = "".join(json.dumps(line) + "\n" for line in lines[file::3])
        (tmp_path / "in" / f"{file}.jsonl").write_text(text)
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    features = HashedText(dimension=8)
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    given = {"mechanism": noise, "features": features, "ball": BALL, "simulate_seed": 0}
    ledgers = [open_ledger(tmp_path / name, REPLACE_ONE) for name in "ab"]
    one = sordino.fit_reward(sordino.read_pairs(tmp_path / "all.jsonl"), ledger=ledgers[0], **given)
    many = sordino.fit_reward(sordino.find_chunks(tmp_path / "in"), ledger=ledgers[1], **given)
    assert np.linalg.norm(one.weights - many.weights) < 10 * noise.output_standard_deviation + 1e-7
    assert many.method == "objective-perturbation"
    assert many.guarantee == one.guarantee


def test_the_gradient_is_as_small_as_the_promise_needs(world, tmp_path, monkeypatch):
    """Computed again from all records with more digits, tilt and ball included."""
    kept = {}
    honest = ObjectivePerturbation.release

    def release(self, minimize, **given):
        def noted(tilt):
            found = minimize(tilt)
            kept.update(tilt=tilt, theta=found.theta)
            return found

        return honest(self, noted, **given)

    monkeypatch.setattr(ObjectivePerturbation, "release", release)
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    chunks = write(tmp_path / "in", *world)
    ledger = open_ledger(tmp_path / "l", REPLACE_ONE)
    released(chunks, noise, ledger, ball=50.0, simulate_seed=3)
    x, y = noise.clipped(world[0]).astype(np.longdouble), world[1]
    theta = kept["theta"].astype(np.longdouble)
    gradient = x.T @ (1 / (1 + np.exp(-(x @ theta))) - y) + noise.ridge * theta + kept["tilt"]
    assert 0 < np.linalg.norm(theta) < 50
    assert float(np.sqrt(gradient @ gradient)) < noise.atol


# --- in files: bounds, coins and tasks --------------------------------------------------------


def test_every_task_clips_what_it_reads(world, tmp_path, monkeypatch):
    seen = []
    honest = record_release.tilted_loss

    def loss(records, tilt, entropy):
        for chunk in records.chunks:
            seen.extend(block for _, block, _ in records.read(chunk))
        return honest(records, tilt, entropy)

    monkeypatch.setattr(record_release, "tilted_loss", loss)
    fit_files(write(tmp_path / "in", *world), tmp_path / "l")
    rows = np.concatenate(seen)
    assert rows.shape == (N, D)
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths.max() <= 1.0
    assert np.isfinite(rows).all()
    assert lengths[3] > 0.999


def test_tasks_that_run_twice_change_nothing(world, tmp_path):
    rows, labels = world
    undecided = labels.astype(float)
    undecided[::3] = 0.5
    chunks = write(tmp_path / "in", rows, undecided)
    once, _ = fit_files(chunks, tmp_path / "a")
    twice, ledger = fit_files(chunks, tmp_path / "b", engine=Twice())
    assert once.weights.tolist() == twice.weights.tolist()
    assert (once.moment.matrix == twice.moment.matrix).all()
    assert len(ledger.spends) == 1


def test_coins_are_fair_differ_by_place_and_run_and_stay(world, tmp_path, monkeypatch):
    """False alarms: below 1e-6, five standard deviations."""
    rows, _ = world
    chunks = write(tmp_path / "in", rows, np.full(N, 0.5))
    drawn = []
    honest = sordino.rewards.record_release.minimize_tilted

    def minimize(loss, *given, **settings):
        passes = [
            [block[2] for chunk in loss.rows.chunks for block in loss.rows.read(chunk)]
            for _ in range(2)
        ]
        drawn.append(np.concatenate(passes[0]))
        assert np.concatenate(passes[1]).tolist() == drawn[-1].tolist()
        return honest(loss, *given, **settings)

    monkeypatch.setattr(sordino.rewards.record_release, "minimize_tilted", minimize)
    for name, seed in {"a": None, "b": None, "c": 0, "d": 0, "e": 1}.items():
        fit_files(chunks, tmp_path / name, simulate_seed=seed)
    for coins in drawn:
        assert set(coins) == {0.0, 1.0}
        assert abs(coins.mean() - 0.5) < 5 * 0.5 / np.sqrt(N)
        blocks = coins.reshape(-1, 200)[:, :60]
        assert len({tuple(block) for block in blocks}) == len(blocks)
    assert drawn[2].tolist() == drawn[3].tolist()
    for one, other in ((0, 1), (2, 4), (0, 2)):
        agree = (drawn[one] == drawn[other]).mean()
        assert abs(agree - 0.5) < 5 * 0.5 / np.sqrt(N)


def test_words_depend_on_every_part_of_what_names_them():
    known = words_of_secret(b"a" * 32, "0 1", 1000)
    assert known.dtype == np.uint64
    assert words_of_secret(b"a" * 32, "0 1", 400).tolist() == known[:400].tolist()
    for secret, part in ((b"b" * 32, "0 1"), (b"a" * 32, "0 2"), (b"a" * 32, "1 1")):
        assert not np.isin(words_of_secret(secret, part, 1000), known).any()
    ones = np.unpackbits(known.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(64_000)


def test_nobody_is_told_how_many_passes_a_fit_of_records_takes(world, tmp_path):
    """It depends on them."""
    told = []

    class Watched(InProcess):
        def fold(self, chunks, task, add, *, taken=None):
            told.append(taken)
            return super().fold(chunks, task, add, taken=taken)

    chunks = write(tmp_path / "in", *world)
    noise, moment = mechanisms(REPLACE_ONE)
    given = {"ball": BALL, "second_moment": moment}
    with survey_chunks(chunks, Watched(), taken=lambda *_: None) as survey:
        told.clear()
        fit_records(survey, noise, ledger=open_ledger(tmp_path / "l", REPLACE_ONE), **given)
    assert len(told) >= 5
    assert set(told) == {None}


# --- in files: the order of the steps ---------------------------------------------------------


def test_one_entry_is_durable_before_any_noise(world, tmp_path, monkeypatch):
    steps = []

    def watch(owner, name):
        honest = getattr(owner, name)

        def call(self, *given, **settings):
            steps.append(name)
            return honest(self, *given, **settings)

        monkeypatch.setattr(owner, name, call)

    watch(ObjectivePerturbation, "release")
    watch(SecondMoment, "release_total")
    watch(sordino.Ledger, "reserve")
    _, ledger = fit_files(write(tmp_path / "in", *world), tmp_path / "l", simulate_seed=None)
    assert steps == ["reserve", "release_total", "release"]
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit"]


def test_over_budget_no_feature_is_made(world, tmp_path):
    chunks = write(tmp_path / "in", *world)
    noise, moment = mechanisms(REPLACE_ONE)
    ledger = open_ledger(tmp_path / "l", REPLACE_ONE, epsilon=0.5)

    class Unused(InProcess):
        def fold(self, *_, **__):
            raise AssertionError

    with survey_chunks(chunks, InProcess()) as survey:
        unused = dataclasses.replace(survey, engine=Unused())
        with pytest.raises(BudgetExceeded):
            fit_records(unused, noise, ledger=ledger, ball=BALL, second_moment=moment)
    assert not ledger.spends


def test_features_that_fail_spend_nothing_and_name_no_record(tmp_path):
    class Broken:
        dimension, feature_bound, digest, declare_unread = 2, 1.0, "broken", True

        def differences(self, *_):
            return np.full((1, 2), np.nan)

    (tmp_path / "in").mkdir()
    line = {"prompt": "p", "chosen": "a", "rejected": "b"}
    (tmp_path / "in" / "a.jsonl").write_text(json.dumps(line) + "\n")
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    ledger = open_ledger(tmp_path / "l", REPLACE_ONE)
    with pytest.raises((DataError, UsageError)):
        released(sordino.find_chunks(tmp_path / "in"), noise, ledger, features=Broken(), ball=9e9)
    assert not ledger.spends


def test_repeats_are_records_of_their_own_and_overlap_is_refused(world, tmp_path):
    rows, labels = world
    rows, labels = np.repeat(rows[10:110], 2, axis=0), np.repeat(labels[10:110], 2)
    people = [f"p{at}" for at in range(len(rows) // 2) for _ in range(2)]
    found, _ = fit_files(
        write(tmp_path / "in", rows, labels, files=2, person=people), tmp_path / "l"
    )
    assert found.pairs == len(rows)
    assert "person-group" in found.guarantee.caveats
    apart = np.arange(len(rows)).reshape(-1, 2).T.ravel()  # a repeat in another file
    again = write(
        tmp_path / "apart", rows[apart], labels[apart], files=2, person=[people[i] for i in apart]
    )
    with pytest.raises(DataError, match="overlap"):
        fit_files(again, tmp_path / "m")


def test_other_mechanisms_and_settings_are_refused(world, tmp_path):
    chunks = write(tmp_path / "in", *world)
    ledger = open_ledger(tmp_path / "l", REPLACE_ONE)
    noise = ObjectivePerturbation(1.0, delta=DELTA, bound=1.0, neighbors=REPLACE_ONE)
    with pytest.raises(UsageError, match="ObjectivePerturbation"):
        released(chunks, 3, ledger, ball=1.0)
    given = {"mechanism": noise, "ledger": ledger, "ball": 1.0}
    with pytest.raises(UsageError, match="part of the promise"):
        sordino.fit_reward(chunks, **given, ridge=1.0)
    with pytest.raises(UsageError, match="held_out"):
        sordino.fit_reward(chunks, **given, held_out=True)
    with pytest.raises(UsageError, match="files of vectors"):
        sordino.fit_reward(chunks, **given, features=HashedText(dimension=4))
    assert not ledger.spends


SEVERAL = {"prompt": "Tell me", "first": "x", "second": "a b c " * 20, "labels": [1] * 50}


@pytest.mark.parametrize("hides_records", [True, False])
def test_a_record_with_labels_of_several_people_is_not_hidden_as_one_of_them(
    tmp_path, hides_records
):
    """It would be fifty rows of the sum, of which the noise hides one."""
    features = sordino.FunctionFeatures(
        lambda prompts, answers: [[len(one) / 200, 0.1, 0.0] for one in answers],
        dimension=3,
        name="length",
        declare_unread=True,
    )
    alone = {**SEVERAL, "labels": [1]}  # one judgment, however it is written
    pairs = sordino.read_pairs([alone, {**alone, "prompt": "Say"}], hides_records=hides_records)
    fitted(pairs, tmp_path / "fits", features=features)
    if hides_records:
        with pytest.raises(DataError, match="A record cannot be used"):
            sordino.read_pairs([alone, SEVERAL], hides_records=True)
        return
    rated = [{"prompt": "p", "completion": f"{n}", "rating": n} for n in range(1, 5)]
    several = sordino.read_pairs([alone, SEVERAL])
    for pairs in (
        several,
        several.part([1, 0]),
        sordino.read_pairs(rated, levels="1..5", ratings="pairs"),
    ):
        with pytest.raises(PrivacyError, match="does not hide all that a record is in"):
            fitted(pairs, tmp_path / "refused", features=features)
        with pytest.raises(PrivacyError, match="does not hide all that a record is in"):
            sordino.WithheldReward(
                pairs, unit="record", neighbors=ADD_OR_REMOVE_ONE, ridge=9.0, features=features
            )
    assert not open_ledger(tmp_path / "refused", ADD_OR_REMOVE_ONE).spends
