"""Whole records in many files: tasks clip and add up, this process alone tilts, pays and noises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Integer

from sordino._random import Entropy, words_of_secret
from sordino.engines.engine import Engine
from sordino.engines.rows import PiecedRows
from sordino.errors import UsageError
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.second_moment import SecondMoment
from sordino.preferences.features import Features
from sordino.preferences.shard_blocks import judged_vectors, judgments
from sordino.preferences.shard_survey import ShardSurvey
from sordino.preferences.shards import Piece, Shards
from sordino.privacy.ledger import Ledger
from sordino.rewards.record_checks import record_differences
from sordino.rewards.record_fit import RecordFit, spend_on_records
from sordino.rewards.record_sums import clipped_records, decided_labels
from sordino.rewards.record_terms import RecordTerms
from sordino.rewards.sharded.evidence import width_of
from sordino.rewards.sharded.newton import PiecedLoss, minimize_pieced
from sordino.rewards.solver import Solution
from sordino.rewards.tilted_minimizer import ridge_of, within_allowance

__all__ = ["PiecedRecords", "fit_record_shards"]

_SECRET: Final = 4  # words


def fit_record_shards(  # noqa: PLR0913 (each is one choice of the user)
    survey: ShardSurvey,
    mechanism: ObjectivePerturbation,
    *,
    ledger: Ledger,
    engine: Engine,
    features: Features | None = None,
    ball: float,
    second_moment: SecondMoment | None = None,
    ellipsoid: bool | None = None,
    simulate_seed: int | None = None,
) -> RecordFit:
    """Return weights that hide every single record of many files, after recording the spend.

    The same as :func:`~sordino.rewards.record_fit.fit_records`: each task clips the records it
    reads and adds them up; this process alone writes to the ledger, tilts and draws noise. The
    coins of undecided records are a function of a secret of this run and of their place, so that
    a task that is run again finds the same ones.

    Args:
        survey: What the files are, from
            :func:`~sordino.preferences.shard_survey.survey_shards`; no row of it is left out.
        mechanism: The tilt and its ridge.
        ledger: Where the spend is recorded before any noise is drawn.
        engine: Where the files are read.
        features: Turns texts into vectors; left out for files of vectors.
        ball: Bound on the norm of the weights.
        second_moment: Also release Σ zzᵀ.
        ellipsoid: Whether to keep a confidence set; by default if there is a second moment.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: The ledger counts labels or persons, or another relation; or the second
            moment was not paid for by the mechanism.
        BudgetExceeded: The spend would pass the budget; no noise was drawn.
        UsageError: A setting is out of range, or features do not fit the files.
        DataError: Features cannot be used, or the files changed while they were read.
        FileSystemError: A file cannot be read.
        EngineError: The engine lost its machines.

    Guarantee:
        That of :func:`~sordino.rewards.record_fit.fit_records`, wherever and however often a task
        runs: tasks draw nothing. Each judgment is a record of its own, also a repeated one. That
        files overlap is refused, and that a record cannot be used, as when a single file is read:
        whoever sees those refusals holds the records. Shown by
        tests/soundness/test_pieced_records.py.

    Source:
        docs/central.md, "Objective perturbation".
    """
    _refuse_other_types(mechanism, ledger)
    terms = RecordTerms.of(
        mechanism,
        ledger,
        second_moment,
        size=survey.n + survey.dropped,
        ball=ball,
        ellipsoid=ellipsoid,
        simulate_seed=simulate_seed,
        features=features,
    )
    width = width_of(survey.shards, features)
    terms.refuse_useless(width)
    ledger.check(mechanism.event, promise=terms.promise)  # before the work on features
    read = _Records(survey.shards, features, mechanism, second_moment)
    # Nobody is told how far it is: how many passes a minimizer takes depends on the records.
    rows = PiecedRows(engine, survey.shards.pieces, read, (survey.n, width))
    rows.fold(_ready, _both)
    return spend_on_records(PiecedRecords(rows), terms, ledger=ledger, features=features)


@dataclass(frozen=True, eq=False, repr=False)
class PiecedRecords:
    """Clipped records that an engine reads.

    Attributes:
        rows: x, with labels beside them.

    Guarantee:
        None by itself; see :class:`~sordino.rewards.record_sums.RecordSums`.
    """

    rows: PiecedRows

    @property
    def width(self) -> int:
        """Return the number of features."""
        return self.rows.shape[1]

    def outer(self, second_moment: SecondMoment) -> np.ndarray:
        """Return Σ xxᵀ in whole steps: the same integers, whatever engine adds them."""
        return self.rows.fold(_Outer(second_moment), np.add)

    def minimize(
        self,
        tilt: Float[np.ndarray, " d"],
        mechanism: ObjectivePerturbation,
        *,
        ball: float,
        entropy: Entropy,
    ) -> Solution:
        """Return the certified minimizer of the tilted objective.

        Guarantee:
            None by itself: the minimizer is as secret as the records until it is noised.
        """
        secret = entropy.words(_SECRET).tobytes()
        decided = replace(self.rows, read=_Decided(self.rows.read, secret))
        [solution], _ = minimize_pieced(
            PiecedLoss(decided, -tilt, decided=True),
            [ridge_of(mechanism)],
            ball=ball,
            atol=mechanism.atol,
            starts=np.zeros((1, self.width)),
            settles=True,
        )
        return within_allowance(solution, mechanism)


@dataclass(frozen=True)
class _Records:
    """From a piece to its blocks of clipped records."""

    shards: Shards
    features: Features | None
    mechanism: ObjectivePerturbation
    second_moment: SecondMoment | None

    def __call__(self, piece: Piece) -> Iterator[tuple[str, Any, Integer[np.ndarray, " k"]]]:
        """Yield (the block's name, records, labels)."""
        nothing = np.zeros((0, width_of(self.shards, self.features))), np.zeros(0, np.int8)
        for number, (differences, labels) in enumerate(chain([nothing], self._differences(piece))):
            records = clipped_records(differences, self.mechanism, self.second_moment)
            yield f"{piece.number} {number}", records, labels

    def _differences(self, piece: Piece) -> Iterator[tuple[Any, Integer[np.ndarray, " k"]]]:
        """Yield feature differences, and labels, of all records that carry a preference."""
        if self.features is None:
            yield from judged_vectors(self.shards, piece, None)
            return
        for pairs in judgments(self.shards, piece):
            if len(pairs):
                yield record_differences(pairs, self.features), pairs.labels


@dataclass(frozen=True)
class _Decided:
    """Blocks of records, each undecided one decided by a coin that its place decides."""

    read: Any
    secret: bytes

    def __call__(self, piece: Piece) -> Iterator[tuple[str, Any, Float[np.ndarray, " k"]]]:
        """Yield (the block's name, records, targets)."""
        for name, records, labels in self.read(piece):
            yield (
                name,
                records,
                decided_labels(labels, words_of_secret(self.secret, name, len(labels))),
            )

    def __repr__(self) -> str:
        """Return the kind; no secret."""
        return "_Decided()"


@dataclass(frozen=True)
class _Outer:
    """The task: Σ xxᵀ of a block, in whole steps."""

    second_moment: SecondMoment

    def __call__(self, _name: str, records: Any, *_: Any) -> np.ndarray:
        """Return the sum over one block."""
        return self.second_moment.total(records)


def _ready(*_: Any) -> bool:
    """Return that a block could be read and its features made: so nothing is spent in vain."""
    return True


def _both(one: bool, other: bool) -> bool:  # noqa: FBT001 (parts of a sum)
    """Return the sum of two parts."""
    return one and other


def _refuse_other_types(mechanism: object, ledger: object) -> None:
    """Refuse what is no tilt or no ledger."""
    if not isinstance(mechanism, ObjectivePerturbation) or not isinstance(ledger, Ledger):
        raise UsageError(
            "fit_record_shards needs an ObjectivePerturbation and a Ledger. Nothing was released."
        )
