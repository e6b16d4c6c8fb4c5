"""What a plan foresees of each kind of noise is what comes out, where it says that it can tell."""

import json
from dataclasses import replace

import numpy as np
import pytest
from noise_forecast import compare, plans, realized
from scipy.sparse import csr_array

import sordino
from sordino import cli
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.rewards.noise_forecast import ROWS, Picture, Signal, of_answers

LEAST = 0.015  # the most that a forecast may be off
KINDS = ("labels", "estimate", "records", "draws")


@pytest.mark.parametrize(
    "setting", [("simulated", 500, 16, 2.0), ("simulated", 1000, 28, 0.5)], ids=str
)
def test_forecasts_hold_where_the_plan_says_so(setting):
    """False alarms: means of 6 seeds scatter by .003 at most; half the noise moves them by .02."""
    found = compare(*setting, seeds=6)
    told = [kind for kind in KINDS if found[kind]["tells"]]
    assert len(told) >= 3
    for kind in told:
        assert abs(found[kind]["difference"]) <= LEAST, (kind, found[kind])
    assert found["lost"] <= 0.01


def test_more_noise_is_foreseen_to_teach_less_and_its_intervals_widen():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(ROWS, 12)) * 0.2
    signal = Signal.of_population(rows)
    flips = (0.0, 0.2, 0.4, 0.49)
    found = [signal.foresee(of_answers(rows, 500, flip_probability=each)) for each in flips]
    values = [each.accuracy for each in found]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.6
    assert values[-1] < 0.55
    assert not found[0].tells  # nobody said how well these people can be predicted


def test_a_picture_without_noise_finds_the_truth():
    """E σ(|Δ|) is the most that anybody reaches: with θ known it is what was assumed."""
    rows = np.random.default_rng(1).normal(size=(ROWS, 4)) * 0.5
    signal = Signal.of_population(rows)
    nothing = Picture(mean=np.eye(4), bend=np.eye(4), scatter=np.zeros((4, 4)), ridge=0.0, n=1e9)
    mean = np.mean([0.58, 0.62, 0.66, 0.72, 0.8])
    assert abs(signal.foresee(nothing).accuracy - mean) < 0.01


