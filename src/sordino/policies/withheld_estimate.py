"""What a policy of a withheld estimate needs to know of it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from sordino.mechanisms.gibbs_sampling import Scores
from sordino.privacy.events import Event
from sordino.privacy.guarantee import NeighboringRelation, Unit

__all__ = ["WithheldEstimate"]


@runtime_checkable
class WithheldEstimate(Protocol):
    """An estimate that nobody but its curator sees, and how far one change can move it."""

    @property
    def unit(self) -> Unit:
        """Return whose change is hidden."""
        ...

    @property
    def neighbors(self) -> NeighboringRelation:
        """Return what one change is."""
        ...

    @property
    def caveats(self) -> tuple[str, ...]:
        """Return the names of what qualifies every promise made with it."""
        ...

    @property
    def public_digest(self) -> str | None:
        """Return a digest of what is public in the data, which binds a ledger; or None."""
        ...

    @property
    def payments(self) -> tuple[tuple[str, Event], ...]:
        """Return ledger entries that the scores rest on, and what each did; mostly none."""
        ...

    def options(self, context: Any, candidates: Any) -> Any:
        """Return one public question as the estimate reads it; its length is that of a choice."""
        ...

    def score_range(self, options: Any) -> float:
        """Return the bound on the range of the change of the scores, in units of reward.

        Guarantee:
            For any two neighboring data sets, max h − min h over the options is at most this,
            h being the difference of the two score vectors.
        """
        ...

    def _scores(self, options: Any) -> Scores:
        """Return the score of every option; confidential."""
        ...
