"""A distinguishing game: what it asks, what it says, and when it refutes."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import sordino
from sordino._random import SimulatedEntropy
from sordino.auditing.statistical.distinguishing import _says_of_itself, audit_mechanism
from sordino.errors import AuditRefuted, PrivacyError, UsageError
from sordino.mechanisms.base import Mechanism, Repeatable, WorstCase
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.gibbs import ExponentialMechanism
from sordino.mechanisms.randomized_response import NonPrivate, RandomizedResponse
from sordino.privacy.conversions import bounded_range_for, gaussian_mu
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    PureEvent,
    never_less,
)

LABEL = {"unit": "label", "neighbors": REPLACE_ONE, "trust": "central"}
RECORD = {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE, "trust": "central"}
SEEDED = {"trials": 4000, "simulate_seed": 1}


@dataclass(frozen=True)
class Laplace:
    """A mechanism of somebody else: no repeat, no log-ratio, numbers for outputs."""

    epsilon: float
    factor: float = 1.0

    @property
    def event(self):
        return PureEvent(self.epsilon)

    def sensitivity(self, neighbors):
        return 1.0

    def guarantee(self, *, unit, neighbors, trust):
        return Guarantee(self.epsilon, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def release(self, values, *, entropy):
        words = (entropy.words(2).astype(float) + 0.5) * 2.0**-64
        noise = np.log(words[0] / words[1]) * self.factor / self.epsilon
        return np.array([values.sum() + noise, 7.0])

    def worst_case(self, neighbors):
        return WorstCase(np.array([1.0]), np.array([0.0]))


class LouderCoin(RandomizedResponse):
    """A coin whose ``release`` alone was spoiled: half the noise."""

    def release(self, values, *, entropy):
        return RandomizedResponse(2 * self.epsilon).release(values, entropy=entropy)


def test_a_coin_keeps_its_claim():
    audit = audit_mechanism(RandomizedResponse(1.0), **LABEL, **SEEDED)
    (measured,) = audit.measured
    assert audit.verdict == "not refuted"
    assert (audit.kind, audit.subject) == ("mechanism", "RandomizedResponse")
    assert (measured.metric, measured.confidence) == ("epsilon", 0.95)
    assert 0.8 < measured.lower < measured.claimed < measured.power < 1.4
    assert audit.lower_bound == measured.lower
    (found,) = audit.findings
    assert (found.attack, found.outcome) == ("distinguishing-game", "clear")
    assert "4000 trials a side show that epsilon is at least 0.9" in found.summary
    seen = f"{never_less(measured.power, 4)} or more would have been detected, less with more"
    assert seen in found.summary
    # Details say what the verdict rests on.
    details = json.loads(json.dumps(audit.to_dict()))["findings"][0]["details"]
    metric = details.pop("metrics")["epsilon"]
    assert details == {
        "trials": 4000, "selection_share": 0.2, "score": "log-ratio", "one_direction": False,
        "randomness": "simulated", "verdict_confidence": 0.999, "power": 0.95,
    }  # fmt: skip
    assert metric["event"]["one"][1] == metric["event"]["other"][1] == 3200
    assert 0 < metric["lower_at_verdict"] < measured.lower
    assert metric["would_have_refuted"] == measured.power


def test_a_seed_repeats_an_audit_and_marks_it():
    once, again = (audit_mechanism(RandomizedResponse(1.0), **LABEL, **SEEDED) for _ in range(2))
    assert once.to_dict() == again.to_dict()
    assert once.claim.simulated
    for seed in (2, 2**63 - 1):  # the largest; of it tasks have larger ones
        other = audit_mechanism(
            RandomizedResponse(1.0), **LABEL, **SEEDED | {"simulate_seed": seed}
        )
        assert other.measured[0].lower != once.measured[0].lower
    free = audit_mechanism(RandomizedResponse(1.0), **LABEL, trials=1000)
    assert not free.claim.simulated
    assert free.findings[0].details["randomness"] == "system"


def test_half_the_noise_of_a_coin_is_refuted():
    audit = audit_mechanism(LouderCoin(1.0), **LABEL, **SEEDED)
    assert audit.refuted_by == ("distinguishing-game",)
    assert audit.measured[0].lower > 1.5
    assert "told apart as is not allowed: epsilon is at least" in audit.findings[0].summary
    with pytest.raises(AuditRefuted, match="LouderCoin"):
        audit.require()


def test_what_a_subclass_releases_is_played_and_not_what_it_inherits():
    assert _says_of_itself(RandomizedResponse(1.0), "repeat")
    assert not _says_of_itself(LouderCoin(1.0), "repeat")
    assert not _says_of_itself(LouderCoin(1.0), "log_ratio")
    assert not _says_of_itself(Laplace(1.0), "repeat")
    found = audit_mechanism(LouderCoin(1.0), **LABEL, trials=500).findings[0]
    assert found.details["score"] == "learned"

    class Encoded(RandomizedResponse):  # answers that no inherited log-ratio can read
        def release(self, values, *, entropy):
            return np.array([5.0, -3.0 * values[0]])

    assert audit_mechanism(Encoded(1.0), **LABEL, trials=500).refuted


def test_neither_a_proof_nor_a_verification_is_ever_claimed():
    shown = [
        str(audit_mechanism(coin, **LABEL, trials=500, simulate_seed=0).to_dict()).lower()
        for coin in (RandomizedResponse(1.0), LouderCoin(1.0), NonPrivate())
    ]
    assert not any(word in text for text in shown for word in ("prove", "proof", "verif"))


def test_an_infinite_claim_cannot_be_refuted():
    audit = audit_mechanism(NonPrivate(), **LABEL)
    assert (audit.verdict, audit.measured) == ("cannot tell", ())
    assert "promises nothing" in audit.reasons[0]
    assert audit.findings[0].outcome == "skipped"
    assert "promises nothing" in audit.findings[0].summary


def test_no_noise_is_refuted_at_any_finite_claim():
    claim = Guarantee(5.0, delta=1e-6, **LABEL)
    assert audit_mechanism(NonPrivate(), **LABEL, claim=claim).refuted


def test_a_larger_claim_is_kept_and_a_smaller_one_refuted():
    coin = RandomizedResponse(2.0)
    larger = audit_mechanism(coin, **LABEL, **SEEDED, claim=Guarantee(3.0, delta=0.0, **LABEL))
    smaller = audit_mechanism(coin, **LABEL, **SEEDED, claim=Guarantee(1.0, delta=0.0, **LABEL))
    assert (larger.refuted, smaller.refuted) == (False, True)
    assert smaller.measured[0].claimed == 1.0


def test_delta_pays_for_what_happens_rarely():
    """A mechanism that tells all with probability .02 keeps (0, .02) and breaks (0, .005)."""

    class Slip(Laplace):
        def release(self, values, *, entropy):
            slipped = entropy.words(1)[0] < np.uint64(2**64 // 50)
            return values if slipped else np.array([0.5])

    kept, broken = (Guarantee(0.1, delta=delta, **LABEL) for delta in (0.02, 0.005))
    assert not audit_mechanism(Slip(1.0), **LABEL, **SEEDED, claim=kept).refuted
    assert audit_mechanism(Slip(1.0), **LABEL, **SEEDED, claim=broken).refuted


def test_a_bound_that_is_not_sure_enough_is_a_warning():
    # the bounds are about .035 (.95) and .059 (.999) below an estimate of 1.047 ± .014
    coin, claim = RandomizedResponse(1.047), Guarantee(1.0, delta=0.0, **LABEL)
    found = [
        audit_mechanism(coin, **LABEL, claim=claim, simulate_seed=seed).findings[0]
        for seed in range(6)
    ]
    warned = [one for one in found if one.outcome == "warning"]
    assert len(warned) >= 2
    assert "run more than 20000 trials a side" in warned[0].summary


def test_gaussian_noise_is_measured_in_mu_first():
    noise = GaussianMechanism.calibrated(1.0, delta=1e-5, bound=1.0, neighbors=ADD_OR_REMOVE_ONE)
    audit = audit_mechanism(noise, **RECORD, **SEEDED)
    mu, epsilon = audit.measured
    assert [mu.metric, epsilon.metric] == ["mu", "epsilon"]
    assert mu.claimed == pytest.approx(gaussian_mu(1.0, 1e-5), rel=1e-8)
    assert 0 < mu.lower < mu.claimed < mu.power
    assert epsilon.claimed == pytest.approx(1.0)
    assert 1.0 < epsilon.power < 4.0
    assert audit.findings[0].details["verdict_confidence"] == 1 - 1e-3 / 2


@pytest.mark.parametrize("neighbors", [ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL])
def test_the_claim_is_about_the_relation_that_is_audited(neighbors):
    """The event is about adding a record; replacing one moves the sum twice as far."""
    noise = GaussianMechanism.calibrated(1.0, delta=1e-5, bound=1.0, neighbors=ADD_OR_REMOVE_ONE)
    asked = RECORD | {"neighbors": neighbors}
    audit = audit_mechanism(noise, **asked, simulate_seed=0)
    assert not audit.refuted
    assert audit.measured[0].claimed == pytest.approx(noise.mu(neighbors), rel=1e-6)
    assert audit.measured[0].lower > 0.6 * audit.measured[0].claimed


def test_a_pure_claim_of_gaussian_noise_is_refuted():
    noise = GaussianMechanism(1.0, bound=1.0, neighbors=ADD_OR_REMOVE_ONE, delta=1e-5)
    claim = Guarantee(50.0, delta=0.0, **RECORD)
    audit = audit_mechanism(noise, **RECORD, **SEEDED, claim=claim)
    assert (audit.measured[0].claimed, audit.refuted) == (0.0, True)


def test_one_person_is_audited_as_one_person():
    noise = GaussianMechanism(
        4.0, bound=1.0, neighbors=ADD_OR_REMOVE_ONE, delta=1e-5, records_per_person=3
    )
    person = RECORD | {"unit": "person"}
    audit = audit_mechanism(noise, **person, **SEEDED)
    assert not audit.refuted
    assert audit.measured[0].claimed == pytest.approx(0.75, rel=1e-5)
    with pytest.raises(UsageError, match="nothing was played"):
        audit_mechanism(noise, **person | {"unit": "record", "neighbors": REPLACE_ONE}, **SEEDED)


def test_a_draw_is_measured_as_a_move_of_the_odds():
    choice = ExponentialMechanism.calibrated(
        1.0, delta=0.0, bound=1.0, reference=(0.5, 0.5), neighbors=REPLACE_ONE
    )
    asked = RECORD | {"neighbors": REPLACE_ONE}
    audit = audit_mechanism(choice, **asked, **SEEDED)
    moved, epsilon = audit.measured
    assert [moved.metric, epsilon.metric] == ["bounded range", "epsilon"]
    assert moved.claimed == pytest.approx(1.0)
    assert 0.6 < moved.lower < 1.0
    assert epsilon.power == pytest.approx(moved.power)
    assert not audit.refuted


def test_an_approximate_claim_about_a_draw_permits_the_range_that_keeps_it():
    choice = ExponentialMechanism.calibrated(
        1.0, delta=0.1, bound=1.0, reference=(0.5, 0.5), neighbors=REPLACE_ONE
    )
    asked = RECORD | {"neighbors": REPLACE_ONE}
    claim = Guarantee(1.0, delta=0.1, **asked)
    audit = audit_mechanism(choice, **asked, **SEEDED, claim=claim)
    assert audit.measured[0].claimed == bounded_range_for(1.0, 0.1) > 1.5
    assert audit.measured[0].lower > 1.0
    assert not audit.refuted
    assert audit.measured[1].power == pytest.approx(
        sordino.privacy.conversions.bounded_range_composition_epsilon(
            0.1, audit.measured[0].power, 1
        )
    )


# Mechanisms of other people.


def test_a_mechanism_that_only_releases_is_told_apart_by_what_is_learned():
    assert isinstance(Laplace(1.0), Mechanism)
    assert not isinstance(Laplace(1.0), Repeatable)
    kept = audit_mechanism(Laplace(1.0), **RECORD, **SEEDED)
    broken = audit_mechanism(Laplace(1.0, factor=0.5), **RECORD, **SEEDED)
    assert kept.findings[0].details["score"] == "learned"
    assert 0.7 < kept.measured[0].lower < 1.0
    assert (kept.refuted, broken.refuted) == (False, True)
    counted = kept.findings[0].details["metrics"]["epsilon"]["event"]["one"][1]
    assert (
        counted == 4000 * 9 // 10 * 8 // 10
    )  # a tenth taught the score, a fifth of the rest chose


def test_a_learned_direction_says_that_it_is_one():
    (found,) = audit_mechanism(Laplace(1.0), **RECORD, **SEEDED).findings
    assert found.details["one_direction"] is True
    assert "Only one direction of the outputs was looked at" in found.summary
    (few,) = audit_mechanism(LouderCoin(0.5), **LABEL, **SEEDED).findings
    assert (few.details["score"], few.details["one_direction"]) == ("learned", False)
    assert "direction" not in few.summary
    assert "would have been detected" not in few.summary  # it was


def raising(error):
    def raises(*_, **__):
        raise error

    return raises


def length(count):
    return lambda self, values, *, entropy: np.zeros(1 + int(count(values, entropy)))


HIDDEN = ValueError("a value that nobody should see")
AUDITED = "nothing was audited"
MISBEHAVING = {  # what a member does, of a coin or of somebody's own mechanism, and what is said
    "Leaving": (Laplace, "release", raising(SystemExit(0)), f"raised SystemExit; {AUDITED}"),
    "Raising": (Laplace, "release", raising(HIDDEN), f"raised ValueError; {AUDITED}"),
    "Texts": (Laplace, "release", lambda *_, **__: np.array(["a text"]), "got dtype <U6; nothing"),
    "Nothing": (Laplace, "release", lambda *_, **__: None, "got dtype object; nothing was"),
    "Longer": (Laplace, "release", length(lambda _, e: e.words(1)[0] % 2), "arrays of one shape"),
    "LongerOnOne": (Laplace, "release", length(lambda v, _: v[0]), "arrays of one shape; nothing"),
    "NotANumber": (Laplace, "release", lambda *_, **__: np.array([np.nan]), "returned NaN"),
    "NoCase": (Laplace, "worst_case", lambda *_: None, "must return a WorstCase, got NoneType"),
    "NoPromise": (Laplace, "guarantee", lambda *_, **__: None, "must return a Guarantee, got None"),
    "RaisingEvent": (
        Laplace,
        "event",
        property(raising(KeyError("x"))),
        "raised KeyError; nothing",
    ),
    "FewRows": (
        *(RandomizedResponse, "repeat", lambda self, _, n, *, entropy: np.zeros((n - 1, 1), int)),
        "must return 200 rows, got shape",
    ),
    "RaisingRatio": (
        *(RandomizedResponse, "log_ratio", raising(SystemExit())),
        f"raised SystemExit; {AUDITED}",
    ),
    "RatioOfNothing": (
        *(RandomizedResponse, "log_ratio", lambda _, outputs, __: np.full(len(outputs), np.nan)),
        "must return one number for each of 200 outputs",
    ),
}


@pytest.mark.parametrize("kind", MISBEHAVING)
def test_a_mechanism_that_misbehaves_is_named_and_nothing_is_audited(kind):
    base, member, does, shown = MISBEHAVING[kind]
    mechanism = type(kind, (base,), {member: does})(1.0)
    with pytest.raises(UsageError, match=f"^{member} .*{re.escape(shown)}") as caught:
        audit_mechanism(mechanism, **LABEL, trials=200)
    assert "nobody should see" not in str(caught.value)


def test_a_shape_that_changes_after_the_score_was_learned():
    """Two shapes, which only tasks after those that taught the score show."""
    tasks = []

    class LongerLater(Laplace):
        def release(self, values, *, entropy):
            return np.append(super().release(values, entropy=entropy), [0.0] * (len(tasks) > 2))

    with pytest.raises(UsageError, match="release must return arrays of one shape"):
        audit_mechanism(
            LongerLater(1.0), **RECORD, trials=2000, progress=lambda *_: tasks.append(1)
        )
    assert len(tasks) == 3


@pytest.mark.parametrize("processes", [1, 2])
def test_leaving_the_interpreter_is_no_verdict(own_module, processes):
    with pytest.raises(UsageError, match="release of Leaver raised SystemExit"):
        audit_mechanism(own_module.Leaver(1.0), **LABEL, trials=200, processes=processes)


def test_being_told_to_stop_is_no_fault_of_the_mechanism():
    class Stopped(Laplace):
        def release(self, values, *, entropy):
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        audit_mechanism(Stopped(1.0), **RECORD, trials=200)


def test_infinite_outputs_are_told_apart_like_large_ones():
    class Endless(Laplace):
        def release(self, values, *, entropy):
            drawn = super().release(values, entropy=entropy)
            return np.where(drawn > 3, np.inf, np.where(drawn < -3, -np.inf, drawn))

    audit = audit_mechanism(Endless(1.0), **RECORD, **SEEDED)
    assert (audit.refuted, audit.findings[0].details["one_direction"]) == (False, True)


def test_a_score_of_the_user_is_used():
    audit = audit_mechanism(Laplace(1.0), **RECORD, **SEEDED, score=lambda rows: -rows[:, 0])
    assert audit.findings[0].details["score"] == "given"
    assert 0.7 < audit.measured[0].lower < 1.0
    blind = audit_mechanism(Laplace(1.0), **RECORD, **SEEDED, score=lambda rows: rows[:, 1])
    assert blind.measured[0].lower == 0


@pytest.mark.parametrize(
    "score", [lambda rows: rows, lambda rows: rows[:, 0] * np.nan, lambda rows: ["a"] * len(rows)]
)
def test_a_score_that_is_none_is_refused(score):
    with pytest.raises(UsageError, match="score must return one number"):
        audit_mechanism(Laplace(1.0), **RECORD, trials=200, score=score)


def test_progress_counts_both_sides():
    seen = []
    for mechanism in (RandomizedResponse(1.0), Laplace(1.0)):
        audit_mechanism(
            mechanism, **LABEL, trials=2500, progress=lambda done, total: seen.append((done, total))
        )
        assert [total for _, total in seen] == [5000] * len(seen)
        done = [done for done, _ in seen]
        assert done == sorted(done)
        assert done[-1] == 5000
        seen.clear()


OWN = """
import sys
from sordino.mechanisms.randomized_response import RandomizedResponse

