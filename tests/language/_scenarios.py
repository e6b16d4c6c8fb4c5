"""What test_several_processes.py lets processes do: `python _scenarios.py together|kills FOLDER`.

``together`` runs one scenario after the other, of those that are named behind the folder, in each
process that a launcher started, or in two forks of its own: whoever was left behind by an error
would spoil all that follow. ``kills`` starts its own pairs of processes, without a launcher that
would clean up after them, and kills one of each.
"""

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from multiprocessing import connection
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig
from transformers import TrainerCallback

import sordino
from sordino import _random
from sordino.language import (
    CentralDPOConfig,
    CentralDPOTrainer,
    CentralPolicyConfig,
    CentralPolicyTrainer,
    CentralPrivacy,
    CentralRewardConfig,
    CentralRewardTrainer,
    SlotPrivacy,
)
from sordino.language.dp_sgd import training as steps
from sordino.language.dp_sgd.training import Processes
from sordino.language.models.loading import quiet
from sordino.language.models.promises import CheckpointPromise
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_SPECIAL

UNITS = 24
LIMIT = 120  # seconds that a process may take to notice that another one is gone
MOST = 480  # seconds that all scenarios may take


def records(n=UNITS):
    """Return n records, the same in every process."""
    words = "the answer is about bread music water paper kind warm clear rude cold".split()  # noqa: SIM905
    coin = np.random.default_rng(0)
    found = []
    for number in range(n):
        first, second = (" ".join(coin.choice(words, 3)) for _ in range(2))
        found.append(
            {"prompt": "tell", "first": f"{first} a", "second": second, "label": number % 2}
        )
    return found


def terms(**changed):
    usual = {"sampling_probability": 0.4, "steps": 4, "expected_batch": 10.0}
    return CentralPrivacy(
        4.0, 1e-5, unit="record", neighbors=ADD_OR_REMOVE_ONE, **{**usual, **changed}
    )


def ledger_at(path, epsilon=1000.0, unit="record", neighbors=ADD_OR_REMOVE_ONE):
    budget = sordino.Guarantee(epsilon, delta=1e-5, unit=unit, neighbors=neighbors, trust="central")
    return sordino.Ledger.open(path, data="test", budget=budget)


