"""What a plan foresees of each kind of noise is what comes out, where it says that it can tell."""

import json

import numpy as np
import pytest
from noise_forecast import compare

from sordino import cli
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
    import sordino

    folder = tmp_path_factory.mktemp("judgments")
    for name, n, seed in (("p", 600, 1), ("public", 1200, 2)):
        rows = sordino.simulate_pairs(n, seed=seed, people=100)[0]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def planned(folder, tmp_path, capsys, *words):
    capsys.readouterr()
    out = ["--out", str(tmp_path / "out"), "--ledger", str(tmp_path / "spend.db")]
    given = ["--no-persons"] if "person" not in words else []
    command = ["align", str(folder / "p.jsonl"), *words, *given, *out, "--dry-run", "--json"]
    assert cli.run(command) == 0
    assert not any(tmp_path.iterdir())
    return json.loads(capsys.readouterr().out)


def test_a_plan_shows_every_kind_and_auto_takes_the_best(judgments, tmp_path, capsys):
    public = ["--evaluate", str(judgments / "public.jsonl")]
    told = planned(judgments, tmp_path, capsys, "--noise", "auto", "--epsilon", "0.3", *public)
    forecast, kinds = told["forecast"], told["forecast"]["kinds"]
    assert forecast["n"] == 600
    assert forecast["from"] == "public judgments"
    assert forecast["best"] == "estimate"
    assert told["mechanism"]["name"] == "label-gaussian"
    assert kinds["estimate"]["accuracy"] > kinds["labels"]["accuracy"] > 0.5
    assert "--draws" in kinds["draws"]["left_out"]
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
