"""Two processes train as one: one draw, one payment, one noise; and nobody waits for the dead.

The processes are real ones on this machine (gloo, loopback), started once for all tests of this
file; `_scenarios.py` is what they do. Everything that is random has a fixed seed, except where it
is said. A sound trainer fails the test of the noise with chance 2e-6 and the audit with 1e-3, over
the choice of seeds.
"""

import fcntl
import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

pytest.importorskip("trl", reason="the extra 'language' is not installed")

from tests.language import _scenarios as scenarios

import sordino
from sordino.errors import EngineError, UsageError
from sordino.language.dp_sgd import training
from sordino.language.dp_sgd.training import Processes
from sordino.language.references.texts import TextsRead
from sordino.language.references.tiny import TinyModel, build_tiny, save_tiny, train_tokenizer

SCRIPT = Path(scenarios.__file__)
ATOL = 1e-6  # sums of the same 32-bit numbers in another order


def tiny(folder):
    """Save a model of one layer that is the same in every run."""
    texts = [f"the {one}ful words of {one}s" for one in ("other", "water", "thing", "law", "care")]
    size = TinyModel(
        architecture="llama", vocabulary=300, width=16, layers=1, heads=2, context=32
    )  # fmt: skip
    tokenizer = train_tokenizer(texts, size)
    model = build_tiny(size, tokenizer)
    for made in (model, tokenizer):
        TextsRead.of_prompts(texts).mark(made)
    save_tiny(model, tokenizer, folder / "model")


def run(command, folder):
    """Run a script to its end, or end it and all it started; write what it printed."""
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[2]), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    with (folder / "printed.txt").open("w", encoding="utf-8") as printed:
        process = subprocess.Popen(
            command, stdout=printed, stderr=printed, env=environment, start_new_session=True
        )
        try:
            process.wait(scenarios.MOST + 20)  # before, the script ends itself
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its processes
            process.wait(20)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return process.returncode
    return process.returncode


