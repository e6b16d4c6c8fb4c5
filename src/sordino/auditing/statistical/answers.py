"""What a game showed: every metric's answer, and the verdict on all of them in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from sordino.auditing.findings import Finding, Measurement
from sordino.auditing.statistical.games import Game, Scores
from sordino.auditing.statistical.power import POWER
from sordino.auditing.statistical.thresholds import SELECTION_SHARE, Cut
from sordino.privacy.guarantee import float_to_json, never_less, never_more

__all__ = ["ATTACK", "Answer", "judged"]

ATTACK: Final = "distinguishing-game"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a game showed in one metric: at the confidence reported, and at the verdict's."""

    cut: Cut
    shown: Measurement
    needed: float

    @property
    def refutes(self) -> bool:
        """Return whether the bound that the verdict needs passes the claim."""
        return self.needed > self.shown.claimed

    @property
    def suspicious(self) -> bool:
        """Return whether the bound that is reported does."""
        return self.shown.lower > self.shown.claimed


def judged(
    answers: list[Answer], game: Game, scores: Scores, *, confidence: float, needed: float
) -> Finding:
    """Return the verdict in words, with everything that it rests on."""
    refuting = [answer for answer in answers if answer.refutes]
    suspicious = [answer for answer in answers if answer.suspicious]
    decisive = (refuting or suspicious or answers)[0]
    return Finding(
        attack=ATTACK,
        outcome="refutes" if refuting else "warning" if suspicious else "clear",
        summary=_summary(decisive, game, confidence=confidence, needed=needed)
        + ("" if refuting else _limits(decisive, scores)),
        details={
            "trials": game.trials,
            "selection_share": SELECTION_SHARE,
            "score": scores.score,
            "one_direction": scores.one_direction,
            "randomness": "system" if game.seed is None else "simulated",
            "verdict_confidence": needed,
            "power": POWER,
            "metrics": {answer.shown.metric: _details(answer) for answer in answers},
        },
    )


def _details(answer: Answer) -> dict[str, Any]:
    """Return what one metric rests on, as JSON holds it."""
    detectable = answer.shown.power
    return {
        "event": answer.cut.to_dict(),
        "lower_at_verdict": answer.needed,
        "would_have_refuted": None if detectable is None else float_to_json(detectable),
    }


def _limits(answer: Answer, scores: Scores) -> str:
    """Return what a game that refutes nothing would have missed."""
    shown, told = answer.shown, ""
    if shown.power is not None and math.isfinite(shown.power):
        told += f" {shown.metric} of {never_less(shown.power, 4)} or more would have been detected"
        told += ", less with more trials."
    if scores.one_direction:
        told += " Only one direction of the outputs was looked at: pass score=... for another."
    return told


def _summary(answer: Answer, game: Game, *, confidence: float, needed: float) -> str:
    """Return in one sentence what the decisive metric says."""
    shown = answer.shown
    claimed = f"{shown.metric}={never_less(shown.claimed)}"
    if answer.refutes:
        return (
            f"Two neighboring inputs are told apart as {claimed} does not allow: {shown.metric} is "
            f"at least {never_more(answer.needed, 4)} at {100 * needed:.6g} % confidence."
        )
    if answer.suspicious:
        return (
            f"{shown.metric} is at least {never_more(shown.lower, 4)} at {100 * confidence:g} % "
            f"confidence, above the {claimed} that is claimed, but not at the {100 * needed:.6g} % "
            f"that a verdict needs: run more trials (there were {game.trials} a side)."
        )
    return (
        f"{game.trials} trials a side show {shown.metric} of at least "
        f"{never_more(shown.lower, 4)} at {100 * confidence:g} % confidence; {claimed} is claimed."
    )