class Own(RandomizedResponse):
    def release(self, values, *, entropy):
        return RandomizedResponse(2 * self.epsilon).release(values, entropy=entropy)

class Leaver(RandomizedResponse):
    def release(self, values, *, entropy):
        sys.exit(0)
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_coins.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("own_coins")
    sys.modules.pop("own_coins")


def test_several_processes_play_the_same_game(own_module):
    asked = {**LABEL, "trials": 2200, "simulate_seed": 3}
    alone = audit_mechanism(own_module.Own(1.0), **asked)
    together = audit_mechanism(own_module.Own(1.0), **asked, processes=2)
    assert together.to_dict() == alone.to_dict()
    assert together.refuted


def test_a_mechanism_that_cannot_be_sent_is_refused_before_anything_is_played():
    class Local(Laplace):
        pass

    with pytest.raises(UsageError, match=r"Local cannot be sent to another process .* processes=1"):
        audit_mechanism(Local(1.0), **RECORD, trials=200, processes=2)


def test_every_task_has_a_stream_of_its_own():
    class Words(Laplace):
        def release(self, values, *, entropy):
            return entropy.words(1).astype(float)

    seen = []

    def score(rows):
        seen.append(rows.ravel())
        return rows[:, 0]

    audit_mechanism(Words(1.0), **RECORD, trials=3000, simulate_seed=5, score=score)
    drawn = np.concatenate(seen)
    assert len(np.unique(drawn)) == len(drawn) == 6000
    assert SimulatedEntropy(5).words(1).astype(float)[0] not in drawn


