"""What the user chose for one run of ``sordino bandit``, refused before a file is opened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sordino import _validate
from sordino._files import refuse_existing
from sordino.cli._accounts import Budget
from sordino.cli._option_words import named_option, split_names
from sordino.cli._options import Neighbors, Unit
from sordino.cli._settings import refuse_given
from sordino.errors import UsageError
from sordino.preferences.bandit_logs import usable_reward_range
from sordino.privacy.guarantee import NeighboringRelation

__all__ = ["BanditMethod", "BanditSettings"]

_MOST_DRAWS = 10_000_000
_BOTH = 2


class BanditMethod(StrEnum):
    """What is estimated of every arm."""

    multi_armed = "multi-armed"
    linear = "linear"


@dataclass(frozen=True, kw_only=True)
class BanditSettings:
    """What the user chose for one run.

    Attributes are the options of ``sordino bandit``; None where one was left out.
    """

    out: Path
    arm: str
    arms: str | None
    reward: str
    reward_range: tuple[float, float] | None
    method: BanditMethod
    action_features: Path | None
    action_columns: str | None
    context_columns: str | None
    context_bound: float | None
    contexts: Path | None
    unit: Unit
    neighbors: Neighbors | None
    epsilon: float | None
    delta: float
    draws: int
    temperature: float | None
    regularization: float | None
    penalty: float
    center: float | None
    ball: float | None
    records: int | None
    test_epsilon: float | None
    test_delta: float | None
    reference: str
    ledger: Path | None
    data: str
    budget: Budget
    simulate_seed: int | None
    force: bool

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        self._refuse_missing()
        with named_option("--reward-range"):
            usable_reward_range(self.ends)
        self._refuse_out_of_range()
        self._refuse_other_terms()
        if self.method is BanditMethod.linear:
            self._refuse_in_linear()
        else:
            self._refuse_in_multi_armed()
        if self.tested:
            self._refuse_in_test()
        elif self.test_delta is not None:
            raise UsageError("--test-delta belongs to --test-epsilon: give both. Nothing was done.")
        if not self.tested:
            self._refuse_amounts()
        refuse_existing(self.out, force=self.force)

    def _refuse_missing(self) -> None:
        """Refuse to read from the logs what would be released by that."""
        if self.arms is None:
            raise UsageError(
                "--arms is needed: the number of arms, or CATALOGUE.csv:COLUMN of a public file "
                "that names them. Read from the logs, they would be released with the draws. "
                "Nothing was done."
            )
        if not (self.arms.isdigit() or all(self.arms.rpartition(":")[::2])):
            raise UsageError(
                "--arms must be the number of arms, or FILE:COLUMN of a public file that names "
                f"them, such as items.csv:item_id; got {self.arms!r}. Nothing was done."
            )
        if self.reward_range is None:
            raise UsageError(
                "--reward-range LOW HIGH is needed: the least and the largest reward that there "
                "can be, such as 0 1 for clicks. Read from the logs, it would be released with the "
                "draws. Nothing was done."
            )

    def _refuse_out_of_range(self) -> None:
        """Refuse numbers that mean nothing."""
        _validate.integer("--draws", self.draws, at_least=1, at_most=_MOST_DRAWS)
        _validate.failure_probability("--delta", self.delta)
        _validate.non_negative("--penalty", self.penalty)
        positive = {
            "--epsilon": self.epsilon,
            "--temperature": self.temperature,
            "--regularization": self.regularization,
            "--ball": self.ball,
            "--context-bound": self.context_bound,
        }
        for name, value in positive.items():
            if value is not None:
                _validate.positive(name, value)
        if self.records is not None:
            _validate.integer("--records", self.records, at_least=1)
        self._refuse_center()

    def _refuse_center(self) -> None:
        """Refuse a center that no reward can have."""
        low, high = self.ends
        if self.center is not None and not low <= self.center <= high:
            raise UsageError(
                f"--center must lie within --reward-range, {low:g} to {high:g}, got "
                f"{self.center:g}. Nothing was done."
            )

    def _refuse_other_terms(self) -> None:
        """Refuse units and relations that no bound is known for."""
        if self.unit is Unit.person:
            raise UsageError(
                "--unit person: what is bounded is one record or one label, not all records of a "
                "person. Nothing was done. Use --unit record with one record for each person."
            )
        if self.unit is Unit.label and self.neighbors not in (None, Neighbors.replace_one):
            raise UsageError(
                f"With --unit label rewards are replaced: --neighbors {self.neighbors} is for "
                "whole records. Nothing was done. Leave it out, or use --unit record."
            )

    def _refuse_in_linear(self) -> None:
        """Refuse what a regression has no use for."""
        given = {
            "--center": self.center,
            "--test-epsilon": self.test_epsilon,
            "--test-delta": self.test_delta,
        }
        refuse_given(given, "this is for --method multi-armed")
        if self.action_columns is not None and self.action_features is None:
            raise UsageError(
                "--action-columns names columns of --action-features: give both. Nothing was done."
            )
        if self.context_columns is None:
            of_contexts = {"--contexts": self.contexts, "--context-bound": self.context_bound}
            refuse_given(of_contexts, "without --context-columns the logs have no contexts")
        if self.unit is Unit.label:
            refuse_given({"--ball": self.ball}, "a ball is for --unit record")

    def _refuse_in_multi_armed(self) -> None:
        """Refuse what means of arms have no use for."""
        given = {
            "--action-features": self.action_features,
            "--action-columns": self.action_columns,
            "--context-columns": self.context_columns,
            "--context-bound": self.context_bound,
            "--contexts": self.contexts,
            "--ball": self.ball,
        }
        refuse_given(given, "this is for --method linear")

    def _refuse_in_test(self) -> None:
        """Refuse what a test of counts has no use for, or takes the place of."""
        given = {
            "--temperature": self.temperature,
            "--regularization": self.regularization,
            "--center": self.center,
            "--records": self.records,
        }
        refuse_given(given, "with --test-epsilon the test decides this")
        if self.unit is Unit.label:
            raise UsageError(
                "--test-epsilon is for --unit record: with --unit label the counts are public. "
                "Nothing was done."
            )
        if self.epsilon is None:
            raise UsageError("--epsilon is needed with --test-epsilon. Nothing was done.")
        _part("--test-epsilon", self.test_epsilon, "--epsilon", self.epsilon)
        if self.delta == 0:
            raise UsageError(
                "--test-epsilon needs --delta above 0: the test may fail. Nothing was done."
            )
        if self.test_delta is not None:
            _part("--test-delta", self.test_delta, "--delta", self.delta)

    def _refuse_amounts(self) -> None:
        """Refuse too much or too little to settle how private a draw is."""
        given = (self.temperature is not None) + (self.regularization is not None)
        if self.epsilon is None and given < _BOTH:
            raise UsageError(
                "--epsilon is needed: the privacy loss allowed for all draws together (1 is "
                "strong, 4 is weak). Or give both --temperature and --regularization, and see with "
                "--dry-run what that spends. Nothing was done."
            )
        if self.epsilon is not None and given == _BOTH:
            raise UsageError(
                "--epsilon with both --temperature and --regularization: these two alone decide "
                "what is spent. Nothing was done. Leave one of the three out; --budget limits the "
                "spend."
            )

    @property
    def ends(self) -> tuple[float, float]:
        """Return the least and the largest reward."""
        assert self.reward_range is not None  # noqa: S101 - refused before
        return self.reward_range

    @property
    def tested(self) -> bool:
        """Return whether the least count of an arm is tested first."""
        return self.test_epsilon is not None

    @property
    def test_terms(self) -> tuple[float, float]:
        """Return the epsilon and delta of the test; half of delta if nothing was said."""
        assert self.test_epsilon is not None  # noqa: S101 - asked with ``tested`` only
        return self.test_epsilon, self.delta / 2 if self.test_delta is None else self.test_delta

    @property
    def relation(self) -> NeighboringRelation:
        """Return what one change is: labels are replaced, records added or removed."""
        usual = Neighbors.replace_one if self.unit is Unit.label else Neighbors.add_remove
        return (self.neighbors or usual).relation

    @property
    def declared_contexts(self) -> tuple[str, ...]:
        """Return the declared columns of contexts."""
        return split_names("--context-columns", self.context_columns)

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        return self.ledger or self.out / "spend.db"


def _part(name: str, value: float | None, of: str, whole: float) -> None:
    """Refuse a part that is nothing, or is not smaller than the whole."""
    if value is None or not 0 < value < whole:
        raise UsageError(
            f"{name} is the part of {of} that the test may spend: it must be above 0 and below "
            f"{whole:g}, got {value!r}. Nothing was done."
        )
