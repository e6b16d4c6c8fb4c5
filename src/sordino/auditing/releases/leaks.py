"""Does a file that claims local privacy leak?

Every attack of docs/auditing.md is tried on it, with or without the raw file, and one procedure
decides over all of them. Nothing is written and nothing is spent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import expit

from sordino import _validate
from sordino.auditing.findings import Audit, Finding, Measurement, largest_unnoticed
from sordino.auditing.statistical.bounds import clopper_pearson
from sordino.errors import UsageError
from sordino.preferences.containers import Progress
from sordino.preferences.pairs import MANIFEST_FORMAT
from sordino.privacy.guarantee import CAVEATS, REPLACE_ONE, Guarantee, Trust, Unit, never_less

from .channels import PublicKnowledge, attack_channels, order_channels, recovery_bound
from .flips import attack_flips, find_exact_count, measure_flips, rows_that_judge
from .reading import (
    UNKNOWN,
    Channel,
    Evidence,
    Released,
    at_least,
    decide,
    join_truth,
    raw_columns,
    raw_fields,
    read_released,
)
from .recipes import id_channels, reproduces, rule_bits
from .seed_attack import attack_coins, seed_findings
from .surroundings import (
    find_manifest_leaks,
    find_neighbors,
    find_other_claims,
    find_repeats,
    most_paid_labels,
    stated_losses,
)

_SUSPICIOUS = 1e-3
_CONFIDENCE = 0.95
_SAME = 0.99  # share of rows in which undone coins and an order say the same
_SCHEMA = "raw-schema"
_NEED_RAW = (
    "flip-rate",
    "shared-coin",
    "person-coin",
    "reused-coin",
    "label-flips",
    "block-flips",
    "stratum-flips",
    "neighbor-flips",
    "exact-flips",
    "row-order",
    "column",
)
_OTHERS = ("seed", "position", "id-hash", "join", "repeats", "constant-truth", "manifest", "claim")
_NO_MANIFEST = (
    "There is no manifest, so nothing says what was promised, by which coin, and whether a seed is "
    "published: give the manifest (--manifest), or ask for it whoever made the file."
)
_OTHERS_MANIFEST = (
    "The manifest is of another file, so nothing says what was promised of this one: give its own "
    "(--manifest)."
)
_NO_RAW = (
    "Without the raw file nobody can count what was flipped, so no attack measures a loss: give it "
    "(--raw), or ask for an audit whoever holds it."
)
_PATTERNS = 3  # attacks that count flips in groups of rows, and measure ε by one of these
_NEED_PERSONS = ("shared-coin", "person-coin", "reused-coin")


def audit_release(  # noqa: PLR0913 (each is one choice of the user)
    path: str | Path,
    *,
    epsilon: float,
    unit: Unit,
    manifest: str | Path | None = None,
    raw: str | Path | None = None,
    covariates: Sequence[str] = (),
    person_field: str = "person",
    level: float = 1e-3,
    seeds: Sequence[int] = range(10_001),
    progress: Progress | None = None,
) -> Audit:
    """Return what every attack on a released file found, and whether its claim is refuted."""
    # Source: Holm 1979 over all attacks with a p-value; docs/auditing.md names them.
    _validate.one_of("unit", unit, ("label", "person"))
    _validate.failure_probability("level", level, zero=False)
    path = Path(path)
    beside = None if manifest is None else Path(manifest)
    fields = raw_fields(path, manifest=beside, person_field=person_field)
    if fields:
        claim = Guarantee(epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust="local")
        return _raw_judgments(path, claim, fields, level)
    released = read_released(
        path, epsilon=epsilon, manifest=manifest, person_field=person_field, progress=progress
    )
    if isinstance(covariates, str) or not set(covariates) <= released.columns.keys():
        raise UsageError(
            f"covariates must be names of columns that every layout leaves over, got "
            f"{covariates!r}. Nothing was audited."
        )
    # What lies inside a declared column was fixed no later.
    inside = tuple(f"{name}{mark}" for name in covariates for mark in ".[")
    parts = (name for name in released.columns if name.startswith(inside))
    covariates = tuple(dict.fromkeys([*covariates, *parts]))
    claim = _claim(released, unit)
    released = replace(released, epsilon=_label_epsilon(released, claim))
    joined = []
    if raw is not None:
        released, counts = join_truth(released, raw, person_field=person_field, progress=progress)
        joined = [
            Finding(
                attack="join",
                outcome="clear",
                summary=f"The raw file tells the truth of {counts.matched} rows; "
                f"{counts.unmatched} are not in it, {counts.ambiguous} fit different labels, "
                f"{counts.undecided} are undecided.",
                details=counts._asdict(),
            )
        ]
    orders, ids = order_channels(released), id_channels(released)
    channels = [*orders, *ids]
    # The orders of the two answers: as written, and as the ids hash them.
    fixed = [channel for channel in channels if channel.name in {"position", "id-hash"}]
    coins = attack_coins(released, channels, seeds=seeds, progress=progress)
    undone = [hit.guesses for hit in coins.hits]
    measured: tuple[Measurement, ...] = ()
    lacks = [_NO_RAW] if raw is None else []
    if raw is None:
        findings = [_alone(released, channel, undone) for channel in fixed]
        findings += map(Finding.skipped, ("join", *_NEED_RAW))
    else:
        evidence = [
            *attack_channels(released, channels, covariates=covariates),
            *attack_flips(released),
        ]
        # Of every attack and column the strongest counts, and how many there were is said.
        kept: defaultdict[tuple[str, object], list[tuple[Evidence, Finding]]] = defaultdict(list)
        for one, finding in zip(evidence, decide(evidence, level), strict=True):
            kept[one.attack, one.details.get("column")].append((one, finding))
        best = [(min(same, key=lambda pair: pair[0].p_value), len(same)) for same in kept.values()]
        strongest = [
            (one, replace(finding, details={**finding.details, "tried": tried}))
            for (one, finding), tried in best
        ]
        findings = [*joined, *find_exact_count([found for _, found in strongest])]
        lacking = "There is nothing to try it on."
        for attack in _NEED_RAW:
            if attack not in {each.attack for each in evidence}:
                nobody = attack in _NEED_PERSONS and released.persons is None
                findings.append(Finding.skipped(attack, "" if nobody else lacking))
        public = PublicKnowledge(released=released, covariates=covariates)
        refuting = [each for each, found in strongest if found.outcome == "refutes"]
        # However strong the other evidence is, a p-value of this size refutes (Holm).
        sure = level / max(len(evidence), 1)
        tried = 1 + _PATTERNS + len(channels)
        measured = _measured(public, refuting, undone, tried=tried, level=sure)
        lacks += _too_few(measured, sure)
    other_claims = find_other_claims(released, claim, path)
    if released.manifest is None or other_claims.details.get("another_file"):
        lacks.insert(0, _NO_MANIFEST if released.manifest is None else _OTHERS_MANIFEST)
    return Audit(
        kind="release",
        subject=path.name,
        claim=claim,
        findings=(
            _schema(released),
            *seed_findings(coins, released),
            *findings,
            *find_repeats(released, claim),
            _constant_truth(released, fixed),
            find_manifest_leaks(released),
            other_claims,
            find_neighbors(released, path),
            _content(released),
        ),
        measured=measured,
        level=level,
        confidential=raw is not None,
        lacks=tuple(lacks),
    )


def _raw_judgments(path: Path, claim: Guarantee, fields: Sequence[str], level: float) -> Audit:
    """Return that a file is refuted as a private release, as it holds raw judgments."""
    wrong = (
        f"The file holds raw judgments ({' and '.join(map(repr, fields))}) and nothing says that "
        "they were randomized: whoever gets it reads every label. Do not publish it. Randomize it "
        "first: sordino privatize FILE --epsilon E --out answers.jsonl; then audit answers.jsonl, "
        "and give this file as --raw."
    )
    nothing = "It needs randomized answers, and there are none."
    skipped = (Finding.skipped(attack, nothing) for attack in (*_OTHERS, *_NEED_RAW))
    return Audit(
        kind="release",
        subject=path.name,
        claim=claim,
        findings=(Finding.judged(_SCHEMA, wrong=wrong), *skipped),
        level=level,
    )


def _schema(released: Released) -> Finding:
    """Return whether raw judgments stand beside the answers, or in their place."""
    fields = raw_columns(released)
    wrong = (
        f"Raw judgments stand beside the answers ({' and '.join(map(repr, fields))}): whoever gets "
        "the file reads them. Do not publish it; take them out and audit it again."
    )
    odd = (
        "The file is written as raw judgments are, and only its manifest says that their order is "
        "randomized."
    )
    return Finding.judged(
        _SCHEMA,
        wrong=wrong if fields else "",
        odd=odd if released.layout == "chosen-rejected" else "",
        clear="No field is one of raw judgments.",
    )


def _too_few(measured: Sequence[Measurement], level: float) -> list[str]:
    """Return that there are too few rows to judge, and how many would do; empty if not."""
    flips = next((found for found in measured if found.power is not None), None)
    if flips is None:
        return ["Too few rows: of none the label is known."]
    if flips.judges or flips.power is None:
        return []
    most = largest_unnoticed(flips.claimed)
    rows = rows_that_judge(flips.claimed, level, most)
    found = "no loss would surely have been found"
    if math.isfinite(flips.power):
        found = f"only epsilon={never_less(flips.power, 4)} or more would have been found"
    enough = "no file has enough rows" if rows is None else f"about {rows:,} rows would do"
    few = (
        f"Too few rows: {found}, and epsilon={never_less(flips.claimed)} is claimed of a label; an "
        f"audit must find epsilon={never_less(most, 4)}, and {enough}."
    )
    return [few]


def _claim(released: Released, unit: Unit) -> Guarantee:
    """Return the promise that is tested; who is trusted, and caveats, are those of our manifest."""
    has = released.manifest or {}
    ours = has if has.get("format") == MANIFEST_FORMAT else {}
    stated = ours.get("caveats")
    texts = [name for name in stated if isinstance(name, str)] if isinstance(stated, list) else []
    caveats = CAVEATS.keys() & set(texts)
    trust: Trust = "central" if ours.get("trust") == "central" else "local"
    return Guarantee(
        released.epsilon,
        delta=0.0,
        unit=unit,
        neighbors=REPLACE_ONE,
        trust=trust,
        randomness="simulated" if "simulated" in caveats else "system",
        caveats=tuple(caveats | ({"labels-only"} if unit == "person" else set())),
    )


def _label_epsilon(released: Released, claim: Guarantee) -> float:
    """Return the most that one label may lose under a claim, if all labels have one coin."""
    # Of a promise for a whole person that is an equal share for each paid answer, or what the coin
    # in the manifest costs if that is more; all of it where neither is known.
    losses = stated_losses(released.manifest)
    if claim.unit != "person" or losses is None or released.persons is None:
        return claim.epsilon
    share = claim.epsilon / most_paid_labels(released)
    return min(claim.epsilon, max(share, losses[1]))


def _alone(released: Released, channel: Channel, undone: Iterable[np.ndarray]) -> Finding:
    """Return whether one order is shown, without the raw file, to be the preference."""
    shared = 0.0
    for labels in undone:
        told = channel.speaks & (labels != UNKNOWN)
        if 2 * told.sum() >= len(labels) > 0:  # an order that says nothing of most rows shows none
            share = float((channel.guesses == labels)[told].mean())
            shared = max(shared, share, 1 - share)
    if shared >= _SAME:
        return Finding(
            attack=channel.name,
            outcome="refutes",
            summary="With the coins undone, the labels are this order: it is the preference.",
            recovered=shared,
            details=channel.details,
        )
    told = channel.speaks
    for rule, bits in rule_bits(released).items():
        if reproduces(bits[told], channel.guesses[told]):
            return Finding(
                attack=channel.name,
                outcome="clear",
                summary=f"It is a public order of the texts ({rule}).",
                details={**channel.details, "rule": rule},
            )
    return Finding(
        attack=channel.name,
        outcome="warning",
        summary="No public order of the texts explains it, and what does cannot be told from "
        "this file alone: with the raw file it may turn out to be the preference.",
        details=channel.details,
    )


def _measured(
    public: PublicKnowledge,
    refuting: Iterable[Evidence],
    undone: Sequence[np.ndarray],
    *,
    tried: int,
    level: float,
) -> tuple[Measurement, ...]:
    """Return lower bounds on ε, the largest first, that all hold together."""
    # Every channel and every recipe that hit counts as tried, whichever is measured in the end.
    released = public.released
    confidence = 1 - (1 - _CONFIDENCE) / (tried + len(undone))
    bounds = [(each.bound(confidence), each.attack) for each in refuting if each.bound is not None]
    for labels in undone:
        rows = np.asarray(public.known & (labels != UNKNOWN))
        if rows.any():
            right = int((labels == public.truth)[rows].sum())
            odds = public.log_odds(rows)
            bounds.append((recovery_bound(right, int(rows.sum()), odds, confidence), "seed"))
    claimed = released.epsilon
    found = [
        Measurement(
            metric="epsilon", claimed=claimed, lower=lower, confidence=_CONFIDENCE, attack=attack
        )
        for lower, attack in bounds
    ]
    flips = measure_flips(released, confidence, level=level)
    if flips is not None:
        found.append(replace(flips, confidence=_CONFIDENCE))
    return tuple(sorted(dict.fromkeys(found), key=lambda measured: -measured.lower))


def _constant_truth(released: Released, orders: Iterable[Channel]) -> Finding:
    """Return whether the answers look like one constant label that was randomized."""
    # The answers then agree with a fixed order as often as a coin of this ε keeps a label: more
    # often than half the time, and not more often than that. Either end of the order may be the
    # preferred one.
    kept = float(expit(released.epsilon))
    frames = [(channel.name, channel.guesses) for channel in orders]
    frames.append(("canonical order", np.asarray(1 - released.swapped, dtype=np.int8)))
    names = []
    ordered = released.layout not in {"chosen-rejected", "completion"}
    for name, guesses in frames if ordered else ():
        told = guesses != UNKNOWN
        n, agree = int(told.sum()), int((released.answers == guesses)[told].sum())
        most = max(agree, n - agree)
        low, high = clopper_pearson(most, n, (1 + _CONFIDENCE) / 2)
        if low <= kept <= high and 2 * at_least(most, n, 0.5) < _SUSPICIOUS:
            names.append(name)
    names = list(dict.fromkeys(names))
    odd = (
        f"In some order ({', '.join(names)}) the answers agree as often as if the first one were "
        "always preferred and then randomized. The raw file tells."
    )
    return Finding.judged(
        "constant-truth",
        odd=odd if names else "",
        clear="In no order do the answers look like one constant label that was randomized.",
        details={"orders": names} if names else {},
    )


def _content(released: Released) -> Finding:
    """Return how far the answers prefer longer texts: people do, so it is no leak."""
    if released.layout == "completion":
        return Finding(
            attack="content",
            outcome="clear",
            summary="Each answer was judged by itself: none is preferred to a longer one.",
            details={},
        )
    rows = zip(released.first, released.second, strict=True)
    longer = np.array([np.sign(len(one) - len(other)) for one, other in rows], dtype=np.int8)
    told = longer != 0
    n = int(told.sum())
    wins = int(((longer > 0) == (released.answers == 1))[told].sum())
    score = (2 * wins - n) / math.sqrt(n) if n else 0.0
    return Finding(
        attack="content",
        outcome="clear",
        summary=f"Answers prefer longer texts by {score:.1f} standard deviations: a taste of "
        "people in general, not a leak.",
        details={"rows": n, "standard_deviations": score},
    )
