"""What notebooks show of a ledger: the limit, the spend and the anchor, and no path."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sordino._markup import card
from sordino.privacy.guarantee import Guarantee, never_less, never_more

__all__ = ["anchor", "ledger_card", "size"]

_SHORT = 12  # characters of a digest that identify it to a reader


@runtime_checkable
class _Account(Protocol):
    """What a card needs to know of a ledger."""

    @property
    def data(self) -> str: ...
    @property
    def budget(self) -> Guarantee: ...
    @property
    def head(self) -> tuple[str, int]: ...
    def total(self) -> Guarantee | None: ...
    def remaining_epsilon(self) -> float: ...


def size(guarantee: Guarantee | None) -> str:
    """Return ε and δ in one phrase, rounded up; "nothing" where there is no promise.

    Example:
        >>> size(None)
        'nothing'
    """
    if guarantee is None:
        return "nothing"
    return f"epsilon={never_less(guarantee.epsilon)}, delta={never_less(guarantee.delta)}"


def anchor(head: tuple[str, int]) -> str:
    """Return the head of a ledger as a reader compares it.

    Example:
        >>> anchor(("0123456789abcdef", 3))
        '0123456789ab… after 3 rows'
    """
    digest, rows = head
    return f"{digest[:_SHORT]}… after {rows} row{'' if rows == 1 else 's'}"


def ledger_card(ledger: _Account) -> str:
    """Return budget, spend and head of a ledger as a card."""
    budget, total = ledger.budget, ledger.total()
    told = total or budget
    return card(
        "Ledger",
        [
            ("data", ledger.data),
            ("budget", size(budget)),
            ("spent", size(total)),
            ("epsilon left", never_more(ledger.remaining_epsilon())),
            ("one change", f"{told.change} ({told.neighbors.name})"),
            ("trust", told.trust),
            ("caveats", ", ".join(told.caveats) or None),
            ("head", anchor(ledger.head)),
        ],
        simulated=budget.simulated or (total is not None and total.simulated),
    )
