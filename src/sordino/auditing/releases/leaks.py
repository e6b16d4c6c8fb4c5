"""Does a file that claims local privacy leak, or what lies beside it and inside its manifest?

Every attack of docs/auditing.md is tried on it, with or without the raw file, and one procedure
decides over all of them. Nothing is written and nothing is spent. What surrounds a file refutes no
claim: it is bad practice, or what other attacks start from; but for one question asked more than
once, whose answers say something without the raw file.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeGuard, get_args

import numpy as np
from jaxtyping import Int64, Integer
from scipy.special import expit

from sordino import _validate
from sordino._files import beginning, explained, sha256_of
from sordino.auditing.findings import ATTACKS, RAW, Audit, Finding, Measurement, largest_unnoticed
from sordino.auditing.statistical.bounds import clopper_pearson
from sordino.errors import DataError, UsageError
from sordino.preferences.containers import Progress, read_table, separator
from sordino.preferences.files import kind_of
from sordino.preferences.pairs import MANIFEST_FORMAT, label_loss, most_questions
from sordino.preferences.rankings import PrivateChoices, Rankings, read_rankings
from sordino.preferences.records import LABELS, canonical
from sordino.preferences.schemas import CHOICES
from sordino.privacy.guarantee import (
    CAVEATS,
    REPLACE_ONE,
    Guarantee,
    Trust,
    Unit,
    float_to_json,
    never_less,
    never_more,
)

from .channels import PublicKnowledge, attack_channels, order_channels, recovery_bound
from .flips import attack_flips, find_exact_count, measure_flips, rows_that_judge
from .reading import (
    EPSILONS,
    RATES,
    READ,
    UNKNOWN,
    Channel,
    Evidence,
    Released,
    agreement_of_coins,
    at_least,
    decide,
    flat,
    join_truth,
    layout_of,
    raw_columns,
    raw_fields,
    read_question,
    read_released,
    readable,
    row_answer,
)
from .recipes import id_channels, reproduces, rule_bits
from .seed_attack import attack_coins, seed_finding

_SUSPICIOUS = 1e-3
_CONFIDENCE = 0.95
_SAME = 0.99  # share of rows in which undone coins and an order say the same
_SCHEMA = "raw-schema"
# What times tell is tried as a column's reading, and to join is no attack.
_NEED_RAW = [
    name
    for name, told in ATTACKS.items()
    if told["needs"].startswith(RAW) and name not in {"time", "join"}
]
_OTHERS = ("seed", "position", "id-hash", "join", "repeats", "constant-truth", "manifest", "claim")
_NO_RAW = ATTACKS["join"]["no_raw_file"]
_PATTERNS = 3  # attacks that count flips in groups of rows, and measure ε by one of these


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
    path, beside = Path(path), None if manifest is None else Path(manifest)
    promised = Guarantee(epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust="local")
    if path.is_file() and kind_of(path) == CHOICES:
        return _audit_choices(path, promised, beside, raw=raw, level=level)
    fields = raw_fields(path, manifest=beside, person_field=person_field)
    if fields:
        return _raw_judgments(path, promised, fields, level)
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
    claim, released = _claim(released, unit)
    joined = []
    if raw is not None:
        released, counts = join_truth(released, raw, person_field=person_field, progress=progress)
        joined = [Finding.judged("join", details=counts._asdict())]
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
        played = {each.attack for each in evidence}
        for attack in (name for name in _NEED_RAW if name not in played):
            nobody = ATTACKS[attack]["needs"] != RAW and released.persons is None
            why = "" if nobody else "There is nothing to try it on."
            findings.append(Finding.skipped(attack, why))
        public = PublicKnowledge(released=released, covariates=covariates)
        refuting = [each for each, found in strongest if found.outcome == "refutes"]
        # However strong the other evidence is, a p-value of this size refutes (Holm).
        sure = level / max(len(evidence), 1)
        tried = 1 + _PATTERNS + len(channels)
        measured = _measured(public, refuting, undone, tried=tried, level=sure)
        lacks += _too_few(measured, sure)
    other_claims = find_other_claims(released, claim, path)
    if released.manifest is None or other_claims.details.get("another_file"):
        lacks.insert(0, ATTACKS["manifest"]["foreign" if released.manifest else "unknown_claim"])
    return Audit(
        kind="release",
        subject=path.name,
        claim=claim,
        findings=(
            _schema(released),
            seed_finding(coins, released),
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
    named = " and ".join(map(repr, fields))
    nothing = "It needs randomized answers, and there are none."
    skipped = (Finding.skipped(attack, nothing) for attack in (*_OTHERS, *_NEED_RAW))
    return Audit(
        kind="release",
        subject=path.name,
        claim=claim,
        findings=(Finding.judged(_SCHEMA, wrong="raw_file", fields=named), *skipped),
        level=level,
    )


def _schema(released: Released) -> Finding:
    """Return whether raw judgments stand beside the answers, or in their place."""
    fields = raw_columns(released)
    odd, named = released.layout == "chosen-rejected", " and ".join(map(repr, fields))
    return Finding.judged(_SCHEMA, wrong=bool(fields), odd=odd, fields=named)


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


def _claim(released: Released, unit: Unit) -> tuple[Guarantee, Released]:
    """Return the promise that is tested, and the rows with the most that a label may lose by it."""
    # Who is trusted, and caveats, are those of our manifest.
    has = released.manifest or {}
    ours = has if has.get("format") == MANIFEST_FORMAT else {}
    stated = ours.get("caveats")
    caveats = [name for name in CAVEATS if isinstance(stated, list) and name in stated]
    claim = Guarantee(
        released.epsilon,
        delta=0.0,
        unit=unit,
        neighbors=REPLACE_ONE,
        trust="central" if ours.get("trust") == "central" else "local",
        randomness="simulated" if "simulated" in caveats else "system",
        caveats=tuple(dict.fromkeys([*caveats, *(["labels-only"] if unit == "person" else [])])),
    )
    # Of a promise for a whole person, whose labels all have one coin, it is an equal share for each
    # paid answer, or what the coin in the manifest costs if that is more; else all of it.
    losses = stated_losses(released.manifest)
    if unit == "person" and losses is not None and released.persons is not None:
        share = claim.epsilon / most_paid_labels(released)
        released = replace(released, epsilon=min(claim.epsilon, max(share, losses[1])))
    return claim, released


def _alone(released: Released, channel: Channel, undone: Iterable[np.ndarray]) -> Finding:
    """Return whether one order is shown, without the raw file, to be the preference."""
    shared = 0.0
    for labels in undone:
        told = channel.speaks & (labels != UNKNOWN)
        if 2 * told.sum() >= len(labels) > 0:  # an order that says nothing of most rows shows none
            share = float((channel.guesses == labels)[told].mean())
            shared = max(shared, share, 1 - share)
    told, refutes = channel.speaks, shared >= _SAME
    explained_by = (
        name
        for name, bits in rule_bits(released).items()
        if reproduces(bits[told], channel.guesses[told])
    )
    rule = None if refutes else next(explained_by, None)
    wrong = "With the coins undone, the labels are this order: it is the preference."
    odd = (
        "No public order of the texts explains it, and what does cannot be told from this file "
        "alone: with the raw file it may turn out to be the preference."
    )
    found = Finding.judged(
        channel.name,
        wrong=wrong if refutes else "",
        odd="" if refutes or rule else odd,
        clear=f"It is a public order of the texts ({rule}).",
        details=channel.details if rule is None else {**channel.details, "rule": rule},
    )
    return replace(found, recovered=shared) if refutes else found


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
    of_any = partial(Measurement, metric="epsilon", claimed=released.epsilon)
    found = [of_any(lower=low, confidence=_CONFIDENCE, attack=attack) for low, attack in bounds]
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
    found = {"orders": list(dict.fromkeys(names))} if names else {}
    which = ", ".join(dict.fromkeys(names))
    return Finding.judged("constant-truth", odd=bool(names), details=found, which=which)


def _content(released: Released) -> Finding:
    """Return how far the answers prefer longer texts: people do, so it is no leak."""
    if released.layout == "completion":
        return Finding.judged("content", clear="single")
    rows = zip(released.first, released.second, strict=True)
    longer = np.array([np.sign(len(one) - len(other)) for one, other in rows], dtype=np.int8)
    told = longer != 0
    n = int(told.sum())
    wins = int(((longer > 0) == (released.answers == 1))[told].sum())
    score = (2 * wins - n) / math.sqrt(n) if n else 0.0
    return Finding.judged("content", details={"rows": n, "standard_deviations": score})


_CERTAIN, _RATE = RATES  # the latter may be counted from the flips themselves, which is no coin

_ACCIDENT = 1e-9
_FAIR = 0.5
_SLACK = 1e-9  # relative: a total is a product of floats


def _canonical_answers(released: Released) -> Integer[np.ndarray, " n"]:
    """Return answers in the canonical order; 0 where both texts are the same and none can win."""
    same = [one == other for one, other in zip(released.first, released.second, strict=True)]
    return np.where(same, 0, released.answers ^ released.swapped)


def find_repeats(released: Released, claim: Guarantee) -> list[Finding]:
    """Return what questions that occur more than once say of the claim."""
    # Only a promise about whole persons can be refuted here: answers of one person to one question
    # that differ are releases of their own, and a coin that the manifest states, paid for that many
    # times, is more than was promised. It is arithmetic, so it has no p-value. A rate that may have
    # been counted states no coin: it is a warning.
    # Without person ids every answer has the same giver, None.
    people = released.persons or (None,) * len(released)
    answers = _canonical_answers(released).tolist()
    given: defaultdict[bytes, defaultdict[str | None, list[int]]]
    given = defaultdict(lambda: defaultdict(list))
    for key, person, answer in zip(released.keys, people, answers, strict=True):
        given[key][person].append(answer)
    several = [] if released.releases is None else [_several(released, released.releases)]
    again = [each for givers in given.values() for each in givers.values() if len(each) > 1]
    differing = [each for each in again if len(set(each)) > 1]
    if released.persons is None:
        most = max(map(len, again), default=0)
        counts = {"questions": len(again), "most": most, "differing": len(differing)}
        told = {"odd": "unlinked", "details": counts} if again else {"clear": "once"}
        return [*several, Finding.judged("repeats", **told)]
    # The first answers of two persons to each question: no answer is used twice.
    first = ([each[0] for each in givers.values()][:2] for givers in given.values())
    couples = [(pair[0], pair[1]) for pair in first if len(pair) > 1]
    details: dict[str, object] = {
        "differing": len(differing),
        "most": max(map(len, differing), default=1),
    }
    wrong, odd, cost = False, "", ""
    losses, labels = stated_losses(released.manifest), most_paid_labels(released)
    total = 0.0 if losses is None or claim.unit != "person" else labels * losses[0]
    if total * (1 - _SLACK) > claim.epsilon:
        details |= {"labels": labels, "total": total}
        cost = f"epsilon={never_less(total)} for that person, more than is claimed"
        wrong = _is_a_coin(released, claim)
        odd = "" if wrong else "rate"
    elif differing:
        odd = "odd"
    found = Finding.judged("repeats", wrong=wrong, odd=odd, details=details, cost=cost)
    return [*several, found, _together(released, couples)]


def _several(released: Released, releases: Sequence[str]) -> Finding:
    """Return whether a folder holds answers of several releases, to the same questions."""
    people = released.persons or (None,) * len(released)
    found: defaultdict[tuple[bytes, str | None], set[str]] = defaultdict(set)
    for key, person, release in zip(released.keys, people, releases, strict=True):
        found[key, person].add(release)
    drawn = [len(ids) for ids in found.values() if len(ids) > 1]
    count, most = len(set(releases)), max(drawn, default=1)
    whose = "" if released.persons is None else " of one person"
    details = {"releases": count, "questions": len(drawn), "most": most}
    return Finding.judged("releases", odd=bool(drawn), details=details, whose=whose)


def _is_a_coin(released: Released, claim: Guarantee) -> bool:
    """Return whether the flips that a manifest states are surely the chance of a coin."""
    # A flip rate in anybody's manifest may be the share of answers that were flipped. It is a coin
    # if it fits an epsilon that the manifest states, and honest coins hardly flip so few.
    has, losses = released.manifest or {}, stated_losses(released.manifest)
    rate = has.get(_RATE)
    if losses is None or has.get("format") == MANIFEST_FORMAT or _is_rate(has.get(_CERTAIN)):
        return losses is not None
    stated = [has.get(name) for name in EPSILONS]
    low, high = losses
    fits = any(isinstance(e, int | float) and e is not True and low <= e <= high for e in stated)
    if not fits or not _is_rate(rate):
        return False
    # Source: A coin of ε_i flips with probability at least 1/2 − ε_i/4, and the ε_i of one person
    # add up to ε; rows that may repeat one stored answer count as one coin of their weight. The
    # tail by Hoeffding 1963, Theorem 2.
    most = min(rate + _last_digit(rate), _FAIR)
    weights = Counter(zip(released.persons or (), released.keys, strict=True))
    largest: defaultdict[str, int] = defaultdict(int)
    for (person, _), weight in weights.items():
        largest[person] = max(largest[person], weight)
    gap = len(released) * (_FAIR - most) - claim.epsilon / 4 * sum(largest.values())
    squares = sum(weight * weight for weight in weights.values())
    return gap > 0 and math.exp(-2 * gap * gap / squares) < _ACCIDENT


def most_paid_labels(released: Released) -> int:
    """Return how many paid answers one person gave at most, as far as the answers show it."""
    # Equal answers to one question count once, for they may be one answer repeated; different ones
    # count twice, for they cannot.
    people: Sequence[str] = released.persons or ()
    turned = _canonical_answers(released).tolist()
    paid = [key + bytes([answer]) for key, answer in zip(released.keys, turned, strict=True)]
    return most_questions(people, paid)


def stated_losses(manifest: Mapping[str, object] | None) -> tuple[float, float] | None:
    """Return the least and the most that one label loses by the coin that a manifest states."""
    # Our manifests state the coin exactly; in any other a flip probability may have been rounded or
    # cut to the digits that it is written with, and the coin itself may be honest.
    has = manifest or {}
    for value in (has.get(_CERTAIN), has.get(_RATE)):
        if _is_rate(value):
            exact = has.get("format") == MANIFEST_FORMAT
            slack = 0.0 if exact else _last_digit(value)
            return label_loss(min(value + slack, _FAIR)), label_loss(max(value - slack, 0.0))
    return None


def _is_rate(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and 0 < value <= _FAIR


def _last_digit(value: float) -> float:
    """Return one unit of the last digit that a number is written with: cutting loses up to that."""
    exponent = Decimal(repr(value)).as_tuple().exponent
    return float(Decimal(1).scaleb(int(exponent)))


def _together(released: Released, couples: Sequence[tuple[int, int]]) -> Finding:
    """Return whether different persons agree on one question more often than coins let them."""
    agree = sum(one == other for one, other in couples)
    most = agreement_of_coins(released.epsilon)
    chance = at_least(agree, len(couples), most)
    return Finding.judged(
        "shared-answers",
        odd=chance <= _SUSPICIOUS,
        p_value=chance,
        details={"questions": len(couples), "agree": agree, "expected_at_most": most},
    )


_RAW = r"raw|source|input|original"
_TELLING: Mapping[str, str] = {
    "exact flip counts or rates": r"flip.*(count|empirical|observed|actual|realized|ci|total)"
    r"|(count|number|num|n|observed|empirical)_?(of_)?flip|flipped|empirical_rate",
    "a seed": r"seed|salt$|secret|hmac.*key",
    "digests of raw files": rf"({_RAW}).*(sha|md5|digest|hash|checksum|crc)"
    rf"|(sha|md5|digest|hash|checksum|crc).*({_RAW})",
    "where raw files lie": rf"({_RAW}).*(file|path|folder|dir|uri|url|location)",
    "counts of raw records": rf"(split|{_RAW}|\b(train|test|val)).*(count|rows|lines|records|size)"
    rf"|(count|rows|lines|records|size)s?_?(of_)?({_RAW})",
    "samples of answers": r"sample|example|preview|excerpt",
    "time stamps to the second": r"(created|written|generated|modified|updated|finished|started)"
    r"|time|date",
}
_ONLY_LISTS, _ONLY_TIMES = "samples of answers", "time stamps to the second"
_TIME = re.compile(r"\d\d:\d\d")
_EPOCH = 1e8  # seconds; a smaller number is no time stamp
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.\-]{1,80}")
_DEEPEST = 6
_ROUNDED = 0.01  # relative: people write 0.475 for 1/(1 + e^0.1)

_TERMS: Mapping[str, tuple[str, ...]] = {"unit": get_args(Unit), "trust": get_args(Trust)}

_MOST_FILES = 200
_HEAD = 1 << 20
_FEWEST_TO_COMPARE = 20


def find_manifest_leaks(released: Released) -> Finding:
    """Return what the manifest tells beside what a claim needs, by the names of its keys."""
    if released.manifest is None:
        return Finding.skipped("manifest", "absent")
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key, value in islice(_entries(released.manifest), 2000):
        for what, pattern in _TELLING.items():
            if re.search(pattern, key.lower()) and _is_telling(what, value):
                found[what].append(key if _PLAIN_KEY.fullmatch(key) else "(a key that is no name)")
                break
    shown = "; ".join(f"{what} ({', '.join(keys[:3])})" for what, keys in found.items())
    keys = {what: sorted(set(names))[:10] for what, names in found.items()}
    return Finding.judged(
        "manifest", odd=bool(found), details={"keys": keys} if found else {}, shown=shown
    )


def _entries(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """Yield (dotted key, value) of a JSON object: what lies deepest, and every list as it is."""
    if not isinstance(value, Mapping) or depth == _DEEPEST:
        yield path, value
        return
    for name, part in value.items():
        yield from _entries(part, f"{path}.{name}" if path else str(name), depth + 1)


def _is_telling(what: str, value: object) -> bool:
    """Return whether a value is of the kind that its key suggests; empty ones say nothing."""
    if value is None or isinstance(value, bool) or value in ("", [], {}, "unknown"):
        return False
    if what == _ONLY_LISTS:
        return isinstance(value, list)
    if what == _ONLY_TIMES:
        if isinstance(value, str):
            return bool(_TIME.search(value))
        return isinstance(value, int | float) and value > _EPOCH
    return True


def find_other_claims(released: Released, claim: Guarantee, path: Path) -> Finding:
    """Return whether the manifest states another claim than the one that is tested."""
    has = released.manifest
    if has is None:
        return Finding.skipped("claim", "only_given")
    states: dict[str, object] = {}
    notes = []
    for name in EPSILONS:
        value = has.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if abs(value) <= sys.float_info.max:  # exact for whole numbers of any size
            states[name] = value
            if not math.isclose(value, claim.epsilon, rel_tol=_ROUNDED):
                tested = f"epsilon={never_less(claim.epsilon)} was tested"
                notes.append(f"it states {name}={value:g} and {tested}")
    losses = stated_losses(has)
    if losses is not None:
        if losses[0] > claim.epsilon * (1 + _ROUNDED):
            cost = never_more(losses[0], 4)
            notes.append(f"its flip probability costs at least epsilon={cost}")
        states["label_losses"] = list(map(float_to_json, losses))
    one = released.releases is None  # of a folder's files each has its own
    if one and has.get("format") == MANIFEST_FORMAT and has.get("sha256") != sha256_of(path):
        states["another_file"] = True
        notes.append("it is of another file (its sha256 differs)")
    caveats = has.get("caveats")
    simulated = isinstance(caveats, list) and "simulated" in caveats
    if has.get("local_dp_simulated") or simulated:
        notes.append("it says that the coins are simulated")
    notes += [
        f"its {name} is {has[name]!r} and {getattr(claim, name)!r} was tested"
        for name, permitted in _TERMS.items()
        if has.get(name) in permitted and has[name] != getattr(claim, name)
    ]
    return Finding.judged("claim", odd=bool(notes), details=states, notes="; ".join(notes))


def find_neighbors(released: Released, path: Path) -> Finding:
    """Whether files beside a released one hold raw labels, or answers to the same questions."""
    # Of at most 200 names in the folder, the first MiB of each table or JSON Lines file is looked
    # at, and nothing is written.
    if released.releases is not None:
        return Finding.skipped("surroundings", "all_read")
    ours: defaultdict[bytes, set[int]] = defaultdict(set)
    for key, answer in zip(released.keys, _canonical_answers(released).tolist(), strict=True):
        ours[key].add(answer)
    folder = path.absolute().parent
    with explained("The folder of the file cannot be read"), os.scandir(folder) as entries:
        names = sorted(
            entry.name
            for entry in islice(entries, _MOST_FILES)
            if entry.name != path.name
            and READ.search(entry.name)
            and entry.is_file(follow_symlinks=False)
        )
    found: dict[str, list[str]] = {"raw": [], "released": []}
    for name in names:
        seen = _seen(path.with_name(name), ours)
        # Many answers that are all the same are a copy of the released file.
        copied = seen["released"] >= _FEWEST_TO_COMPARE and not seen["differing"]
        if seen["raw"]:
            found["raw"].append(readable(name))
        elif seen["released"] and not copied:
            found["released"].append(readable(name))
    said = {
        "raw": "raw labels of the same questions lie beside it ({})",
        "released": "other answers to the same questions lie beside it ({}), and whoever has "
        "several pays the sum of their losses",
    }
    notes = [text.format(_some(found[kind])) for kind, text in said.items() if found[kind]]
    return Finding.judged(
        "surroundings",
        odd=bool(notes),
        notes="; ".join(notes),
        details={"looked_at": len(names)} | {kind: sorted(n)[:10] for kind, n in found.items()},
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (" and others" if len(names) > 3 else "")  # noqa: PLR2004


def _seen(path: Path, ours: Mapping[bytes, set[int]]) -> Counter[str]:
    """Return how many rows at the beginning of a file are of questions that were asked in ours."""
    seen: Counter[str] = Counter()
    with suppress(DataError):  # the rows before a malformed one count
        for row in _head_rows(path):
            texts = read_question(row)
            if texts is None:
                continue
            swap, key = canonical(*map(flat, texts))
            if key not in ours:
                continue
            if {"label", LABELS} & row.keys() or layout_of(row) == "chosen-rejected":
                seen["raw"] += 1
            else:
                differs = row_answer(row) ^ swap not in ours[key]
                seen["released"] += 1
                seen["differing"] += differs
    return seen


def _head_rows(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield the rows at the beginning of a file; whatever cannot be read is left out."""
    head = beginning(path, _HEAD)
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    if len(head) == _HEAD:
        lines = lines[:-1]
    mark = separator(path)
    if mark is not None:
        table = read_table(enumerate(lines, start=1), mark, longest=_HEAD, optional="person")
        yield from (row for _, row in table)
        return
    for line in lines:
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, Mapping):
                yield row


