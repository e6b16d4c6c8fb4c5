"""Noise on draws: a curator keeps the reward, and each answer that is drawn from it spends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sordino._version import __version__
from sordino.algorithms.draw_calibration import bounded_range_of_draws, settle
from sordino.mechanisms.gibbs import SoftmaxMechanism
from sordino.mechanisms.preference_sensitivity import (
    withheld_record_range,
    withheld_ridge_label_range,
)
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs
from sordino.privacy import accounting
from sordino.privacy.events import BoundedRangeEvent
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.release_checks import refuse_large_delta
from sordino.rewards.withheld import label_rows
from sordino.rewards.withheld_bounds import withheld_caveats

from ._accounts import Limit, describe_draw, future_ledger, open_ledger, spending_limit
from ._align_inputs import Inputs
from ._align_settings import Settings
from ._options import Unit

INTRINSIC_FORMAT = "sordino.intrinsic"
INTRINSIC_VERSION = 1
_SPREAD = 2.0  # between answers whose features have norm 1
_SOLVER = 1 + 1e-6  # what a fit may be off costs less
_EVEN = (0.5, 0.5)


def plan(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return what one draw and all draws would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left for all of them.
        LedgerError: It belongs to other data, or is damaged.
    """
    pairs, told = _raw(inputs), _terms(settings, inputs)
    ledger = future_ledger(settings.ledger_path, settings.data, _limit(settings))
    ledger.check_data(settings.data, _public_digest(settings, pairs))
    one, promise = BoundedRangeEvent(told["per_draw"]["bounded_range"]), _promise(settings, pairs)
    ledger.check(one, promise=promise, count=settings.count)
    epsilon = accounting.composed_epsilon(
        [(one, settings.count)], neighbors=settings.relation, delta=settings.failure
    )
    whole = _promise(settings, pairs, epsilon)
    return {"spend": 0.0, **describe_guarantee_and_caveats(whole), **told}


def open_account(settings: Settings, inputs: Inputs) -> Ledger:
    """Return the ledger that draws will be charged to."""
    del inputs
    return open_ledger(settings.ledger_path, settings.data, _limit(settings))


def describe(settings: Settings, inputs: Inputs, ledger: Ledger) -> dict[str, Any]:
    """Return what ``result.json`` holds: public settings by which draws can be made, no weights."""
    planned = plan(settings, inputs)
    del planned["spend"]
    pairs = _raw(inputs)
    return {
        "format": INTRINSIC_FORMAT,
        "version": INTRINSIC_VERSION,
        "sordino": __version__,
        "noise": settings.noise.value,
        **planned,
        "dimension": settings.dimension,
        "reading": {
            "drop_identical": inputs.drop_identical,
            "person_field": inputs.person_field,
        },
        "data": ledger.data,
        "public_digest": _public_digest(settings, pairs),
    }


def _terms(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return temperature and regularization, and what one draw costs at most, whatever is asked."""
    # Nothing that is hidden enters: of records nothing at all, of labels the public questions.
    longest = _longest(settings, _raw(inputs))

    def range_of(ridge: float) -> float:
        return _widest(settings, ridge, longest) * _SOLVER

    if settings.ridge is not None and settings.asked_temperature is not None:
        ridge, temperature = settings.ridge, settings.asked_temperature
    else:
        ridge, temperature = settle(
            range_of,
            target=bounded_range_of_draws(
                settings.total,
                settings.failure,
                settings.count,
                neighbors=settings.relation,
                adaptive=True,
            ),
            temperature=settings.asked_temperature,
            regularization=settings.ridge,
            name="--ridge",
            usual=settings.temperature,
        )
    size = SoftmaxMechanism(
        temperature, score_range=range_of(ridge), reference=_EVEN, neighbors=settings.relation
    ).bounded_range
    return {
        "temperature": temperature,
        "ridge": ridge,
        "ball": settings.ball,
        "bound": settings.clip if settings.hides_texts else None,
        "draws": settings.count,
        "per_draw": describe_draw(size),
    }


def _widest(settings: Settings, ridge: float, longest: float) -> float:
    """Return the range of the change of the scores for any question at all."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": of one question it may be less,
    # and what a draw is charged is the bound for its own.
    most = 2 * settings.ball * _SPREAD
    if settings.unit is Unit.label:
        return min(most, withheld_ridge_label_range(ridge, spread=_SPREAD, bound=longest))
    changes = 2 if settings.relation is REPLACE_ONE else 1
    once = withheld_record_range(ridge, spread=_SPREAD, bound=longest, ball=settings.ball)
    return min(most, changes * once)


def _longest(settings: Settings, pairs: Pairs) -> float:
    """Return the bound on feature differences: of records it is a setting, of labels public."""
    if settings.unit is Unit.record:
        return settings.clip
    rows, _ = label_rows(pairs, HashedText(dimension=settings.dimension))
    squares = np.asarray((rows**2).sum(axis=1), dtype=np.float64)
    return math.sqrt(float(squares.max(initial=0.0))) or 1.0


def _limit(settings: Settings) -> Limit:
    """Return the limit of a new ledger."""
    return spending_limit(
        settings.total,
        settings.budget,
        unit=settings.unit.whose,
        trust="central",
        delta=settings.failure,
        neighbors=settings.relation,
    )


def _promise(settings: Settings, pairs: Pairs, epsilon: float = 0.0) -> Guarantee:
    """Return a promise of the size, as draws make it."""
    promise = Guarantee(
        epsilon,
        delta=settings.failure,
        unit=settings.unit.whose,
        neighbors=settings.relation,
        trust="central",
        caveats=withheld_caveats(pairs, settings.unit.whose),
    )
    refuse_large_delta(promise, None)
    return promise


def _public_digest(settings: Settings, pairs: Pairs) -> str | None:
    """Return the digest of public questions; None where questions are hidden."""
    return pairs.public_digest if settings.unit is Unit.label else None


def _raw(inputs: Inputs) -> Pairs:
    """Return the raw judgments; reading refused all others."""
    assert isinstance(inputs.pairs, Pairs)  # noqa: S101 - for the type checker
    return inputs.pairs
