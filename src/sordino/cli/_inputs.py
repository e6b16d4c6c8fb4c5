"""Everything that one run of the main job reads, and what a way to be private makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.cli._console import Bar
from sordino.cli._engines import Passes
from sordino.cli._options import Unit
from sordino.cli._settings import Settings, Way, refuse_given
from sordino.engines.engine import Engine
from sordino.environments.truth import TrueReward
from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs, most_questions
from sordino.preferences.ranking_files import holds_rankings, read_rankings
from sordino.preferences.rankings import Rankings
from sordino.preferences.reading import read_pairs
from sordino.preferences.shard_survey import ShardSurvey
from sordino.preferences.shards import Shards, find_shards
from sordino.privacy.label_values import UNDECIDED
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import refuse_unlinked
from sordino.rewards.design import refuse_too_few
from sordino.rewards.model import RewardModel

__all__ = [
    "Inputs",
    "Learned",
    "Surveyed",
    "questions_of_one_person",
    "read_inputs",
    "refuse_randomized",
]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that a run reads, checked before anything is spent, and how pairs were read."""

    pairs: Pairs | PrivatePairs | Rankings | Shards
    public: Pairs | None
    truth: TrueReward | None
    drop_identical: bool
    person_field: str
    source: Path | None = None
    surveyed: Surveyed | None = None


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """Many files of which all that is public was read once.

    Attributes:
        survey: What was found.
        engine: What reads them again.
        taken: Shows how far it is.
    """

    survey: ShardSurvey
    engine: Engine
    taken: Passes


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a way to be private made of its inputs.

    Attributes:
        reward: The private reward.
        policy: Made from it.
        ledger: Where it was paid for.
        parts: The fields of ``result.json`` that differ from way to way.
        timed: Whether the time that a run took may be told.
    """

    reward: RewardModel
    policy: CandidatePolicy
    ledger: Ledger
    parts: dict[str, Any]
    timed: bool


def read_inputs(
    sources: Sequence[Path],
    settings: Settings,
    *,
    evaluate: Path | None,
    truth: Path | None,
    drop_identical: bool,
    person_field: str,
) -> Inputs:
    """Return the inputs of a run.

    Raises:
        DataError: A file cannot be used; place and field are named, unless records are private.
        PrivacyError: The file that was declared public is the private one.
        UsageError: The answers are randomized already and the way needs raw judgments; or a
            truth could only be measured on private texts.
    """
    offers = {
        "--all-offered": settings.all_offered or None,
        "--named-offered": settings.named_offered or None,
    }
    if settings.place.reads(sources):
        refuse_given(offers, "only a file of ballots over items has items to offer")
        _refuse_for_shards(settings, evaluate=evaluate, truth=truth)
        reading: Any = {"drop_identical": drop_identical, "person_field": person_field}
        shards = find_shards(sources, hides_records=settings.hides_texts, **reading)
        return Inputs(pairs=shards, public=None, truth=None, **reading)
    (source,) = sources
    if holds_rankings(source):
        _refuse_for_rankings(settings, evaluate=evaluate, truth=truth)
        with Bar.shown("Reading") as bar:
            ballots = read_rankings(
                source,
                person_field=person_field,
                offered=settings.offered,
                hides_records=settings.hides_texts,
                progress=bar,
            )
        return Inputs(
            pairs=ballots, public=None, truth=None, drop_identical=False, person_field=person_field
        )
    refuse_given(offers, "only ballots over items have items to offer, and these are pairs")
    if settings.way is Way.intrinsic:
        _refuse_measuring(evaluate=evaluate, truth=truth)
    drop_identical = drop_identical or settings.hides_texts  # a record that says nothing
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            source,
            drop_identical=drop_identical,
            person_field=person_field,
            hides_records=settings.hides_texts,
            progress=bar,
        )
    if settings.way is Way.local:
        refuse_too_few(pairs)
    else:
        refuse_randomized(pairs)
    if truth is not None and evaluate is None and settings.hides_texts:
        raise UsageError(
            "--truth compares the policy with the truth on the prompts of the data, which --unit "
            "record protects. Nothing was done. Give public ones: --evaluate PUBLIC."
        )
    public = None
    if evaluate is not None:
        public = _read_public(evaluate, pairs, person_field, shared_stay=settings.hides_texts)
    return Inputs(
        pairs=pairs,
        public=public,
        truth=None if truth is None else TrueReward.load(truth),
        drop_identical=drop_identical,
        person_field=person_field,
        source=source,
    )


def _refuse_measuring(*, evaluate: Path | None, truth: Path | None) -> None:
    """Refuse to measure a reward that nobody may see.

    Raises:
        UsageError: A file to measure it on was given.
    """
    given = {"--evaluate": evaluate, "--truth": truth}
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} measures a reward, and with --way intrinsic it is withheld. Nothing was "
            "done. Leave it out."
        )


def _refuse_for_rankings(settings: Settings, *, evaluate: Path | None, truth: Path | None) -> None:
    """Refuse what rankings cannot be used for, before they are read."""
    if settings.way is not Way.central:
        raise UsageError(
            f"These are rankings, which --way {settings.way} has no command for. Nothing was done. "
            "Use --way central; first choices are randomized one by one by privatize_choices in "
            "Python."
        )
    given = {
        "--evaluate": evaluate,
        "--truth": truth,
        "--metrics-epsilon": settings.metrics_epsilon,
        "--second-moment": settings.second_moment or None,
        "--confidence": settings.confidence,
    }
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(f"{wrong[0]} is for pairs, and these are rankings. Leave it out.")


def _refuse_for_shards(settings: Settings, *, evaluate: Path | None, truth: Path | None) -> None:
    """Refuse what is not built for many files, before they are looked for.

    Raises:
        UsageError: It was asked for.
    """
    if settings.way is not Way.central:
        raise UsageError(
            f"--way {settings.way} reads one file into memory; many files, folders and Parquet are "
            "read in pieces (--engine), for which --way central is built. Nothing was done. Use "
            "that, or one file of JSON Lines; or randomize many with `sordino privatize` and fit "
            "them with `sordino fit`."
        )
    if settings.hides_texts and settings.metrics_epsilon is not None:
        raise UsageError(
            "--metrics-epsilon with --unit record reads one file into memory; these are read in "
            "pieces. Nothing was done. Leave it out."
        )
    if settings.unit is Unit.person and settings.cap is None:
        raise UsageError(
            "--unit person over many files needs --cap: how many labels of one person count. "
            "Nothing was done."
        )
    given = {"--evaluate": evaluate, "--truth": truth}
    refuse_given(
        given, "a reward of files that are read in pieces is held against public ones in memory"
    )


def refuse_randomized(pairs: Pairs | PrivatePairs) -> None:
    """Refuse answers that were randomized one by one: a second noise would only harm.

    Raises:
        UsageError: They were.
    """
    if isinstance(pairs, PrivatePairs):
        raise UsageError(
            "These answers are randomized already, so no curator has to add noise. Nothing was "
            "done. Use --way local, which costs nothing further."
        )


def _read_public(
    path: Path, pairs: Pairs | PrivatePairs, person_field: str, *, shared_stay: bool
) -> Pairs:
    """Return judgments that the user declares public, without questions of the private file.

    Where it is private too which questions are in the private file, shared ones stay, and nothing
    is refused for them: either would tell. Public labels are the user's word.
    """
    problem: SordinoError | None = None
    try:
        public = read_pairs(path, drop_identical=True, person_field=person_field)
    except SordinoError as error:
        problem = error
    if problem is not None:
        raise type(problem)(f"--evaluate: {problem}")
    if isinstance(public, PrivatePairs):
        raise DataError("--evaluate: a public file holds judgments, not randomized answers.")
    private = set(pairs.keys)
    shared = sum(key in private for key in public.keys)
    if not shared_stay and shared * 2 >= len(public):
        raise PrivacyError(
            "--evaluate holds the private judgments themselves: at least half of its pairs are "
            "in both files, and their labels would show in the metrics. Nothing was done. Give "
            "a file whose judgments are public."
        )
    left = public if shared_stay else public.without(private)
    if (left.labels == UNDECIDED).all():
        raise DataError("--evaluate: every judgment in it is undecided. Nothing was spent.")
    return left


def questions_of_one_person(pairs: Pairs | Rankings) -> int:
    """Return the most different questions that one person answered; it is public.

    Raises:
        DataError: There are no person ids.
    """
    if pairs.persons is None:
        refuse_unlinked("a budget for each person")
    return most_questions(pairs.persons, pairs.keys)
