"""Noise on draws: a curator keeps the reward, and each answer that is drawn from it spends."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino._version import __version__
from sordino.algorithms.offline_bandit import bounded_range_of_draws, settle
from sordino.errors import UsageError
from sordino.mechanisms.gibbs import SoftmaxMechanism
from sordino.mechanisms.objective_perturbation import USUAL_RECORDS
from sordino.mechanisms.score_sensitivity import withheld_record_range, withheld_ridge_label_range
from sordino.preferences.features import Matrix
from sordino.preferences.pairs import Pairs
from sordino.privacy import accounting
from sordino.privacy.guarantee import REPLACE_ONE, BoundedRangeEvent, Guarantee, never_less
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.noise_forecast import Picture, of_draws
from sordino.rewards.release_checks import weighed
from sordino.rewards.withheld import label_rows, withheld_caveats

from .align_run import AlignRun
from .run import describe_draw
from .tables import choice_rows, forecast_rows, promise_rows

INTRINSIC_FORMAT = "sordino.intrinsic"
INTRINSIC_VERSION = 1
_SPREAD = 2.0  # between answers whose features have norm 1
_SOLVER = 1 + 1e-6  # what a fit may be off costs less
_EVEN = (0.5, 0.5)


@dataclass(frozen=True, kw_only=True)
class DrawNoise(AlignRun):
    """A run that settles how draws will be made, and releases nothing by itself."""

    @property
    def _pairs(self) -> Pairs:
        assert isinstance(self.inputs.data, Pairs)  # noqa: S101 - for the type checker
        return self.inputs.data

    def picture(self, rows: Matrix) -> Picture:
        """Return the fit that is withheld, and the temperature of draws from it."""
        settings, terms = self.settings, self._terms()
        n = USUAL_RECORDS if settings.hides_texts else len(self._pairs)
        chosen = {name: terms[name] for name in ("ridge", "temperature", "bound")}
        return of_draws(rows, n, **chosen)

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what one draw and all draws would spend; nothing is touched."""
        settings, terms = self.settings, self._terms()
        one = BoundedRangeEvent(terms["per_draw"]["bounded_range"])
        asked = None if settings.hides_texts else self._pairs.questions
        people = None if settings.hides_texts else self._pairs.people()
        planned = self._promise(0.0, ledger)
        ledger.check(one, promise=planned, count=settings.count, questions=asked, people=people)
        epsilon = accounting.composed_epsilon(
            [(one, settings.count)], neighbors=settings.relation, delta=settings.failure
        )
        promise = self._promise(epsilon, ledger)
        return {"spend": 0.0, **describe_guarantee_and_caveats(promise), **terms}

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        """Return a plan in lines."""
        one, promise = plan["per_draw"], promise_rows(plan)
        return forecast_rows(plan) | {
            "spent": "nothing yet: every answer that choose draws spends",
            "each answer": f"epsilon={never_less(one['epsilon'])} at most, whatever is asked",
            f"{plan['draws']:,} answers": promise.pop("guarantee"),
            **promise,
            "policy": f"temperature {plan['temperature']:.6g}, ridge {plan['ridge']:.6g}, ball "
            f"{plan['ball']:g}",
        }

    def rows(self, told: dict[str, Any], ledger: Ledger) -> dict[str, str]:
        """Return what was prepared in lines."""
        del ledger  # nothing was spent
        out = self.settings.out
        rows = choice_rows(told) | self.plan_rows(told)
        return rows | {
            "written": str(out and out / "result.json"),
            "draw with": f"sordino choose {out} PROMPTS --judgments PREFS",
        }

    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Return how draws will be made; nothing is spent, and nothing else leaves."""
        settings, planned = self.settings, self.planned()
        features = self.suited(self.text_features, self._pairs)
        families = getattr(features, "families", None)  # None in comparisons of two answers
        del planned["spend"]
        planned.pop("forecast", None)  # it shows a record
        result = {
            "format": INTRINSIC_FORMAT,
            "version": INTRINSIC_VERSION,
            "sordino": __version__,
            "noise": settings.noise,
            **self._chosen,
            **planned,
            "dimension": settings.text_dimension,
            "reading": settings.reading
            | {"levels": settings.levels, "families": None if families is None else list(families)},
            "data": ledger.data,
            # of public questions; None where questions are hidden
            "public_digest": None if settings.hides_texts else self._pairs.public_digest,
        }
        return result, {}

    def _terms(self) -> dict[str, Any]:
        """Return temperature and ridge, and what one draw costs at most, whatever is asked."""
        # Nothing that is hidden enters: of records nothing at all, of labels the public questions.
        if self.dimension is not None:
            raise UsageError(
                "These are vectors, and with --noise draws answers are chosen, which are texts. "
                "Nothing was done. Use --noise estimate, or --noise labels."
            )
        settings, longest = self.settings, self._longest()

        def range_of(ridge: float) -> float:
            return self._widest(ridge, longest) * _SOLVER

        if settings.ridge is not None and settings.temperature is not None:
            ridge, temperature = settings.ridge, settings.temperature
        else:
            terms = (settings.total, settings.failure, settings.count)
            target = bounded_range_of_draws(*terms, neighbors=settings.relation, adaptive=True)
            ridge, temperature = settle(
                range_of,
                target=target,
                temperature=settings.temperature,
                regularization=settings.ridge,
                name="--ridge",
                usual=settings.policy_temperature,
            )
        size = SoftmaxMechanism(
            temperature, score_range=range_of(ridge), reference=_EVEN, neighbors=settings.relation
        ).bounded_range
        return {
            "temperature": temperature,
            "ridge": ridge,
            "ball": settings.ball,
            "bound": self.clip if settings.hides_texts else None,
            "draws": settings.count,
            "per_draw": describe_draw(size),
        }

    def _widest(self, ridge: float, longest: float) -> float:
        """Return the range of the change of the scores for any question at all."""
        # Source: docs/intrinsic.md, "Withheld rewards of preferences": of one question it may be
        # less, and what a draw is charged is the bound for its own.
        settings, spread = self.settings, _SPREAD
        most = 2 * settings.ball * spread
        if not settings.hides_texts:
            return min(most, withheld_ridge_label_range(ridge, spread=spread, bound=longest))
        changes = 2 if settings.relation is REPLACE_ONE else 1
        once = withheld_record_range(ridge, spread=spread, bound=longest, ball=settings.ball)
        return min(most, changes * once)

    def _longest(self) -> float:
        """Return the bound on feature differences: of records it is a setting, of labels public."""
        settings = self.settings
        if settings.hides_texts:
            return self.clip
        features = self.suited(self.text_features, self._pairs)
        rows, _ = label_rows(self._pairs, features)
        squares = np.asarray((rows**2).sum(axis=1), dtype=np.float64)
        return math.sqrt(float(squares.max(initial=0.0))) or 1.0

    def _promise(self, epsilon: float, ledger: Ledger) -> Guarantee:
        caveats = withheld_caveats(self._pairs, self.settings.unit.whose)
        return weighed(
            replace(self.limit.run, epsilon=epsilon, caveats=caveats), None, ledger.accepted
        )
