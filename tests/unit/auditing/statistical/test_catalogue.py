"""Mechanisms by name: the library's own, and anybody's that can be imported."""

from __future__ import annotations

import sys

import pytest

from sordino.auditing.statistical.distinguishing import build_mechanism
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.base import Mechanism, Repeatable
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.gibbs import ExponentialMechanism
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

OWN = '''
from sordino.mechanisms.randomized_response import RandomizedResponse

coin = RandomizedResponse(0.5)

class Half:
    """No mechanism."""
    event = None

    def release(self, values, *, entropy):
        return values

class Coin(RandomizedResponse):
    def __init__(self):
        super().__init__(1.5)

class Box:
    coin = coin

def make():
    return coin

def broken():
    raise KeyError("a value that nobody should see")

def nothing():
    return None

def leave():
    raise SystemExit(0)

class Moody(Coin):
    @property
    def event(self):
        raise ValueError("a value that nobody should see")

moody = Moody()
number = 3
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_mechanisms.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("1 / 0")
    (tmp_path / "own_leaving.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("own_mechanisms", "own_broken", "own_leaving"):
        sys.modules.pop(name, None)


def imported(name):
    return build_mechanism(name, epsilon=None, delta=0.0, neighbors=REPLACE_ONE)


@pytest.mark.parametrize(
    ("name", "kind", "delta", "unit"),
    [
        ("randomized-response", RandomizedResponse, 0.0, "label"),
        ("gaussian", GaussianMechanism, 1e-6, "record"),
        ("exponential", ExponentialMechanism, 0.0, "record"),
    ],
)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("neighbors", [REPLACE_ONE, REPLACE_SPECIAL])
def test_every_name_makes_a_mechanism_that_keeps_the_promise(
    name, kind, delta, unit, epsilon, neighbors
):
    made = build_mechanism(name, epsilon=epsilon, delta=delta, neighbors=neighbors)
    assert isinstance(made, kind)
    assert isinstance(made, Mechanism)
    assert isinstance(made, Repeatable)
    promise = made.guarantee(unit=unit, neighbors=neighbors, trust="central")
    assert promise.delta <= delta
    assert 0.5 * epsilon < promise.epsilon <= epsilon


def test_a_draw_is_calibrated_for_its_delta():
    pure, approximate = (
        build_mechanism("exponential", epsilon=1.0, delta=delta, neighbors=REPLACE_ONE)
        for delta in (0.0, 0.1)
    )
    assert approximate.temperature < pure.temperature
    assert len(pure.reference) == 2


@pytest.mark.parametrize(
    ("name", "epsilon", "delta", "shown"),
    [
        ("gaussian", 1.0, 0.0, "delta must be above 0 for gaussian"),
        ("randomized-response", 1.0, 1e-6, "delta must be 0 for randomized-response"),
        ("exponential", None, 0.0, "epsilon must be a number"),
        ("exponential", -1.0, 0.0, "epsilon must be finite and greater than 0"),
        ("gaussian", 1.0, 1.5, "delta must be in"),
        ("laplace", 1.0, 0.0, "randomized-response, gaussian, exponential, or give module:"),
    ],
)
def test_what_cannot_be_made_is_refused(name, epsilon, delta, shown):
    with pytest.raises(UsageError, match=shown):
        build_mechanism(name, epsilon=epsilon, delta=delta, neighbors=REPLACE_ONE)


def test_a_relation_that_a_mechanism_refuses_is_refused():
    with pytest.raises(PrivacyError, match="number of answers shows"):
        build_mechanism("randomized-response", epsilon=1.0, delta=0.0, neighbors=ADD_OR_REMOVE_ONE)


@pytest.mark.parametrize(
    ("name", "epsilon"), [("coin", 0.5), ("make", 0.5), ("Box.coin", 0.5), ("Coin", 1.5)]
)
def test_a_mechanism_of_the_working_directory(own, name, epsilon):
    assert imported(f"own_mechanisms:{name}").epsilon == epsilon


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("own_mechanisms:Half", "Half lacks sensitivity, guarantee, worst_case"),
        ("own_mechanisms:number", "int lacks event, sensitivity, guarantee, release, worst_case"),
        ("own_mechanisms:nothing", "NoneType lacks event"),
        ("own_mechanisms:absent", "own_mechanisms has no absent"),
        ("own_mechanisms:broken", r"could not be loaded \(KeyError\)"),
        ("own_mechanisms:leave", r"could not be loaded \(SystemExit\): nothing was audited"),
        ("own_leaving:x", r"could not be loaded \(SystemExit\)"),
        ("sys:exit", r"could not be loaded \(SystemExit\)"),
        ("own_mechanisms:moody", r"could not be loaded \(ValueError\)"),
        ("own_broken:x", r"could not be loaded \(ZeroDivisionError\)"),
        ("own_absent:x", r"could not be loaded \(ModuleNotFoundError\)"),
        ("own_mechanisms:", "is named module:attribute"),
        (":coin", "is named module:attribute"),
        ("../own_mechanisms:coin", "is named module:attribute"),
    ],
)
def test_what_is_no_mechanism_is_refused(own, name, shown):
    with pytest.raises(UsageError, match=shown) as caught:
        imported(name)
    assert "nobody should see" not in str(caught.value)


def test_a_class_that_needs_settings_says_so(own):
    with pytest.raises(UsageError, match=r"could not be loaded \(TypeError\)"):
        imported("sordino.mechanisms.randomized_response:RandomizedResponse")
