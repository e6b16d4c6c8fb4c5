"""Randomized answers for a language model: read as they are, or made first, through the ledger."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino._files import refuse_output, refuse_unwritable
from sordino.cli._accounts import Budget, Limit, future_ledger, open_ledger, spending_limit
from sordino.cli._console import Bar
from sordino.errors import UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.manifest import manifest_path, read_manifest
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.reading import read_pairs
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, never_less
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import Crossing
from sordino.privatization.stream import (
    FileSettings,
    default_ledger_path,
    plan_file,
    privatize_file,
)
from sordino.privatization.unprotected import use_unprotected
from sordino.reporting.result import describe_guarantee_and_caveats

__all__ = ["AnswerTerms", "Answers", "made_private", "planned_spend", "read_answers"]


@dataclass(frozen=True, kw_only=True)
class AnswerTerms:
    """What the user said of the judgments, and of what they may cost.

    Attributes:
        source: Raw judgments, or a privatized file with its manifest beside it.
        out: The checkpoint; randomized answers are kept beside it.
        epsilon: What one label may cost; None for answers that are randomized already.
        ledger: Where the spend is kept; None for one beside the checkpoint.
        budget: As ``--budget``.
        data: Name of the data set on the ledger.
        settings: How the file is read.
        simulate_seed: As ``--simulate-seed``.
        non_private: Whether judgments are used as they are.
        force: Whether outputs may be overwritten.
    """

    source: Path
    out: Path
    epsilon: float | None
    ledger: Path | None
    budget: Budget
    data: str
    settings: FileSettings
    simulate_seed: int | None
    non_private: bool
    force: bool

    @property
    def answers_path(self) -> Path:
        """Return where randomized answers are kept: training on them again spends nothing."""
        return self.out.with_name(f"{self.out.name}.answers.jsonl")

    @property
    def ledger_path(self) -> Path:
        """Return the ledger: never inside a checkpoint, which is published as a whole."""
        return self.ledger or default_ledger_path(self.out)

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger."""
        spend = math.inf if self.non_private else self._wanted
        return spending_limit(spend, self.budget, unit="label", trust="central")

    @property
    def coin(self) -> RandomizedResponse:
        """Return the coin for one label."""
        return RandomizedResponse(self._wanted)

    @property
    def _wanted(self) -> float:
        """Return what one label may cost, which raw judgments need.

        Raises:
            UsageError: The user did not say.
        """
        if self.epsilon is None:
            raise UsageError(
                "These are raw judgments: a model trained on them would give them away. Nothing "
                "was done. Say what one label may cost (--epsilon E), or --non-private for a "
                "baseline that protects nobody."
            )
        return self.epsilon


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Randomized answers, the ledger that they were paid on, and the file that keeps them."""

    private: PrivatePairs
    ledger: Ledger | None
    file: Path | None = None


def read_answers(terms: AnswerTerms) -> Pairs | PrivatePairs:
    """Return what the file holds, after refusing settings that do not fit it.

    Raises:
        DataError: A record cannot be used.
        UsageError: A setting asks for what can only be had before labels are randomized, or
            randomized answers of an earlier run would be overwritten.
    """
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            terms.source,
            drop_identical=terms.settings.drop_identical,
            person_field=terms.settings.person_field,
            progress=bar,
        )
    if isinstance(pairs, PrivatePairs):
        _refuse_more(terms, pairs.guarantee)
    elif not terms.non_private:
        _refuse_second_answers(terms)
    return pairs


def _refuse_more(terms: AnswerTerms, promise: Guarantee) -> None:
    """Refuse to promise more of randomized answers than their manifest does."""
    wanted = {
        "--non-private": terms.non_private,
        "--simulate-seed": terms.simulate_seed is not None,
        f"--epsilon {terms.epsilon}": terms.epsilon is not None and terms.epsilon < promise.epsilon,
    }
    for name, given in wanted.items():
        if given:
            raise UsageError(
                f"These answers were randomized with epsilon={never_less(promise.epsilon)} per "
                f"{promise.unit} already, so {name} comes too late. Nothing was done. Leave it out."
            )


def _refuse_second_answers(terms: AnswerTerms) -> None:
    """Refuse to randomize again by accident what an earlier run has paid for.

    Raises:
        UsageError: Answers of an earlier run are there.
    """
    kept = terms.answers_path
    if not terms.force and kept.exists():
        raise UsageError(
            f"{kept.name} holds the randomized answers of an earlier run. Nothing was done. Train "
            f"on them, which spends nothing: give {kept.name} instead of the raw judgments; or "
            "pass --force to randomize anew, which spends again."
        )
    for path in (kept, manifest_path(kept)):
        refuse_output(path, force=terms.force)


def planned_spend(terms: AnswerTerms, pairs: Pairs | PrivatePairs) -> dict[str, Any]:
    """Return what training would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
        LedgerMismatch: It belongs to another data set.
    """
    if isinstance(pairs, PrivatePairs):
        promise = describe_guarantee_and_caveats(pairs.guarantee)
        return {"spend": 0.0, "pairs": len(pairs), "dropped_identical": pairs.dropped, **promise}
    ledger = future_ledger(terms.ledger_path, terms.data, terms.limit)
    if terms.non_private:
        return _planned_exposure(terms, pairs, ledger)
    crossing = Crossing.of(terms.coin, ledger, on_device=False, simulate_seed=terms.simulate_seed)
    return plan_file(terms.source, crossing, terms.settings, data=terms.data)[0]


def _planned_exposure(terms: AnswerTerms, pairs: Pairs, ledger: Ledger) -> dict[str, Any]:
    """Return that everything would be spent."""
    mechanism = NonPrivate()
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    ledger.check_data(terms.data, pairs.public_digest)
    ledger.check(mechanism.event, promise=promise)
    told = describe_guarantee_and_caveats(promise)
    return {"spend": math.inf, "pairs": len(pairs), "dropped_identical": pairs.dropped, **told}


def made_private(terms: AnswerTerms, pairs: Pairs | PrivatePairs) -> Answers:
    """Return randomized answers: those that were read, or new ones that are kept in a file.

    Raises:
        BudgetExceeded: The spend would pass the ledger's budget; no coin was drawn.
        FileSystemError: Answers or ledger cannot be written.
    """
    if isinstance(pairs, PrivatePairs):
        return _received(terms, pairs)
    if not terms.non_private:
        refuse_unwritable(terms.answers_path)
    ledger = open_ledger(terms.ledger_path, terms.data, terms.limit)
    if terms.non_private:
        return Answers(private=use_unprotected(pairs, NonPrivate(), ledger=ledger), ledger=ledger)
    with Bar.shown("Randomizing") as bar:
        privatize_file(
            terms.source,
            terms.answers_path,
            terms.coin,
            ledger=ledger,
            settings=terms.settings,
            simulate_seed=terms.simulate_seed,
            force=terms.force,
            progress=bar,
        )
    private = read_pairs(terms.answers_path)
    assert isinstance(private, PrivatePairs)  # noqa: S101 - for the type checker: just written
    for release_id in _paying(ledger, private.artifact):
        private = private.received(release_id)
    return Answers(private=private, ledger=ledger, file=terms.answers_path)


def _received(terms: AnswerTerms, private: PrivatePairs) -> Answers:
    """Return answers that arrived private; a ledger that was named takes note of them."""
    if terms.ledger is None:
        return Answers(private=private, ledger=None)
    promise = private.guarantee
    limit = spending_limit(
        promise.epsilon, terms.budget, unit=promise.unit, trust=promise.trust, delta=promise.delta
    )
    ledger = open_ledger(terms.ledger, terms.data, limit)
    paid = _paying(ledger, private.artifact)
    for release_id in paid or [ledger.receive(terms.source, read_manifest(terms.source))]:
        private = private.received(release_id)
    return Answers(private=private, ledger=ledger)


def _paying(ledger: Ledger, artifact: str) -> list[str]:
    """Return the entries of a ledger that paid for a privatized file, each once."""
    kinds = {"commit", "repeat", "receive"}
    rows = (row for row in ledger.rows if row.kind in kinds)
    found = [row.release_id for row in rows if json.loads(row.payload)["artifact"] == artifact]
    return list(dict.fromkeys(found))
