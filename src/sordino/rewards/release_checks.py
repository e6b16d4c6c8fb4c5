"""What every release by a curator settles before anything is spent.

Of records, prompts, answers and persons are private, and under ADD_OR_REMOVE_ONE so is how many
there are: no message names a record or a number of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import issparse

from sordino import _random
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)
from sordino.preferences.comparisons import Comparisons, held_out_questions
from sordino.preferences.features import Features, caveats_of_features, features_of_hidden
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, LARGEST_DELTA, WEAK_PROMISE, Guarantee
from sordino.privacy.ledger import Ledger


def paying(ledger: object, what: str, undone: str) -> Ledger:
    """Return where a spend is recorded; refuse to go without."""
    if isinstance(ledger, Ledger):
        return ledger
    raise UsageError(
        f"{what}, so a ledger is needed to record it. Nothing was {undone}. Pass "
        "ledger=sordino.Ledger.open(...)."
    )


def refuse_large_delta(promise: Guarantee, n: int | None) -> None:
    """Refuse a δ that allows what nobody means by privacy; call it before anything is spent."""
    if not promise.may_publish(n):
        return
    told = n is not None and promise.neighbors is not ADD_OR_REMOVE_ONE
    bound = f"1/n=1/{n}" if told else f"{LARGEST_DELTA:g}"
    where = "" if told else f" where the number of {promise.unit}s is not public"
    raise UsageError(
        f"delta must be below {bound}{where}, got {promise.delta!r}: with so large a delta a "
        f"mechanism may publish one {promise.unit} outright and still keep its promise. Nothing "
        f"was spent. Use a delta far below 1 in the number of {promise.unit}s, such as "
        f"{0.01 / n if n and told else 1e-6:.0e}; commands go on all the same with --accept-weak."
    )


def weighed(promise: Guarantee, n: int | None, accepted: tuple[str, ...] | None) -> Guarantee:
    """Return a promise with the caveats that a ledger accepts; refuse a δ that nobody accepted."""
    if accepted is None:
        refuse_large_delta(promise, n)
        return promise
    weak = (WEAK_PROMISE,) if promise.may_publish(n) else ()
    return promise.with_caveats(*accepted, *weak)


NOTE: Final = "held_out"
UNREAD: Final[Mapping[str, str]] = {NOTE: "unread"}
"""What a ledger entry says of a release that did not read the held-out rows."""
MEASURED: Final[Mapping[str, str]] = {NOTE: "measured"}
"""What it says of a release that read nothing else."""


def held_out_rows(pairs: Comparisons) -> Bool[np.ndarray, " n"]:
    """Return which rows are kept for metrics: one fifth of the questions, by their keys alone."""
    # It is a public rule that looks at one row at a time: no label, no order, no other record and
    # no coin decides. All answers to one question are on one side. No other rows can be held out:
    # they could be chosen by their labels, or by other records than the row's own.
    # Source: docs/central.md, "Metrics that are paid for".
    return held_out_questions(pairs.keys)


def refuse_own_rows(held_out: object) -> None:
    """Refuse a choice of rows where only the public rule may choose."""
    if not isinstance(held_out, bool):
        raise PrivacyError(
            f"held_out must be True or False, got {type(held_out).__name__}: the public rule of "
            "held_out_rows says of each row where it belongs, and other rows could be chosen by "
            "their labels. Nothing was spent."
        )


def record_promise(
    mechanism: ObjectivePerturbation | GaussianMechanism | RankingObjectivePerturbation,
    ledger: Ledger,
    entropy: _random.Entropy,
    *,
    n: int | None,
    features: Features | None = None,
) -> Guarantee:
    """Return what a release promises to one record under the terms of a ledger."""
    unit, neighbors = ledger.budget.unit, ledger.budget.neighbors
    if unit == "person":
        raise PrivacyError(
            "This ledger counts whole persons, and a person may have made many records; what "
            "protects records hides one of them. Nothing was released. Use a ledger with "
            "unit='record', or hide all labels of a person with RandomizedResponse."
        )
    if unit == "label":
        raise PrivacyError(
            "This ledger counts labels and takes prompts and answers as public; a release of "
            "records does not. Nothing was released. Use a ledger with unit='record', or a "
            "mechanism for labels."
        )
    promise = weighed(
        mechanism.guarantee(unit=unit, neighbors=neighbors, trust="central"), n, ledger.accepted
    )
    # always a group, for whether records name persons is as private as all else of them
    named = promise.with_caveats("person-group", *caveats_of_features(features))
    return named.drawn(entropy.randomness)


def record_differences(pairs: Pairs, features: Features | None) -> Float[np.ndarray, "n d"]:
    """Return the feature difference of every record, dense; also of no record at all."""
    pairs.refuse_shared()
    features = features_of_hidden(features, pairs)
    if not len(pairs) and pairs.given is None and isinstance(features, Features):
        return np.zeros((0, features.dimension))  # a function of the user may not take none
    return record_rows(lambda: pairs.differences(features))


def record_rows(made: Callable[[], Any]) -> Float[np.ndarray, "n d"]:
    """Return the features of records, dense; whatever is wrong with them is said in one wording."""
    try:
        rows = made()
        dense = np.asarray(rows.toarray() if issparse(rows) else rows, dtype=np.float64)
    except DataError:
        dense = np.full((1, 1), math.nan)
    if not np.isfinite(dense).all():
        raise DataError(
            "The features of a record cannot be used: another shape than was said, or a NaN or an "
            "infinity. Nothing was spent. Which record is not said, for records are private."
        )
    return dense
