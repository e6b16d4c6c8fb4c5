"""One training run with many canaries: each is put in by a fair coin, and guessed afterwards.

Two attackers guess. One sees the weights before and after the run, and looks at how much better a
canary fits. The other sees what a step releases, its noised gradient and the weights, and looks at
how far every one of them points along the canary's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from sordino import _random, _validate
from sordino.auditing.findings import POWER, Finding, Measurement
from sordino.auditing.statistical.bounds import one_run_cut, one_run_epsilon, split_sizes
from sordino.errors import UsageError
from sordino.privacy.conversions import group_approximate
from sordino.privacy.guarantee import Guarantee, never_less, never_more

from .canaries import Canary, Model, Trainer, Unit, unit_norms

_LEAST: Final = 50
_ATTACKS: Final = 2
_STEP: Final = 0.05  # length of the step along a gradient over which a loss is compared
_LARGEST: Final = 50.0


def _one_run_claim(claim: Guarantee, canaries: Sequence[Canary]) -> tuple[float, float]:
    """Return (epsilon, delta) that a claim promises to every canary's coin."""
    # A canary that is there or not is one change under `ADD_OR_REMOVE_ONE` and under
    # `REPLACE_SPECIAL`. One that is there with this label or with that one is two.
    changes = 1 if all(canary.other is None for canary in canaries) else 2
    return group_approximate(claim.epsilon, claim.delta, changes)


def one_run_findings(
    trainer: Trainer,
    canaries: Sequence[Canary],
    *,
    confidence: float,
    level: float,
    entropy: _random.Entropy,
) -> tuple[tuple[Finding, ...], tuple[Measurement, ...]]:
    """Return what two attackers guess of a run; the run is trained, and paid for, here.

    Guarantee:
        What the run promises covers everything that is looked at: canaries are made up, and the
        rest is computed from what steps release. Nothing is drawn before the trainer's entry on
        its ledger.
    """
    # Source: Steinke, Nasr & Jagielski 2023, Algorithm 1 and Theorem 5.2.
    if len(canaries) < _LEAST:
        raise UsageError(
            f"One run is told apart by at least {_LEAST} canaries, got {len(canaries)}. Nothing "
            "was trained and nothing was audited."
        )
    coins = (entropy.words(len(canaries)) & np.uint64(1)).astype(bool)
    scores = _trained(trainer, canaries, coins)
    claim = _one_run_claim(trainer._run.promise, canaries)  # noqa: SLF001
    needed = 1 - level / _ATTACKS
    told = [
        _judged(name, each, coins, claim, confidence=confidence, needed=needed)
        for name, each in scores.items()
    ]
    return tuple(finding for finding, _ in told), tuple(shown for _, shown in told)


def _detectable_in_one_run(
    claimed: float, canaries: int, guesses: int, *, delta: float, confidence: float
) -> float:
    """Return the smallest epsilon that so many guesses refute with probability .95."""
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    tried = np.arange(_validate.non_negative("claimed", claimed), _LARGEST, 0.05)
    counts = binom.ppf(1 - POWER, guesses, expit(tried)).astype(int)

    def refutes(correct: int) -> bool:
        shown = one_run_epsilon(canaries, guesses, correct, delta=delta, confidence=confidence)
        return shown > claimed

    least = next((right for right in np.unique(counts) if refutes(int(right))), None)
    return math.inf if least is None else float(tried[counts >= least][0])


def _trained(
    trainer: Trainer, canaries: Sequence[Canary], coins: Bool[np.ndarray, " m"]
) -> dict[str, Float[np.ndarray, " m"]]:
    """Train with the canaries that coins choose, and return the scores of both attackers."""
    chosen = [canary[0 if coin else 1] for canary, coin in zip(canaries, coins, strict=True)]
    watcher = _Watcher(trainer, canaries)
    before = watcher.losses()
    own = trainer._units  # noqa: SLF001
    trainer._units = [*own, *(unit for unit in chosen if unit is not None)]  # noqa: SLF001
    trainer.add_callback(watcher)
    try:
        trainer.train()
    finally:
        trainer._units = own  # noqa: SLF001
        trainer.remove_callback(watcher)
    return {"one-run-steps": watcher.seen, "one-run-weights": before - watcher.losses()}


