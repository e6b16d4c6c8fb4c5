"""The central way: a curator reads raw judgments and releases one noised estimate of them."""

from __future__ import annotations

import math
from typing import Any

from sordino.cli._accounts import Limit, future_ledger, open_ledger, spending_limit, with_spend
from sordino.cli._central_labels import learn_from_labels
from sordino.cli._central_records import learn_from_records
from sordino.cli._inputs import Inputs, Learned
from sordino.cli._noise import Noise
from sordino.cli._settings import Settings
from sordino.errors import BudgetExceeded
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee, merge
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.label_release import label_promise
from sordino.rewards.paid_metrics import held_out_rows, refuse_one_sided
from sordino.rewards.record_checks import record_promise
from sordino.rewards.release_checks import entropy_of

__all__ = [
    "check_spends",
    "learn",
    "open_account",
    "opened_ledger",
    "plan",
    "planned_ledger",
    "promise_together",
]


def plan(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
        DataError: Nothing could be held out for metrics.
    """
    pairs = _raw(inputs)
    noise = Noise.of(settings, pairs)
    ledger = planned_ledger(settings, noise)
    if noise.metrics is not None and not settings.hides_texts:
        refuse_one_sided(held_out_rows(pairs))
    promise = _promise(settings, pairs, noise, ledger)
    check_spends(noise, ledger, promise)
    counted = settings.relation != ADD_OR_REMOVE_ONE
    return {
        "spend": promise.epsilon,
        "pairs": len(pairs) + (pairs.dropped if settings.hides_texts else 0) if counted else None,
        "dropped_identical": None if settings.hides_texts else pairs.dropped,
        "mechanism": noise.describe(),
        "metrics": noise.describe_metrics(),
        **describe_guarantee_and_caveats(promise),
    }


def open_account(settings: Settings, inputs: Inputs) -> Ledger:
    """Return the ledger of a run."""
    return opened_ledger(settings, Noise.of(settings, _raw(inputs)))


def learn(settings: Settings, inputs: Inputs, ledger: Ledger) -> Learned:
    """Return what one noised estimate teaches."""
    pairs = _raw(inputs)
    noise = Noise.of(settings, pairs)
    if settings.hides_texts:
        return learn_from_records(settings, pairs, noise, ledger, public=inputs.public)
    return learn_from_labels(settings, pairs, noise, ledger, public=inputs.public)


def _raw(inputs: Inputs) -> Pairs:
    """Return the raw judgments; reading refused all others."""
    assert isinstance(inputs.pairs, Pairs)  # noqa: S101 - for the type checker
    return inputs.pairs


def planned_ledger(settings: Settings, noise: Noise) -> Ledger:
    """Return the ledger of a run as it would be, for planning: nothing on disk is touched."""
    limit = _limit(settings, noise)
    ledger = future_ledger(settings.ledger_path, settings.data, limit, request=settings.request)
    ledger.check_data(settings.data, None)
    return ledger


def opened_ledger(settings: Settings, noise: Noise) -> Ledger:
    """Return the ledger of a run, made if there is none."""
    limit = _limit(settings, noise)
    return open_ledger(settings.ledger_path, settings.data, limit)


def check_spends(noise: Noise, ledger: Ledger, promise: Guarantee) -> None:
    """Refuse what a ledger has no room for.

    Raises:
        BudgetExceeded: It has not enough left.
    """
    after = with_spend(ledger, noise.estimate.event, promise)
    if noise.metrics is not None:
        with_spend(after, noise.metrics.event, promise)


def _limit(settings: Settings, noise: Noise) -> Limit:
    """Return the limit of a new ledger: what this run spends."""
    return spending_limit(
        noise.epsilon(settings),
        settings.budget,
        unit=settings.unit.whose,
        trust="central",
        delta=settings.failure,
        neighbors=settings.relation,
    )


def _promise(settings: Settings, pairs: Pairs, noise: Noise, ledger: Ledger) -> Guarantee:
    """Return what everything together would promise."""
    entropy = entropy_of(settings.simulate_seed)
    if isinstance(noise.estimate, LabelGaussian):
        alone = label_promise(pairs, noise.estimate, ledger, entropy)
    else:
        alone = record_promise(noise.estimate, ledger, entropy, n=len(pairs) + pairs.dropped)
    return promise_together(settings, noise, ledger, alone)


def promise_together(
    settings: Settings, noise: Noise, ledger: Ledger, alone: Guarantee
) -> Guarantee:
    """Return what a reward promises together with its metrics, from what it promises alone.

    Raises:
        BudgetExceeded: They have no finite epsilon at the ledger's delta.
    """
    # a reward and metrics are stated together, at the delta of the ledger that paid for both
    delta = settings.failure if noise.metrics is None else ledger.budget.delta
    epsilon = noise.epsilon(settings, delta)
    if math.isinf(epsilon):
        raise BudgetExceeded(
            f"A reward and its metrics have no finite epsilon at the delta={delta!r} of "
            f"{ledger.path.name}. Nothing was released. Leave --metrics-epsilon out, or raise the "
            "limit with --budget-delta, which the ledger records."
        )
    return merge([alone], epsilon=epsilon, delta=delta)
