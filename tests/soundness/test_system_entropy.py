"""Whoever knows a run's name, inputs and every seed knows no noise: it is the system's.

Each case draws twice in equal state. A source that is seeded from anything but the system repeats
itself, or asks the system for fewer bytes than the draw needs.
"""

import ast
import inspect
import os
import random
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import opendp.measurements
import pytest

import sordino
from sordino import _random
from sordino.mechanisms.gaussian import GaussianMechanism, SecondMoment
from sordino.mechanisms.gibbs import ExponentialMechanism, SoftmaxMechanism
from sordino.mechanisms.label_sum import ChunkedLabels, _Sum
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, RandomizedResponse
from sordino.mechanisms.ranking_sum import BallotGaussian, RankingGaussian
from sordino.mechanisms.regressions.base import RegressionTerms
from sordino.mechanisms.regressions.descent import DescentRegression
from sordino.mechanisms.regressions.gaussian import AdaptiveRegression, GaussianRegression
from sordino.mechanisms.regressions.gibbs import ExponentialRegression, truncated_gaussian
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL

SOURCE = Path(sordino.__file__).parent
N, D = 200, 3  # two equal answers by chance: below 1e-40 wherever they are compared
ROWS = np.random.default_rng(0).normal(size=(N, D))
LABELS = np.arange(N) % 2
PUBLIC = {"feature_bound": 1.5, "target_bound": 2.0, "radius": 3.0, "rows": N}
SLOT = {"neighbors": REPLACE_SPECIAL, "delta": 1e-6}
FLAT = {"reference": (0.5, 0.5), "neighbors": REPLACE_ONE}
NOISE = sordino.LabelGaussian(1.0, delta=1e-6)


def solved(tilt):
    return SimpleNamespace(theta=tilt, gradient_norm=0.0)


def regression(made, entropy):
    return made.repeat(np.column_stack([ROWS, LABELS]), 1, entropy=entropy)


def labels(entropy):
    return NOISE.prepare(ROWS).release(LABELS, entropy=entropy)


def chunked(entropy):
    added = _Sum(np.zeros(D, np.int64), 1, N, 1.0, 1.0)
    shape = NOISE.prepare(ROWS).ellipsoid
    secret = ChunkedLabels(NOISE, shape, added=added, moved=2.0**20)
    return secret.release(entropy=entropy)


def rankings(entropy):
    noise = RankingGaussian(1.0, delta=1e-6, statistic="borda")
    design = noise.prepare(np.eye(3), np.array([0, 3]), slates=np.zeros(50, dtype=int))
    return design.release(np.tile([2, 4, 6], 50), entropy=entropy)


def ballots(entropy):
    noise = BallotGaussian(1.0, delta=1e-6)
    design = noise.prepare(np.tile(np.arange(3), 50), np.arange(0, 151, 3), items=3)
    return design.release(np.tile([1, 2, 0], 50), entropy=entropy)


def objective(entropy):
    made = ObjectivePerturbation(1.0, bound=1.0, **SLOT)
    return made.release(solved, d=D, entropy=entropy)


def ranked(entropy):
    made = RankingObjectivePerturbation(1.0, bound=1.0, candidates=3, dimension=D, **SLOT)
    return made.release(solved, d=D, entropy=entropy)