_WRITTEN_DOWN = 1e-9  # relative, of numbers that were written down


def _audit_choices(
    path: Path,
    claim: Guarantee,
    manifest: str | Path | None,
    *,
    raw: str | Path | None,
    level: float,
) -> Audit:
    """Return what a file of randomized choices, its manifest and the raw ballots refute."""
    made = read_rankings(path, manifest=manifest)
    assert isinstance(made, PrivateChoices)  # noqa: S101 - for the type checker
    labels, each = 1, label_loss(made.flip_probability, made.categories)
    if claim.unit == "person" and made.persons is not None:
        labels = most_questions(made.persons, made.keys)
    stated = Finding.judged(
        "claim",
        wrong="more_dice" if labels * each > claim.epsilon * (1 + _WRITTEN_DOWN) else "",
        clear="die",
        cost=never_less(labels * each),
        details={"labels": labels, "each": each, "categories": made.categories},
    )
    counted, measured = Finding.skipped("flip-rate"), tuple[Measurement, ...]()
    if raw is not None:
        loss = min(claim.epsilon, max(claim.epsilon / labels, each))
        table = _answers_by_choice(made, read_rankings(raw))
        # One die answers all: j comes out at most e^ε times as often for who chose j. Exact bounds
        # of both rates hold together over all j.
        lower, k = 0.0, len(table)
        for j in range(k):
            kept, own = int(table[j, j]), int(table[j].sum())
            strays, others = int(table[:, j].sum()) - kept, int(table.sum()) - own
            if own and others:
                low, _ = clopper_pearson(kept, own, 1 - level / k)
                _, high = clopper_pearson(strays, others, 1 - level / k)
                lower = max(lower, math.log(low / high) if low > 0 else 0.0)
        counted = Finding.judged(
            "flip-rate",
            wrong=lower > loss,
            lower=never_more(lower, 4),
            loss=never_less(loss, 4),
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
        lacks=(*([] if raw else [_NO_RAW]), ATTACKS["flip-rate"]["of_a_die"]),
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