# Refusals.


def test_a_relation_that_a_mechanism_refuses_is_refused():
    with pytest.raises(PrivacyError, match="number of answers shows"):
        audit_mechanism(RandomizedResponse(1.0), **LABEL | {"neighbors": ADD_OR_REMOVE_ONE})
    with pytest.raises(PrivacyError, match="one label at a time"):
        audit_mechanism(RandomizedResponse(1.0), **LABEL | {"unit": "record"})


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("unit", "record", "'record'"),
        ("neighbors", REPLACE_SPECIAL, "REPLACE_SPECIAL"),
        ("trust", "local", "'local'"),
    ],
)
def test_a_claim_about_something_else_is_refused(name, value, shown):
    claim = Guarantee(1.0, delta=0.0, **LABEL | {name: value})
    with pytest.raises(UsageError, match=f"claim is about {name}={shown} and the audit is about"):
        audit_mechanism(RandomizedResponse(1.0), **LABEL, claim=claim)


@pytest.mark.parametrize(
    "setting",
    [
        {"trials": 99},
        {"trials": 1000.0},
        {"confidence": 0.0},
        {"level": 1.0},
        {"processes": 0},
        {"simulate_seed": -1},
    ],
)
def test_settings_are_checked(setting):
    (name,) = setting
    with pytest.raises(UsageError, match=name):
        audit_mechanism(RandomizedResponse(1.0), **LABEL, **setting)
