"""``sordino.align`` is the own run of the command: the same release and the same files."""

import json
import re

import pytest
from tests.tiers import few

import sordino
from sordino import cli

SEED = 7


@pytest.fixture(scope="module")
def judgments(tmp_path_factory):
    path = tmp_path_factory.mktemp("judgments") / "p.jsonl"
    rows, _ = sordino.simulate_pairs(300, seed=1, people=60)
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def timeless(text):
    """A result without what differs from run to run: times, names, and digests of them."""
    told = json.loads(re.sub(r"release [0-9a-f]{16}", "release", text))
    for name in ("certificate", "seconds", "reward_sha256"):
        told.pop(name, None)
    return told


@pytest.mark.parametrize(
    "options",
    few(
        [
            {"noise": "labels"},
            {"noise": "estimate", "delta": 1e-6},
            {"noise": "estimate", "unit": "record"},
            {"noise": "draws", "draws": 20},
            {"noise": "labels", "unit": "person"},
        ],
        first=2,
    ),
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("in_memory", few([False, True], True))
def test_a_call_makes_what_the_command_makes(judgments, tmp_path, options, in_memory):
    seeded = {} if options["noise"] == "draws" else {"simulate_seed": SEED}
    words = [f"--{name}={value}" for name, value in {**options, **seeded}.items()]
    words = [word.replace("simulate_seed", "simulate-seed") for word in words]
    out, ledger = tmp_path / "out", tmp_path / "command.db"
    command = ["align", str(judgments), "--epsilon", "2", "--out", str(out), "--json"]
    assert cli.run([*command, "--ledger", str(ledger), *words]) == 0
    found = sordino.align(
        rows_of(judgments) if in_memory else judgments,
        epsilon=2,
        ledger=tmp_path / "call.db",
        **options,
        **seeded,
    )
    found.save(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").iterdir() if path.suffix != ".lock"}
    assert (
        names == {path.name for path in out.iterdir() if path.suffix != ".lock"} == set(found.files)
    )
    for name in names:
        assert (tmp_path / "saved" / name).read_bytes().decode() == found.files[name]
    assert timeless(found.files["result.json"]) == timeless((out / "result.json").read_text())
    if "reward.json" in names and not seeded.get("unit"):
        mine, other = (
            json.loads(text)
            for text in (found.files["reward.json"], (out / "reward.json").read_text())
        )
        assert mine["weights"] == other["weights"]
        chances = found.policy.probabilities(["Hi"], [["Hello there!", "No."]])
        assert abs(chances[0].sum() - 1) < 1e-12
    spent = sordino.Ledger.read(tmp_path / "call.db").total()
    assert (spent is None) == (options["noise"] == "draws")
    assert spent is None or abs(spent.epsilon - 2) < 1e-9


def test_a_withheld_reward_is_not_handed_out(judgments, tmp_path):
    found = sordino.align(
        judgments, epsilon=2, noise="draws", draws=5, ledger=tmp_path / "spend.db"
    )
    with pytest.raises(sordino.PrivacyError, match="withheld"):
        _ = found.reward
    assert not found.report
    assert "Aligned" in found._repr_html_()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"epsilon": 2, "temprature": 1.0}, "no option 'temprature'. Did you mean temperature"),
        ({"epsilon": 2, "dry_run": True}, "no option 'dry_run'"),
        ({"epsilon": 2, "noise": "everywhere"}, "noise must be one of"),
        ({"epsilon": 2, "accept_weak": "no"}, "accept_weak must be one of True, False"),
        ({}, "epsilon is needed"),
        ({"epsilon": 2, "metrics_epsilon": 1.0}, "^metrics_epsilon: "),
        ({"epsilon": 2, "unit": "record"}, "Nothing was done"),
    ],
)
def test_what_cannot_be_met_is_refused_in_the_words_of_a_call(judgments, tmp_path, options, told):
    with pytest.raises(sordino.UsageError, match=told) as caught:
        sordino.align(judgments, ledger=tmp_path / "spend.db", **options)
    assert "--" not in str(caught.value)
    assert not (tmp_path / "spend.db").exists()


@pytest.mark.parametrize("judge", [sordino.align, sordino.rank])
def test_rows_without_fields_are_refused(judge):
    for rows in ([None], [1, 2], [("p", "a", "b", 1)]):
        with pytest.raises(sordino.DataError, match="record 1: expected an object"):
            judge(rows, epsilon=2)
    with pytest.raises(sordino.UsageError, match="No file to read"):
        judge(None, epsilon=2)


@pytest.mark.parametrize("option", ["noise", "ties", "unit"])
def test_a_board_refuses_a_word_that_an_option_does_not_know(option):
    with pytest.raises(sordino.UsageError, match=f"{option} must be one of"):
        sordino.rank([], **{"epsilon": 2, option: "everywhere"})


def test_answers_that_are_private_already_cost_nothing(judgments, tmp_path):
    promise = sordino.Guarantee.per_label(2)
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="answers", budget=promise)
    pairs = sordino.read_pairs(judgments)
    private = sordino.privatize(pairs, sordino.RandomizedResponse(2.0), ledger=ledger)
    found = sordino.align(private, ledger=ledger)
    assert found.guarantee.epsilon == 2.0 == found.ledger.total().epsilon
    with pytest.raises(sordino.LedgerMismatch, match="does not say what paid"):
        sordino.align(private, ledger=tmp_path / "other.db")
    assert not (tmp_path / "other.db").exists()


def test_a_second_call_on_data_in_memory_pays_again(judgments, tmp_path):
    """What is in memory has no name by which an interrupted call could find what it paid for."""
    told = {"epsilon": 1, "noise": "estimate", "ledger": tmp_path / "spend.db", "budget": 1.0}
    sordino.align(rows_of(judgments), **told)
    with pytest.raises(sordino.BudgetExceeded):
        sordino.align(rows_of(judgments), **{**told, "budget": None})
