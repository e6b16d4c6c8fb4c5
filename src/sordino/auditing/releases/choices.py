"""Whether a file of randomized choices keeps what it claims: by arithmetic, and by counting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from sordino.auditing.findings import Audit, Finding, Measurement
from sordino.auditing.statistical.bounds import clopper_pearson
from sordino.errors import DataError
from sordino.preferences.pairs import label_loss, most_questions
from sordino.preferences.rankings import PrivateChoices, Rankings, read_rankings
from sordino.privacy.guarantee import Guarantee, never_less, never_more

_ROUNDED = 1e-9  # relative, of numbers that were written down
_NOT_CALLED = (
    "How large a loss would have been found is not known for choices, so none is called not "
    "refuted: audit the die itself (sordino.audit of a KaryRandomizedResponse)."
)


def audit_choices(
    path: Path,
    claim: Guarantee,
    manifest: str | Path | None,
    *,
    raw: str | Path | None,
    level: float,
    lacks: Sequence[str],
) -> Audit:
    """Return what a file of randomized choices, its manifest and the raw ballots refute."""
    made = read_rankings(path, manifest=manifest)
    assert isinstance(made, PrivateChoices)  # noqa: S101 - for the type checker
    labels, each = 1, label_loss(made.flip_probability, made.categories)
    if claim.unit == "person" and made.persons is not None:
        labels = most_questions(made.persons, made.keys)
    wrong = (
        f"One person gave {labels} answers with the die that the manifest states: "
        f"epsilon={never_less(labels * each)} together, more than is claimed."
    )
    stated = Finding.judged(
        "claim",
        wrong=wrong if labels * each > claim.epsilon * (1 + _ROUNDED) else "",
        clear="The manifest states a die that keeps the claim.",
        details={"labels": labels, "each": each, "categories": made.categories},
    )
    counted, measured = Finding.skipped("flip-rate"), tuple[Measurement, ...]()
    if raw is not None:
        loss = min(claim.epsilon, max(claim.epsilon / labels, each))
        table = _answers_by_choice(made, read_rankings(raw))
        lower = _surely_lost(table, level)
        said = (
            f"An answer is surely e^{never_more(lower, 4)} times as frequent among those who meant "
            f"it as among the others; e^{never_less(loss, 4)} is permitted"
        )
        counted = Finding.judged(
            "flip-rate",
            wrong=f"{said}." if lower > loss else "",
            clear=f"{said}, up to chance.",
            details={"rows": int(table.sum()), "kept": int(np.trace(table))},
        )
        terms = {"claimed": loss, "lower": lower, "confidence": 1 - level}
        measured = (Measurement(metric="epsilon", attack="flip-rate", **terms),)
    return Audit(
        kind="release",
        subject=path.name,
        claim=claim,
        findings=(stated, counted),
        measured=measured,
        level=level,
        confidential=raw is not None,
        lacks=(*lacks, _NOT_CALLED),
    )


def _answers_by_choice(made: PrivateChoices, raw: object) -> Int64[np.ndarray, "k k"]:
    """Return how many answers are j of people whose choice was i; one for each of a person."""
    k = made.categories
    if not isinstance(raw, Rankings) or (raw.sizes != k).any():
        raise DataError(f"The raw file does not hold ballots of {k} candidates each.")
    ranks = raw.doubled_ranks().reshape(-1, k)
    single = (ranks == ranks.min(axis=1, keepdims=True)).sum(axis=1) == 1
    best = np.where(single, ranks.argmin(axis=1), -1).tolist()
    linked = made.persons is not None and raw.persons is not None
    whose = (one.persons if linked and one.persons else [""] * len(one) for one in (raw, made))
    known, asked = (
        list(zip(who, one.keys, strict=True)) for who, one in zip(whose, (raw, made), strict=True)
    )
    truth, table = dict(zip(known, best, strict=True)), np.zeros((k, k), dtype=np.int64)
    for row in np.flatnonzero(made.first_rows()).tolist():
        if truth.get(asked[row], -1) >= 0:
            table[truth[asked[row]], made.answers[row]] += 1
    if 2 * table.sum() < len(made):
        raise DataError(
            "The raw file does not fit: the choice of fewer than half of the answers is in it. "
            "Nothing was audited. Give the file that the release was made from."
        )
    return table


def _surely_lost(table: Int64[np.ndarray, "k k"], level: float) -> float:
    """Return a loss that is surely exceeded: of one answer, among who meant it and who did not."""
    # One die answers all: j comes out at most e^ε times as often for who chose j. Exact bounds of
    # both rates hold together over all j.
    lower, k = 0.0, len(table)
    for j in range(k):
        own, others = int(table[j].sum()), int(table.sum() - table[j].sum())
        if own and others:
            low, _ = clopper_pearson(int(table[j, j]), own, 1 - level / k)
            _, high = clopper_pearson(int(table[:, j].sum() - table[j, j]), others, 1 - level / k)
            lower = max(lower, math.log(low / high) if low > 0 else 0.0)
    return lower