@pytest.fixture(scope="module")
def judgments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judgments")
    for name, n, seed in (("p", 600, 1), ("public", 1200, 2)):
        rows = sordino.simulate_pairs(n, seed=seed, people=100)[0]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def told_of(folder, tmp_path, capsys, *words):
    capsys.readouterr()
    out = ["--out", str(tmp_path / "out"), "--ledger", str(tmp_path / "spend.db")]
    given = ["--no-persons"] if "person" not in words else []
    assert cli.run(["align", str(folder / "p.jsonl"), *words, *given, *out, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def planned(folder, tmp_path, capsys, *words):
    before = sorted(tmp_path.iterdir())
    told = told_of(folder, tmp_path, capsys, *words, "--dry-run")
    assert sorted(tmp_path.iterdir()) == before
    return told


def test_a_plan_shows_every_kind_and_auto_takes_the_best(judgments, tmp_path, capsys):
    public = ["--evaluate", str(judgments / "public.jsonl")]
    told = planned(judgments, tmp_path, capsys, "--noise", "auto", "--epsilon", "0.3", *public)
    forecast, kinds = told["forecast"], told["forecast"]["kinds"]
    assert forecast["n"] == 600
    assert forecast["from"] == "public judgments"
    assert forecast["best"] == "estimate"
    assert told["mechanism"]["name"] == "label-gaussian"
    assert kinds["estimate"]["accuracy"] > kinds["labels"]["accuracy"] > 0.5
    assert "--evaluate" in kinds["draws"]["left_out"]
    assert set(forecast["first_record"]) == {"prompt", "first", "second"}


def test_of_records_nothing_is_looked_at(judgments, tmp_path, capsys):
    """The same plan, to the last digit, whatever the records say."""
    words = ("--noise", "auto", "--unit", "record", "--epsilon", "1", "--draws", "5")
    first = planned(judgments, tmp_path, capsys, *words)["forecast"]
    rows = [json.loads(line) for line in (judgments / "p.jsonl").read_text().splitlines()]
    for row in rows:
        row |= {"prompt": "x", "chosen": "y " * 50, "rejected": "z"}
    other = tmp_path.parent / "other"
    other.mkdir(exist_ok=True)
    (other / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert planned(other, tmp_path, capsys, *words)["forecast"] == first
    assert first["first_record"] is None
    assert {"accuracy", "interval", "tells"} == set(first["kinds"]["estimate"])
    assert first["from"] == "the stated population"


def test_no_label_moves_a_plan(judgments, tmp_path, capsys):
    words = ("--noise", "auto", "--epsilon", "1")
    first = planned(judgments, tmp_path, capsys, *words)
    rows = [json.loads(line) for line in (judgments / "p.jsonl").read_text().splitlines()]
    turned = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    other = tmp_path.parent / "turned"
    other.mkdir(exist_ok=True)
    (other / "p.jsonl").write_text("\n".join(map(json.dumps, turned)))
    assert planned(other, tmp_path, capsys, *words) == first


@pytest.mark.parametrize(
    ("asked", "taken", "out"),
    [
        ((0.3, "label", 1e-6, None), "estimate", {"draws": "--draws is needed"}),
        ((0.3, "label", 0.0, None), "labels", {"estimate": "delta is too small"}),
        ((8.0, "label", 1e-6, 0.5), "estimate", {"labels": "over the budget"}),
        ((8.0, "person", 1e-6, None), "estimate", {"draws": "--unit person"}),
    ],
    ids=("sum", "no delta", "nearly spent", "person"),
)
def test_auto_takes_the_best_kind_that_is_permitted(judgments, tmp_path, capsys, asked, taken, out):
    """On a nearly spent ledger sums cost less than coins, which add up; without δ only coins go."""
    epsilon, unit, delta, spent = asked
    owner = {"neighbors": sordino.REPLACE_ONE, "trust": "central", "unit": unit}
    budget = sordino.Guarantee(epsilon * 1.02, delta=delta, **owner)
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="any", budget=budget)
    if spent is not None:
        noise, promise = LabelGaussian(spent, delta=delta), replace(budget, epsilon=spent)
        ledger.reserve(noise.event, promise=promise).commit("0" * 64)
    words = ("--noise", "auto", "--epsilon", str(epsilon), "--data", "any", "--unit", unit)
    found = planned(judgments, tmp_path, capsys, *words)
    kinds = found["forecast"]["kinds"]
    assert found["forecast"]["best"] == taken
    for name, why in out.items():
        assert why in kinds[name]["left_out"]
    told = told_of(judgments, tmp_path, capsys, *words, "--simulate-seed", "1")
    assert (told["noise"], told["chosen"]["kinds"]) == (taken, kinds)


def thumbs(n, seed):
    """Return features of single answers with a bar, of which seven in ten are liked, and thumbs."""
    draw = np.random.default_rng(seed)
    rows = np.hstack([draw.normal(size=(n, 8)) * 0.2, np.full((n, 1), 0.5)])
    rewards = rows @ np.array([4.0, -2.0, 1.0, *[0.0] * 5, 2.2])
    return csr_array(rows), (draw.random(n) < 1 / (1 + np.exp(-rewards))).astype(float)


@pytest.mark.parametrize("kind", ["labels", "estimate"])
def test_of_thumbs_what_is_foreseen_comes_out(kind):
    """Always yes is right in .7; symmetric rewards would be foreseen to do .03 worse or more."""
    (rows, _), (unseen, truth) = thumbs(1500, 1), thumbs(4000, 2)
    signal = Signal.of_public(unseen, truth, alone=True)
    noise, picture = plans(rows, 1500, 1.0)[kind]
    foreseen = signal.foresee(picture)
    reached = []
    for seed in range(6):
        mine, said = thumbs(1500, 10 + seed)
        weights = realized(kind, noise, mine, said, seed)
        reached.append(np.mean((unseen @ weights > 0) == (truth > 0.5)))
    assert foreseen.tells
    assert abs(foreseen.accuracy - np.mean(reached)) <= LEAST
    assert np.mean(reached) > 0.7


@pytest.mark.parametrize("kind", ["thumbs", "ratings", "pieces", "rankings"])
def test_what_else_is_judged_gets_a_forecast_in_which_no_label_counts(kind, tmp_path, capsys):
    draw, words = np.random.default_rng(0), ["--noise", "auto", "--epsilon", "2"]
    words += {"ratings": ["--levels", "1..5"], "pieces": ["--engine", "process"]}.get(kind, [])
    plans = []
    for name in ("one", "other"):
        rows = []
        for n in range(200):
            said = {"label": bool(draw.random() < 0.5)}
            if kind == "ratings":
                said = {"rating": int(draw.integers(1, 6))}
            about = {"completion": f"an answer {n} " * (n % 7 + 1)}
            if kind == "pieces":
                about = {"first": f"a {n}", "second": f"an answer {n} " * (n % 7 + 1)}
                said = {"label": int(said["label"])}
            rows.append({"prompt": f"q{n}", **about, **said})
        if kind == "rankings":
            names = [["a", "b", "c"], ["b", "a", "c"]]
            ballots = [{"ranking": names[n % 2 if name == "one" else 0]} for n in range(200)]
            rows = [{"items": names[0]}, *ballots]
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (tmp_path / "runs").mkdir(exist_ok=True)
        plans.append(planned(tmp_path / name, tmp_path / "runs", capsys, *words)["forecast"])
    assert plans[0] == plans[1]
    kinds = plans[0]["kinds"]
    assert plans[0]["n"] == 200
    if kind == "rankings":
        assert kinds["estimate"] == {"accuracy": None}
        return
    assert 0.5 < kinds["estimate"]["accuracy"] < 0.8
    assert ("accuracy" in kinds["labels"]) == (kind != "pieces")


def test_auto_says_why_where_nothing_is_permitted(judgments, tmp_path):
    owner = {"neighbors": sordino.REPLACE_ONE, "trust": "central", "unit": "label"}
    budget = sordino.Guarantee(0.1, delta=0.0, **owner)
    path = tmp_path / "spend.db"
    before = sordino.Ledger.open(path, data="any", budget=budget).head
    given = {
        "epsilon": 0.3,
        "noise": "auto",
        "ledger": path,
        "no_persons": True,
        "data_name": "any",
    }
    with pytest.raises(sordino.BudgetExceeded, match="over the budget"):
        sordino.align(judgments / "p.jsonl", **given)
    assert sordino.Ledger.read(path).head == before