def reward_trainer(folder, name, *, rows=None, epsilon=1000.0, args=None, model=None, **more):
    """Return a trainer whose run and ledger are called by a name."""
    quietly = {"save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
    usual = {"learning_rate": 3e-3, "use_cpu": True, **quietly}
    return CentralRewardTrainer(
        str(folder / "model") if model is None else model,
        CentralRewardConfig(str(folder / name), **{**usual, **(args or {})}),
        train_dataset=sordino.read_pairs(rows or records()),
        ledger=ledger_at(folder / f"{name}.db", epsilon),
        **{"privacy": terms(), **more},
    )


def dpo_trainer(folder, name, **more):
    """Return a trainer of adapters on a policy."""
    quietly = {"save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    usual = {"learning_rate": 3e-3, "temperature": 0.3}
    return CentralDPOTrainer(
        str(folder / "model"),
        args=CentralDPOConfig(str(folder / name), **usual, **quietly),
        train_dataset=sordino.read_pairs(records()),
        privacy=terms(),
        ledger=ledger_at(folder / f"{name}.db"),
        peft_config=lora,
        **more,
    )


def trained(trainer, **how):
    with quiet():
        trainer.train(**how)
    return trainer


def weights(trainer):
    """Return all trained weights in a row."""
    trained = [one for one in trainer.model.parameters() if one.requires_grad]
    return torch.cat([one.detach().flatten() for one in trained]).double().numpy()


class Walk(TrainerCallback):
    """Keeps the weights after every step."""

    def __init__(self):
        self.seen = []

    def on_step_end(self, args, state, control, model=None, **_):
        self.seen.append(torch.cat([one.detach().flatten() for one in model.parameters()]).double())


class Stops(TrainerCallback):
    """Stops a run, or has it killed, before or after a step."""

    def __init__(self, step, *, hard=False):
        self.step, self.hard = step, hard

    def on_step_begin(self, args, state, control, **_):
        if self.hard and state.global_step == self.step:
            raise KeyboardInterrupt

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            control.should_training_stop = True


@contextlib.contextmanager
def only_the_first_draws():
    """Count the words of entropy that this process draws, and the noise that it adds."""
    counts = {"words": 0, "noises": 0, "samples": 0}
    changed = [
        (_random.SystemEntropy, "words", "words"),
        (_random.SimulatedEntropy, "words", "words"),
        (steps, "add_gradient_noise", "noises"),
        (steps, "poisson_sample", "samples"),
    ]
    before = [getattr(owner, name) for owner, name, _ in changed]

    def counting(real, kind):
        def call(*given, **named):
            counts[kind] += 1
            return real(*given, **named)

        return call

    for (owner, name, kind), real in zip(changed, before, strict=True):
        setattr(owner, name, counting(real, kind))
    try:
        yield counts
    finally:
        for (owner, name, _), real in zip(changed, before, strict=True):
            setattr(owner, name, real)


@contextlib.contextmanager
def sampled(numbers):
    """Let every step have the same sample."""
    real = steps.poisson_sample
    steps.poisson_sample = lambda *_, **__: list(numbers)
    try:
        yield
    finally:
        steps.poisson_sample = real


def refusal(work):
    """Return type and message of what some work raises."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 (it is compared)
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


# What follows runs in every process; what it returns is written down as JSON.


def same(folder):
    """Two processes draw, clip and move as one."""
    with only_the_first_draws() as counts:
        trainer = trained(reward_trainer(folder, "same", simulate_seed=5))
    return {
        "weights": weights(trainer).tolist(),
        "counts": counts,
        "entries": trainer._promise.release_ids,
        "epsilon": trainer._promise.guarantee.epsilon,
        "wrapped": type(trainer.model_wrapped).__name__,
    }


def unseeded(folder):
    """System entropy is drawn by the first process alone; copies stay the same to the last bit."""
    with only_the_first_draws() as counts:
        trainer = trained(reward_trainer(folder, "unseeded"))
    return {"weights": weights(trainer).tolist(), "counts": counts}


def policy(folder):
    """Likewise for adapters of a policy, with a reference."""
    return {"weights": weights(trained(dpo_trainer(folder, "policy", simulate_seed=6))).tolist()}


def empty_share(folder):
    """The second process has nobody in any step."""
    with sampled([0, 2, 8]):
        trainer = trained(reward_trainer(folder, "empty_share", simulate_seed=5))
    return {"weights": weights(trainer).tolist()}


def walk(folder):
    """Nobody is in any step: what the weights walk is noise."""
    keep = Walk()
    plain = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant"}
    privacy = terms(steps=8)
    with sampled([]):
        trainer = reward_trainer(
            folder, "walk", args=plain, privacy=privacy, callbacks=[keep], simulate_seed=7
        )
        start = torch.cat([one.detach().flatten() for one in trainer.model.parameters()]).double()
        trained(trainer)
    path = torch.stack([start, *keep.seen]).diff(dim=0)
    stated = privacy.noise_multiplier * privacy.clip / privacy.expected_batch
    return {"entries": path.numel(), "mass": float((path / stated).square().sum())}


def canary(folder):
    """One step is played with a worst canary in the share of the second process."""
    from sordino.auditing.training import audit_training

    own, real = [], steps.CentralTraining._own_sum

    def noted(trainer, model, units, bound):
        own.append(len(units))
        return real(trainer, model, units, bound)

    steps.CentralTraining._own_sum = noted
    try:
        trainer = reward_trainer(folder, "canary", simulate_seed=1)
        audit = audit_training(trainer, trials=10_000, simulate_seed=1)
    finally:
        steps.CentralTraining._own_sum = real
    found = next(one for one in audit.findings if one.attack == "worst-canary")
    return {
        "outcomes": {one.attack: one.outcome for one in audit.findings},
        "mu": audit.measured[0].lower,
        "claimed": audit.measured[0].claimed,
        "moved": found.details["moved"],
        "shares": own[10:12],  # with the canary, and without it, after ten sums beside partners
        "unseeded": refusal(lambda: audit_training(trainer)),
    }


def over_budget(folder):
    """The first process cannot pay."""
    trainer = reward_trainer(folder, "over_budget", epsilon=3.9)
    with only_the_first_draws() as counts:
        return {"error": refusal(lambda: trained(trainer)), "counts": counts}


def damaged(folder):
    """The ledger is gone when the first process wants to write it."""
    trainer = reward_trainer(folder, "damaged")
    if Processes.here().number == 0:
        (folder / "damaged.db").unlink()
    with only_the_first_draws() as counts:
        return {"error": refusal(lambda: trained(trainer)), "counts": counts}


def wrong_gradients(folder):
    """The second process alone finds that gradients cannot be clipped."""
    real = steps.refuse_shared_gradients
    trainer = reward_trainer(folder, "wrong_gradients")

    def wrong(*_):
        raise sordino.errors.UsageError("Gradients differ here.")

    if Processes.here().number != 0:
        steps.refuse_shared_gradients = wrong
    try:
        return {"error": refusal(lambda: trained(trainer))}
    finally:
        steps.refuse_shared_gradients = real


def differences(folder):
    """The second process sees something else than the first."""
    other = Processes.here().number != 0
    found = {}
    rows = [dict(row) for row in records()]
    if other:
        rows[5]["label"] = 1 - rows[5]["label"]
    labels = reward_trainer(folder, "labels", rows=rows)
    found["labels"] = refusal(lambda: trained(labels))
    number = reward_trainer(folder, "number", rows=records(UNITS - other))
    found["number"] = refusal(lambda: trained(number))
    model = reward_trainer(folder, "model")
    if other:
        with torch.no_grad():
            next(model.model.parameters())[0, 0] += 1e-6
    found["model"] = refusal(lambda: trained(model))
    rate = reward_trainer(folder, "rate", args={"learning_rate": 1e-3 * (1 + other)})
    found["rate"] = refusal(lambda: trained(rate))
    drifted = reward_trainer(
        folder, "drifted", args={"save_strategy": "steps", "save_steps": 2},
        callbacks=[Drift()] if other else [],
    )  # fmt: skip
    found["drifted"] = refusal(lambda: trained(drifted))
    return found


class Drift(TrainerCallback):
    """Moves the weights of one process."""

    def on_step_end(self, args, state, control, model=None, **_):
        with torch.no_grad():
            next(model.parameters())[0, 0] += 1e-6


def resumed(folder):
    """A run is stopped where a checkpoint stands, and goes on."""
    saving = {"args": {"save_strategy": "steps", "save_steps": 2}, "simulate_seed": 5}
    whole = weights(trained(reward_trainer(folder, "whole", **saving)))
    with contextlib.suppress(KeyboardInterrupt):
        trained(reward_trainer(folder, "resumed", callbacks=[Stops(2, hard=True)], **saving))
    again = trained(reward_trainer(folder, "resumed", **saving), resume_from_checkpoint=True)
    finished = reward_trainer(folder, "resumed", **saving)
    return {
        "whole": whole.tolist(),
        "weights": weights(again).tolist(),
        "entries": again._promise.release_ids,
        "epsilon": again._promise.guarantee.epsilon,
        "finished": refusal(lambda: trained(finished, resume_from_checkpoint=True)),
        "files": sorted(one.name for one in (folder / "resumed" / "checkpoint-4").iterdir()),
    }


def stopped(folder):
    """A callback of one process stops a run, as one that looks at a clock does."""
    first = Processes.here().number == 0
    by_first = reward_trainer(folder, "by_first", callbacks=[Stops(2 if first else 99)])
    by_other = reward_trainer(folder, "by_other", callbacks=[Stops(99 if first else 2)])
    return [trained(one).state.global_step for one in (by_first, by_other)]


def refused(folder):
    """What is not trained by several processes says so before anything is spent."""
    slots = SlotPrivacy(4.0, 1e-5, neighbors=REPLACE_SPECIAL, slots=2, batches=1)

    def people():
        CentralPolicyTrainer(
            str(folder / "model"),
            CentralPolicyConfig(str(folder / "people"), max_completion_length=4, use_cpu=True),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            declare_unread=True,
            train_dataset=[{"person": f"p{at}", "prompt": "tell"} for at in range(2)],
            privacy=slots,
            ledger=ledger_at(folder / "people.db", unit="person", neighbors=REPLACE_SPECIAL),
        )

    found = {"people": refusal(people)}
    wrapped = reward_trainer(folder, "wrapped")
    found["wrapped"] = refusal(
        lambda: wrapped.training_step(torch.nn.parallel.DistributedDataParallel(wrapped.model), {})
    )
    found["fsdp"] = refusal(lambda: reward_trainer(folder, "fsdp", args={"fsdp": True}))
    return found


TOGETHER = (
    same, unseeded, policy, empty_share, walk, canary, over_budget, damaged, wrong_gradients,
    differences, resumed, stopped, refused,
)  # fmt: skip


def together(folder, *names):
    """Run the scenarios as one of two processes, or in two forks; if one fails, both end."""
    if "RANK" in os.environ:
        return run_all(folder, names)
    port = free_port()
    both = [forked(run_as, number, port, folder, names) for number in (0, 1)]
    while alive := [one.sentinel for one in both if one.is_alive()]:
        connection.wait(alive)
        if any(one.exitcode for one in both):
            for one in both:
                one.kill()
                one.join()
    return sys.exit(any(one.exitcode for one in both))


def forked(work, *given):
    """Start a process that has imported all, and knows a noise that takes seconds to find."""
    assert terms().noise_multiplier > 0
    process = multiprocessing.get_context("fork").Process(target=work, args=given)
    process.start()
    return process


def join_as(number, port):
    """Say which of two processes this one is, as a launcher does."""
    os.environ.update(
        RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip


def run_as(number, port, folder, names):
    """Run the scenarios as one of two forks."""
    join_as(number, port)
    run_all(folder, names)


def run_all(folder, names):
    """Run the scenarios, and write what this process found."""
    reward_trainer(folder, "joins")  # the settings of transformers join the processes
    number = Processes.here().number
    for scenario in TOGETHER:
        if scenario.__name__ not in names:
            continue
        started = time.perf_counter()
        found = scenario(folder)
        path = folder / f"{scenario.__name__}-{number}.json"
        path.write_text(json.dumps(found), encoding="utf-8")
        if number == 0:
            print(f"{scenario.__name__}: {time.perf_counter() - started:.1f} s", flush=True)


# Kills: which process, when it calls what for which time.

POINTS = {
    "start": (1, steps.CentralTraining, "train", 1),
    "entry": (0, steps.CentralRun, "pay", 1),
    "sample": (0, steps, "poisson_sample", 1),
    "share": (1, steps.CentralTraining, "_own_sum", 9),
    "noise": (0, steps, "add_gradient_noise", 3),
    "copy": (1, Processes, "copy_first", 2),
    "checkpoint": (0, CheckpointPromise, "write", 1),
}


def doomed(folder, name, number, port):
    """Train as one of two processes, one of which kills itself."""
    join_as(number, port)
    signal.alarm(2 * LIMIT)
    trainer = reward_trainer(folder, name, args={"save_strategy": "steps", "save_steps": 2})
    noise = steps.add_gradient_noise

    def counted(*given, **named):
        noise(*given, **named)
        with (folder / f"{name}.drawn").open("a") as file:
            file.write(".")

    steps.add_gradient_noise = counted
    which, owner, method, time_of = POINTS[name]
    if number == which:
        deadly(owner, method, time_of)
    error = refusal(lambda: trained(trainer))
    (folder / f"{name}-{number}.json").write_text(json.dumps(error), encoding="utf-8")
    os._exit(0 if error[0] == "nothing" else 1)  # as an error that nobody catches


def deadly(owner, method, time_of):
    """Let a call kill this process: before it does anything, but after noise was drawn."""
    real, calls = getattr(owner, method), []

    def call(*given, **named):
        calls.append(1)
        if len(calls) < time_of:
            return real(*given, **named)
        if method == "add_gradient_noise":
            real(*given, **named)
        return os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, method, call)


def free_port():
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def kills(folder):
    """Kill one process of a pair at each point, and write how both ended and how soon."""
    for name in POINTS:
        port = free_port()
        both = [forked(doomed, folder, name, number, port) for number in (0, 1)]
        victim, other = (both[at] for at in (POINTS[name][0], 1 - POINTS[name][0]))
        victim.join(LIMIT)
        noticed = time.perf_counter()
        other.join(LIMIT)
        found = {
            "victim": victim.exitcode,
            "other": other.exitcode,
            "seconds": time.perf_counter() - noticed,
        }
        for one in both:  # nobody is left behind
            one.kill()
            one.join()
        (folder / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(MOST, exit=True)
    {"together": together, "kills": kills}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
