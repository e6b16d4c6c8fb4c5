"""What draws from a withheld estimate spend, said once and composed from the ledger."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sordino.errors import PrivacyWarning
from sordino.privacy import accounting
from sordino.privacy.guarantee import Guarantee, merge, never_less
from sordino.privacy.ledger import Ledger
from sordino.privacy.spend import event_of, promise_of

__all__ = ["describe_draw", "paid_since", "quiet", "warn_if_vacuous"]

_VACUOUS = 20.0  # as for a policy in Python


def describe_draw(bounded_range: float) -> dict[str, Any]:
    """Return what one draw promises by itself."""
    return {"epsilon": bounded_range, "delta": 0.0, "bounded_range": bounded_range}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a policy from warning: a command says the same once, in its own words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        yield


def warn_if_vacuous(bounded_range: float, way_out: str) -> None:
    """Warn where one draw protects nobody; call it before anything is drawn.

    Args:
        bounded_range: Of one draw.
        way_out: What to do about it.

    Warns:
        PrivacyWarning: One draw may have a privacy loss above 20.
    """
    if bounded_range > _VACUOUS:
        warnings.warn(
            f"One draw has epsilon={never_less(bounded_range)}, which protects nobody. Nothing "
            f"was drawn yet. {way_out}",
            PrivacyWarning,
            stacklevel=2,
        )


def paid_since(ledger: Ledger, before: int, delta: float) -> Guarantee:
    """Return what the entries after so many rows promise together, composed anew.

    If another process spends on the same ledger meanwhile, its entries count here too: too much
    is said then, never too little.

    Args:
        ledger: That paid.
        before: How many rows it had.
        delta: Failure probability that they are composed for.
    """
    rows = [row for row in ledger.rows[before:] if row.kind == "reserve"]
    events = Counter[Any]()
    for row in rows:
        events[event_of(row)] += row.count
    relation = ledger.budget.neighbors
    epsilon = accounting.composed_epsilon(events, neighbors=relation, delta=delta)
    return merge([promise_of(row, delta=delta) for row in rows], epsilon=epsilon, delta=delta)