@pytest.fixture(scope="session")
def once(tmp_path_factory, pytestconfig):
    """Return a function that runs a script once, also where tests run in several processes."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if hasattr(pytestconfig, "workerinput") else root

    def done(what, *launcher, names=()):
        folder = root / f"processes-{what}"
        with (root / f"{what}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                folder.mkdir()
                tiny(folder)
                command = [sys.executable, *launcher, str(SCRIPT), what, str(folder), *names]
                code = run(command, folder)
                (folder / "code").write_text(str(code))
        printed = (folder / "printed.txt").read_text(encoding="utf-8")
        assert (folder / "code").read_text() == "0", printed[-3000:]
        return folder

    return done


@pytest.fixture(scope="session")
def both(once, request):
    """Return the folder of the runs, and a function to what both processes found in a scenario.

    Only the scenarios run that collected tests name, and some alone without torchrun, which takes
    longer than they do: a test that runs alone waits for no others.
    """
    tests = {item.function for item in request.session.items if item.path == Path(__file__)}
    code = "".join(inspect.getsource(test) for test in tests)
    names = [each.__name__ for each in scenarios.TOGETHER if f'"{each.__name__}"' in code]
    port = ["--master_addr", "127.0.0.1", "--master_port", str(scenarios.free_port())]
    torchrun = ["-m", "torch.distributed.run", "--nproc_per_node", "2", *port]
    whole = len(names) == len(scenarios.TOGETHER)
    folder = once("together", *(torchrun if whole else ()), names=names)

    def found(scenario):
        return [json.loads((folder / f"{scenario}-{at}.json").read_text()) for at in (0, 1)]

    found.folder = folder
    return found


@pytest.fixture(scope="session")
def killed(once):
    """Return the folder of the runs of which one process was killed."""
    return once("kills")


@pytest.fixture
def alone(tmp_path):
    """Return a folder for runs of one process, on the same model."""
    tiny(tmp_path)
    return tmp_path


def steps_of(path):
    """Return how many steps each entry of a ledger pays for."""
    return [json.loads(row.parameters)["steps"] for row in sordino.Ledger.read(path).spends]


def assert_same_weights(both_found, one):
    first, second = both_found
    assert first["weights"] == second["weights"]  # bit by bit
    assert np.abs(np.array(first["weights"]) - scenarios.weights(one)).max() <= ATOL


def test_two_processes_are_one(both, alone):
    """The same coins and the same noise lead to the same weights."""
    one = scenarios.trained(scenarios.reward_trainer(alone, "same", simulate_seed=5))
    start = scenarios.weights(scenarios.reward_trainer(alone, "start"))
    assert_same_weights(both("same"), one)
    assert np.abs(scenarios.weights(one) - start).max() > 1e-3
    assert {found["wrapped"] for found in both("same")} == {"LlamaForSequenceClassification"}


def test_adapters_of_a_policy_are_the_same(both, alone):
    one = scenarios.trained(scenarios.dpo_trainer(alone, "policy", simulate_seed=6))
    assert_same_weights(both("policy"), one)


def test_a_process_without_anybody_takes_part(both, alone):
    with scenarios.sampled([0, 2, 8]):  # the second process has the odd numbers
        one = scenarios.trained(scenarios.reward_trainer(alone, "share", simulate_seed=5))
    assert_same_weights(both("empty_share"), one)


def test_the_first_process_alone_draws(both):
    """With a seed, and by the operating system; copies are the same to the last bit."""
    for scenario in ("same", "unseeded"):
        first, second = both(scenario)
        assert first["counts"]["noises"] == first["counts"]["samples"] == 4
        assert first["counts"]["words"] > 8
        assert second["counts"] == {"words": 0, "noises": 0, "samples": 0}
        assert first["weights"] == second["weights"]


def test_the_noise_is_that_of_one_process(both):
    """Eight steps with nobody in them: what the weights walk has exactly the stated variance.

    Each side is a test at 1e-6 (chance of a false alarm: 2e-6 over the seed, which is fixed). With
    65,536 numbers a variance that is off by 5 % is found with chance .999, and one that is twice
    or half of it always (power above 1 - 1e-12).
    """
    first, second = both("walk")
    assert first == second
    below, above = chi2.ppf([1e-6, 1 - 1e-6], first["entries"])
    assert first["entries"] == 8 * 8192
    assert below <= first["mass"] <= above
    for wrong in (0.5, 0.95, 1.05, 2.0):
        power = chi2.cdf(below / wrong, first["entries"]) + chi2.sf(above / wrong, first["entries"])
        assert power > 0.999


def test_a_canary_in_the_share_of_the_second_process_shows_no_more_than_is_claimed(both):
    """μ of one step: 10,000 plays with the canary, and as many without it, at 95 % confidence."""
    for found in both("canary"):
        assert found["outcomes"] == {
            "worst-canary": "clear", "partners": "clear", "noise": "clear", "sampler": "clear",
            "gradients": "clear",
        }  # fmt: skip
        assert 0.8 * found["claimed"] <= found["mu"] <= found["claimed"] == 1.0
        assert found["moved"] <= 1.0
        assert found["unseeded"][0] == "UsageError"
    assert [found["shares"] for found in both("canary")] == [[2, 2], [2, 1]]


def test_there_is_one_entry_for_both(both):
    first, second = both("same")
    assert len(first["entries"]) == 1
    assert first["entries"] == second["entries"]
    assert first["epsilon"] == second["epsilon"] <= 4.0
    assert steps_of(both.folder / "same.db") == [4]


@pytest.mark.parametrize(
    ("scenario", "kind", "words"),
    [
        ("over_budget", "BudgetExceeded", "Nothing was released"),
        ("damaged", "LedgerDamaged", "is gone"),
        ("wrong_gradients", "UsageError", "Gradients differ here."),
    ],
)
def test_an_error_of_one_process_is_raised_in_both(both, scenario, kind, words):
    first, second = both(scenario)
    assert first["error"] == second["error"]
    assert first["error"][0] == kind
    assert words in first["error"][1]
    for found in (first, second):
        assert not any(found.get("counts", {}).values())
    path = both.folder / f"{scenario}.db"
    assert not path.exists() or not steps_of(path)


@pytest.mark.parametrize(
    ("name", "what", "paid"),
    [
        ("labels", "pairs", []), ("number", "pairs", []), ("model", "weights", []),
        ("rate", "settings", []), ("drifted", "weights", [2]),
    ],
)  # fmt: skip
def test_processes_that_see_different_things_are_refused(both, name, what, paid):
    for found in both("differences"):
        kind, words = found[name]
        assert kind == "UsageError"
        assert f"see different {what}. " in words
        assert not any(char.isdigit() for char in words)
    assert steps_of(both.folder / f"{name}.db") == paid


def test_a_run_goes_on_where_a_checkpoint_stands_and_pays_nothing_twice(both):
    for found in both("resumed"):
        assert found["weights"] == found["whole"]
        assert len(found["entries"]) == 2
        assert found["epsilon"] <= 4.0
        assert found["finished"][0] == "UsageError"
        assert {"model.safetensors", "optimizer.pt", "sordino.json"} <= set(found["files"])
    assert steps_of(both.folder / "resumed.db") == steps_of(both.folder / "whole.db") == [2, 2]
    first, second = both("resumed")
    assert first["weights"] == second["weights"]


def test_both_stop_where_the_first_does(both):
    """A callback that looks at a clock may say something else in each process."""
    assert both("stopped") == [[2, 4], [2, 4]]


def test_what_several_processes_do_not_train_is_refused(both):
    for found in both("refused"):
        kinds, words = zip(*(found[name] for name in ("people", "fsdp", "wrapped")), strict=True)
        assert set(kinds) == {"UsageError"}
        assert "by one process" in words[0]
        assert "Supported are" in words[1]
        assert "DistributedDataParallel" in words[2]
    for name in ("people", "fsdp", "wrapped"):
        assert not steps_of(both.folder / f"{name}.db")


@pytest.mark.parametrize("point", list(scenarios.POINTS))
def test_a_killed_process_ends_the_other_and_all_that_was_drawn_is_paid(killed, point):
    found = json.loads((killed / f"{point}.json").read_text())
    assert found["victim"] == -signal.SIGKILL
    assert found["other"] == 1
    assert found["seconds"] < 30
    survivor = 1 - scenarios.POINTS[point][0]
    kind, words = json.loads((killed / f"{point}-{survivor}.json").read_text())
    assert kind == "EngineError"
    assert "Another process of this run is gone" in words
    assert sum(steps_of(killed / f"{point}.db")) >= drawn_at(killed, point)


def drawn_at(folder, point):
    """Return for how many steps noise was drawn before the kill."""
    path = folder / f"{point}.drawn"
    return len(path.read_text()) if path.exists() else 0


def test_kills_came_before_and_after_noise(killed):
    assert [drawn_at(killed, point) for point in scenarios.POINTS] == [0, 0, 0, 1, 3, 2, 2]


def test_a_run_of_two_goes_on_in_one_process_and_pays_for_what_was_lost(killed):
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer = scenarios.reward_trainer(killed, "noise", args=saving)
    before = trainer._ledger.total().epsilon
    scenarios.trained(trainer, resume_from_checkpoint=True)
    assert steps_of(killed / "noise.db") == [2, 2, 2]
    assert trainer._promise.guarantee.epsilon > before


def test_one_process_does_everything_itself():
    alone = Processes.here()
    assert alone == Processes(0, 1)
    assert not alone.several
    assert alone.share(range(4)) == [0, 1, 2, 3]
    assert alone.from_first("a word", lambda: 3) == alone.together(lambda: 3) == 3
    for each in (alone.together, lambda work: alone.from_first("a word", work)):
        with pytest.raises(ZeroDivisionError):
            each(lambda: 1 / 0)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_unit_is_in_one_share_whoever_else_is_drawn(count):
    everybody, some = range(40), [3, 4, 11, 39]
    shares = [Processes(at, count).share(everybody) for at in range(count)]
    assert sorted(unit for share in shares for unit in share) == list(everybody)
    for at, share in enumerate(shares):
        assert set(Processes(at, count).share(some)) == set(share) & set(some)


def test_processes_at_different_places_take_nothing_for_something_else(monkeypatch):
    def told(words, src):
        words[0] = ("the entry", 7, None)

    monkeypatch.setattr(training.distributed, "broadcast_object_list", told)
    assert Processes(1, 2).from_first("the entry", lambda: None) == 7
    with pytest.raises(EngineError, match=r"at different places.*'the sample'.*'the entry'"):
        Processes(1, 2).from_first("the sample", lambda: None)


class Odd(Exception):
    """An error that cannot be made again from its message."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


def test_an_error_that_cannot_be_sent_is_told_in_words():
    same = training._portable(sordino.BudgetExceeded("too much"))
    assert (type(same), str(same)) == (sordino.BudgetExceeded, "too much")
    told = training._portable(Odd(1, 2))
    assert type(told) is EngineError
    assert "Odd: 1 and 2" in str(told)


@pytest.mark.parametrize("wrong", ["is_fsdp_enabled", "is_deepspeed_enabled", "way"])
def test_models_in_pieces_are_refused(alone, wrong):
    trainer = scenarios.reward_trainer(alone, "pieces")
    if wrong == "way":
        trainer.accelerator = type("Parts", (), {"distributed_type": "MEGATRON_LM"})()
    else:
        setattr(trainer, wrong, True)
    with pytest.raises(UsageError, match="Supported are one process, and several that each hold"):
        training.refuse_pieces(trainer)
