"""What is refused before a reward is fitted to be withheld, and what qualifies its promises."""

from __future__ import annotations

from collections.abc import Mapping

from sordino.errors import PrivacyError, UsageError
from sordino.preferences.features import Features, caveats_of_features
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import REPLACE_ONE, NeighboringRelation, Unit

__all__ = [
    "changes_of",
    "given_ridge",
    "refuse_other_pairs",
    "refuse_other_terms",
    "refuse_public_bound",
    "refuse_spending",
    "refuse_without_withholding",
    "withheld_caveats",
]


def refuse_spending(given: Mapping[str, object]) -> None:
    """Refuse settings of releases: a withheld fit releases nothing.

    Args:
        given: Names of settings and their values; None where a setting was left out.

    Raises:
        UsageError: A setting was given.
    """
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} has no meaning with withhold=True: the fit is exact, releases nothing and "
            "spends nothing. Nothing was fitted. Leave it out; each draw from "
            "sordino.gibbs_policy(withheld, temperature=...) spends and takes the ledger."
        )


def refuse_without_withholding(given: Mapping[str, object]) -> None:
    """Refuse settings that only a withheld fit has.

    Args:
        given: Names of settings and their values; None where a setting was left out.

    Raises:
        UsageError: A setting was given.
    """
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is for withhold=True. Nothing was spent. Leave it out, or withhold the "
            "reward; for other fits the mechanism says what is promised."
        )


def refuse_other_pairs(pairs: object) -> None:
    """Refuse what is no raw judgments of two answers.

    Raises:
        UsageError: It is something else.
    """
    if not isinstance(pairs, Pairs):
        raise UsageError(
            f"withhold=True is for raw judgments of two answers (Pairs), got "
            f"{type(pairs).__name__}. Nothing was fitted. Answers that are private already need no "
            "withholding; for rankings no bound is known."
        )


def refuse_other_terms(unit: object, neighbors: object) -> None:
    """Refuse a missing unit or relation, and those that no bound is known for.

    Raises:
        UsageError: One of them is missing or unknown.
        PrivacyError: No bound is known for the two together.
    """
    if unit == "person":
        raise PrivacyError(
            "unit='person' cannot be promised: the bound of a withheld estimate is for one label "
            "or one record, and a person may have given many. Nothing was fitted. Use "
            "unit='record' or 'label' (a person with m of them is then protected with m times "
            "epsilon), keep one record of each person, or hide all labels of a person with "
            "LabelGaussian(..., records_per_person=...)."
        )
    if unit not in ("label", "record"):
        raise UsageError(
            f"unit must be 'label' or 'record', got {unit!r}: it is what each draw promises to "
            "hide, and has no default. Nothing was fitted."
        )
    if neighbors not in tuple(NeighboringRelation):
        raise UsageError(
            "neighbors must be ADD_OR_REMOVE_ONE, REPLACE_SPECIAL or REPLACE_ONE (which labels "
            f"need), got {neighbors!r}: it is what each draw promises to hide, and has no "
            "default. Nothing was fitted."
        )
    if unit == "label" and neighbors is not REPLACE_ONE:
        raise PrivacyError(
            f"neighbors={getattr(neighbors, 'name', neighbors)}: a label is replaced by another "
            "one, where all else is public. Nothing was fitted. Use unit='label' with "
            "REPLACE_ONE, or unit='record'."
        )


def changes_of(neighbors: NeighboringRelation) -> int:
    """Return how many removals or additions make one change of a record."""
    return 2 if neighbors is REPLACE_ONE else 1


def given_ridge(ridge: float | None) -> float:
    """Return the ridge; refuse none, because there is nothing private to choose it by.

    Raises:
        UsageError: It was left out.
    """
    if ridge is None:
        raise UsageError(
            "ridge is needed with withhold=True: choosing it on raw labels would be a release of "
            "its own. Nothing was fitted. Pass ridge=..., chosen before you look at the data; "
            "more of it lets each draw spend less."
        )
    return ridge


def refuse_public_bound(bound: float | None) -> None:
    """Refuse a bound on the norms of questions that are public.

    Raises:
        UsageError: It was given.
    """
    if bound is not None:
        raise UsageError(
            f"bound={bound!r} is for unit='record': where questions are public their own norms "
            "are used. Nothing was fitted. Leave it out."
        )


def withheld_caveats(pairs: Pairs, unit: Unit, features: Features | None = None) -> tuple[str, ...]:
    """Return what qualifies the promises of draws from a fit of these pairs.

    Args:
        pairs: Raw judgments; only persons and, for labels, questions are read.
        unit: Whose change is hidden.
        features: What reads the texts.
    """
    caveats = {
        "real-arithmetic": True,
        # of records always: whether they name persons is as private as all else of them
        "person-group": unit == "record" or pairs.persons is not None,
        "repeats-not-linked": unit == "label"
        and pairs.persons is None
        and len(set(pairs.keys)) < len(pairs),
    }
    read = caveats_of_features(features) if unit == "record" else ()
    return (*(name for name, applies in caveats.items() if applies), *read)