def _judged(
    attack: str,
    scores: Float[np.ndarray, " m"],
    coins: Bool[np.ndarray, " m"],
    claim: tuple[float, float],
    *,
    confidence: float,
    needed: float,
) -> tuple[Finding, Measurement]:
    claimed, delta = claim
    one, other = scores[coins], scores[~coins]
    hits, n, alarms, m = one_run_cut(one, other).counts
    counted = split_sizes(len(one))[1] + split_sizes(len(other))[1]
    guesses, correct = n + m, hits + m - alarms
    lower, sure = (
        one_run_epsilon(counted, guesses, correct, delta=delta, confidence=each)
        for each in (confidence, needed)
    )
    power = _detectable_in_one_run(claimed, counted, guesses, delta=delta, confidence=needed)
    refutes = sure > claimed
    limits = f" An epsilon of {never_less(power, 4)} or more would have been detected."
    if math.isinf(power):
        limits = " Right guesses alone would not have refuted the claim: more canaries are needed."
    at_least, sureness = (sure, needed) if refutes else (lower, confidence)
    finding = Finding(
        attack=attack,
        outcome="refutes" if refutes else "warning" if lower > claimed else "clear",
        summary="Canaries that coins put into the run are guessed: epsilon is at least "
        f"{never_more(at_least, 4)} at {100 * sureness:.6g} % confidence, and "
        f"{never_less(claimed)} is claimed for each.{'' if refutes else limits}",
        details={
            "canaries": len(coins),
            "counted": counted,
            "guesses": guesses,
            "correct": correct,
            "delta": delta,
            "lower_at_verdict": sure,
            "verdict_confidence": needed,
        },
    )
    shown = Measurement(
        metric="epsilon",
        claimed=claimed,
        lower=lower,
        confidence=confidence,
        power=power,
        attack=attack,
    )
    return finding, shown


class _Watcher:
    """Sees what steps release, as a callback of transformers does, and keeps a score of each."""

    def __init__(self, trainer: Trainer, canaries: Sequence[Canary]) -> None:
        self._trainer = trainer
        self._sides = [[canary.one for canary in canaries]]
        if any(canary.other is not None for canary in canaries):
            self._sides.append([canary.other or () for canary in canaries])
        self.seen = np.zeros(len(canaries))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what does nothing, for all other events of transformers."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def on_pre_optimizer_step(self, *_: object, **__: object) -> None:
        """Add up how far the noised gradient points along the gradient of each canary."""
        # What clipping multiplies the gradient of every unit with.
        norms = [unit_norms(self._trainer, units) for units in self._sides]
        bound = self._trainer._privacy.clip  # noqa: SLF001
        factors = [np.minimum(1, bound / np.maximum(norm, 1e-30)) for norm in norms]
        with _moved(self._trainer.model, _STEP):
            ahead = [self._each(units) for units in self._sides]
        with _moved(self._trainer.model, -_STEP):
            behind = [self._each(units) for units in self._sides]
        rises = [f * (a - b) for f, a, b in zip(factors, ahead, behind, strict=True)]
        self.seen += _signed(rises)

    def losses(self) -> Float[np.ndarray, " m"]:
        """Return the loss of every canary as the coin says yes, less that as it says no."""
        return _signed([self._each(units) for units in self._sides])

    def _each(self, units: Sequence[Unit]) -> Float[np.ndarray, " m"]:
        from sordino.language.dp_sgd.clipping import without_dropout  # noqa: PLC0415 (loads torch)

        trainer = self._trainer
        with without_dropout(trainer.model):
            each = [trainer._losses(trainer.model, [unit]).item() for unit in units]  # noqa: SLF001
        return np.asarray(each, dtype=np.float64)


def _signed(sides: Sequence[Float[np.ndarray, " m"]]) -> Float[np.ndarray, " m"]:
    """Return the first of one or two sides, less the second."""
    return np.asarray(sides[0] if len(sides) == 1 else sides[0] - sides[1])


@contextmanager
def _moved(model: Model, length: float) -> Iterator[None]:
    """Move the weights of a model along its gradient for a while."""
    trained = [one for one in model.parameters() if one.requires_grad and one.grad is not None]
    square = sum(float(one.grad.double().square().sum()) for one in trained)
    before = [one.data.clone() for one in trained]
    try:
        for one in trained:
            one.data.add_(one.grad, alpha=length / math.sqrt(max(square, math.ulp(0.0))))
        yield
    finally:
        for one, weights in zip(trained, before, strict=True):
            one.data.copy_(weights)
