"""Which numbers does a result state, and what had to be paid before they could be?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee
from sordino.rewards.model import RewardModel

__all__ = ["StatedNumbers"]

_Path = tuple[str, ...]

_REWARD = "reward.json"

_LIKELIHOOD = {
    ("reward", "negative_log_likelihood"),
    ("reward", "negative_log_likelihood_standard_error"),
}
_BOUGHT = {
    ("reward", "accuracy"),
    ("reward", "accuracy_standard_error"),
    ("policy", "win_rate"),
    ("policy", "win_rate_interval"),
}
_NEVER = {("calibration",)}
_OF_TEXTS = {
    ("reward", "calibration_slope"),
    ("reward", "calibration_slope_standard_error"),
    ("reward", "weight_standard_error"),
    ("policy", "kl"),
    ("policy", "pessimism"),
    ("data", "dropped_identical"),
    ("data", "capped"),
    ("data", "persons"),
    ("utility",),
}
_TEXTS = {("decisive",), ("examples",)}
_COUNTS = {("data", "pairs"), ("metrics", "pairs"), ("seconds",)}


@dataclass(frozen=True, kw_only=True)
class StatedNumbers:
    """The numbers of ``result.json`` that cost something under one promise or another.

    Attributes:
        present: Where a value is that is not null.
        private_texts: Where something was made of texts that nobody declared public.
    """

    present: frozenset[_Path]
    private_texts: frozenset[_Path]

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> StatedNumbers:
        """Return what a result says; TypeError where it is malformed."""
        known = _LIKELIHOOD | _BOUGHT | _NEVER | _OF_TEXTS | _COUNTS
        return cls(
            present=frozenset(path for path in known if _says(_at(result, path))),
            private_texts=frozenset(
                path
                for path in _TEXTS
                if _says(part := _at(result, path)) and _at(part, ("source",)) != "public"
            ),
        )

    def wrong(self, paid: Guarantee, *, bought: bool, reward: RewardModel) -> Iterator[str]:
        """Yield what a curator could not state without a release that is on no ledger.

        A sum of labels, once released, gives likelihood and slope for nothing, and no more. Of
        whole records nothing is free, and where they may come and go not even their number is.

        Args:
            paid: What the entries promise together.
            bought: Whether an entry paid for metrics.
            reward: The reward in ``reward.json``.
        """
        records = paid.unit != "label" and "labels-only" not in paid.caveats
        dear = _NEVER | (set() if bought else _BOUGHT | (_LIKELIHOOD if records else set()))
        told = self.present & dear
        if told:
            yield f"Nothing on the ledger paid for {_names(told)}."
        texts = self.present & _OF_TEXTS | self.private_texts
        texts |= set() if reward.standard_errors is None else {(_REWARD, "standard_errors")}
        if records and texts:
            yield f"Nothing but private prompts and answers tells {_names(texts)}."
        counts = self.present & _COUNTS | (set() if reward.pairs is None else {(_REWARD, "pairs")})
        if paid.neighbors == ADD_OR_REMOVE_ONE and counts:
            yield f"How many records there are is private, and this tells: {_names(counts)}."


def _at(value: Any, path: _Path) -> Any:
    """Return what lies at a path; None where there is nothing, TypeError where there is no dict."""
    for step in path:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError
        value = value.get(step)
    return value


def _says(value: Any) -> bool:
    """Return whether a value says anything."""
    return any(map(_says, value)) if isinstance(value, list) else value is not None


def _names(paths: Iterable[_Path]) -> str:
    """Return places in a result as one text, in a fixed order."""
    return ", ".join(sorted(".".join(path) for path in paths))