NOISED = {"moment_deviation": 9.0, "cross_deviation": 9.0}
# class, or function that draws: (one draw, words of the system, numbers that OpenDP noises)
# ranks of three items add up to the same, so that their sum has two directions
CASES = {
    "RandomizedResponse": (
        lambda e: RandomizedResponse(1.0).release(LABELS, entropy=e), N, 0),
    "KaryRandomizedResponse": (
        lambda e: KaryRandomizedResponse(1.0, 4).release(LABELS, entropy=e), 3 * N, 0),
    "ExponentialMechanism": (
        lambda e: ExponentialMechanism(1.0, bound=1.0, **FLAT).repeat(
            np.zeros((1, 2)), N, entropy=e), 2 * N, 0),
    "SoftmaxMechanism": (
        lambda e: SoftmaxMechanism(1.0, score_range=1.0, draws=N, **FLAT).release(
            [0.0, 1.0], entropy=e), 2 * N, 0),
    "GibbsRegression": (
        lambda e: regression(ExponentialRegression().calibrated(
            RegressionTerms(**PUBLIC), 1.0, **SLOT | {"delta": 0.0}), e), D + 1, 0),
    "truncated_gaussian": (
        lambda e: truncated_gaussian(np.eye(D), np.zeros(D), 1.0, entropy=e, size=5), 5 * D, 0),
    "MinimumCount": (
        lambda e: MinimumCount(1.0, delta=1e-6).repeat(np.array([500, 900]), N, entropy=e), N, 0),
    "ObjectivePerturbation": (objective, 2 * D, 0),
    "RankingObjectivePerturbation": (ranked, 2 * D, 0),
    "GaussianMechanism": (
        lambda e: GaussianMechanism.calibrated(
            1.0, delta=1e-6, bound=2.0, neighbors=REPLACE_ONE).release(ROWS, entropy=e), 0, D),
    "SecondMoment": (
        lambda e: SecondMoment(
            50.0, delta=1e-6, bound=2.0, neighbors=REPLACE_ONE
        ).release(ROWS, entropy=e), 0, D * (D + 1) // 2),
    "LabelDesign": (labels, 0, D),
    "RankingDesign": (rankings, 0, 2),
    "BallotDesign": (ballots, 0, 6),  # of three items, and of the three pairs of them
    "ChunkedLabels": (chunked, 0, D),
    "GaussianRegression": (
        lambda e: regression(GaussianRegression(**PUBLIC, **SLOT, **NOISED), e), 0, 9),
    "AdaptiveRegression": (
        lambda e: regression(
            AdaptiveRegression(**PUBLIC, **SLOT, **NOISED, eigenvalue_deviation=9.0), e), 0, 10),
    "DescentRegression": (
        lambda e: regression(DescentRegression(
            **PUBLIC, **SLOT, standard_deviation=20.0, prediction_bound=2.0), e), 0, D),
}  # fmt: skip
EXCEPT = {  # classes that can release, and why they have no row of their own
    "Mechanism": "a protocol", "Repeated": "abstract", "Answers": "abstract", "_Coin": "abstract",
    "DesignedSum": "abstract", "Tilt": "abstract", "Draws": "abstract",
    "Repeatable": "a protocol", "_HiddenSum": "abstract",
    "_BallProposal": "ExponentialRegression draws by it", "LeastSquares": "abstract",
    "PlayedRegression": "abstract",
    "NonPrivate": "promises nothing", "PlainRegression": "promises nothing",
    "BestCandidate": "promises nothing",
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """Count the bytes that the system gives, and the numbers that OpenDP noises."""
    seen = {"bytes": 0, "numbers": 0}
    system, make = os.urandom, opendp.measurements.make_gaussian

    def urandom(n):
        seen["bytes"] += n
        return system(n)

    def make_gaussian(*space, **terms):
        measure = make(*space, **terms)

        def drawn(numbers):
            seen["numbers"] += len(numbers)
            return measure(numbers)

        return drawn

    monkeypatch.setattr(os, "urandom", urandom)
    monkeypatch.setattr(opendp.measurements, "make_gaussian", make_gaussian)
    monkeypatch.setattr(_random, "new_release_id", lambda: "0" * 16)
    monkeypatch.setattr(_random.time, "time", lambda: 0.0)
    return seen


def drawn_twice(draw, asked):
    """Draw twice in equal state; return both draws and what each asked of the system."""
    found = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - a source that hangs on it must be seen
        asked.update(bytes=0, numbers=0)
        found.append((np.array(draw()), dict(asked)))
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_draw_is_the_systems(name, asked):
    draw, words, numbers = CASES[name]
    (one, first), (other, second) = drawn_twice(lambda: draw(_random.entropy(None)), asked)
    assert not np.array_equal(one, other)
    for seen in (first, second):
        assert seen["bytes"] >= 8 * words
        assert seen["numbers"] >= numbers


def test_every_mechanism_is_in_the_table():
    modules = [
        import_module(".".join(("sordino", *path.relative_to(SOURCE).with_suffix("").parts)))
        for path in (SOURCE / "mechanisms").rglob("*.py")
    ]
    found = {
        name
        for module in modules
        for name, known in vars(module).items()
        if isinstance(known, type) and known.__module__ == module.__name__
        if any(
            "entropy" in inspect.signature(method).parameters
            for method in (getattr(known, "release", object.__init__), *vars(known).values())
            if inspect.isfunction(method)
        )
    }
    assert found == (CASES.keys() - {"truncated_gaussian"}) | EXCEPT.keys()


FROM_SEEDS = {  # the only places that make a stream of something else, and of what
    ("_random.py", "SimulatedEntropy", "int.from_bytes(digest[:16], 'big')"),  # a seed and a part
    ("auditing/statistical/distinguishing.py", "SimulatedEntropy", "seed"),  # of a task: its part
    ("algorithms/user_slots.py", "SimulatedEntropy", "self._seeds[number][which]"),  # of a seed
    # The next one is tested below.
    ("language/dp_sgd/training.py", "SimulatedEntropy", "int.from_bytes(words[:8])"),
    # The next two compute from what was released: a split of it, and quantiles of its intervals.
    ("rewards/evidence.py", "SimulatedEntropy", "int.from_bytes(digest[:8], 'big')"),
    ("rewards/leaderboard.py", "SimulatedEntropy", "0"),
    ("cli/_language_study.py", "entropy", "drawn"),  # settings.simulate_seed
    ("runs/optimize_run.py", "entropy", "0"),  # a made-up world, by public numbers alone
}
MAKERS = {"entropy", "entropy_of_part", "SimulatedEntropy"}
GIVEN = {
    "None", "simulate_seed", "settings.simulate_seed", "self.settings.simulate_seed",
    "self.simulate_seed", "self.seed", "run.simulate_seed",
}  # fmt: skip


def test_no_spender_makes_its_source_of_anything_but_the_system_or_a_stated_seed():
    """Whoever spends hands on what one of these calls returns, or makes one of them itself."""
    others = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        if not any(f"{maker}(" in text for maker in MAKERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in MAKERS and (made := ast.unparse(node.args[0])) not in GIVEN:
                    others.add((path.relative_to(SOURCE).as_posix(), name, made))
    assert others == FROM_SEEDS


# --- training of language models: equal run, step, inputs and seeds ----------------------------


@pytest.mark.parametrize("part", ["sample", "noise", "answers"])
def test_central_training_draws_from_the_system(part, asked):
    pytest.importorskip("trl", reason="the extra 'language' is not installed")
    import torch

    from sordino.language.dp_sgd.training import CentralTraining
    from sordino.language.user_level import CentralPolicyTrainer

    first = SimpleNamespace(from_first=lambda _, work: work(), copy_first=lambda _: None)
    terms = SimpleNamespace(
        sampling_probability=0.5, noise_multiplier=1.0, clip=1.0, expected_batch=N / 2
    )
    run = SimpleNamespace(
        _seed=None, _run=SimpleNamespace(name="run"),
        _privacy=terms, _units=range(N), _processes=first,
    )  # fmt: skip
    run._entropy = lambda name: CentralTraining._entropy(run, name)

    def draw():
        torch.manual_seed(0)
        if part == "answers":
            return CentralPolicyTrainer._coins(run, 0).words(N)
        entropy = CentralTraining._entropy(run, 3)
        if part == "sample":
            taken = np.zeros(N)
            taken[CentralTraining._drawn(run, entropy)] = 1
            return taken
        sums = [torch.zeros(N, dtype=torch.float64)]
        CentralTraining._add_noise(run, sums, entropy)
        return sums[0].numpy()

    (one, before), (other, after) = drawn_twice(draw, asked)
    assert not np.array_equal(one, other)
    assert min(before["bytes"], after["bytes"]) >= 8 * N
