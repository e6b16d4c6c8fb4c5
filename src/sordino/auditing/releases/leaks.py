"""Does a file that claims local privacy leak?

Every attack of docs/auditing.md is tried on it, with or without the raw file, and one procedure
decides over all of them. Nothing is written and nothing is spent.

What a released file says of people in general: reported, and never held against it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Integer
from scipy.special import expit, logit

from sordino import _validate
from sordino.auditing.findings import Audit, Finding, Measurement
from sordino.auditing.statistical.bounds import clopper_pearson
from sordino.errors import UsageError
from sordino.preferences.files import Progress
from sordino.preferences.pairs import MANIFEST_FORMAT
from sordino.privacy.guarantee import CAVEATS, REPLACE_ONE, Guarantee, Trust, Unit

from .channels import attack_channels, order_channels
from .evidence import Channel, at_least, decide
from .flips import attack_flips, find_exact_count, measure_flips
from .id_attack import id_channels
from .joining import JoinCounts, join_truth
from .reading import UNKNOWN, Released, read_released
from .recipes import reproduces, rule_bits
from .repeats import find_repeats, most_paid_labels, stated_losses
from .seed_attack import CoinAttack, attack_coins, seed_findings
from .strata import PublicKnowledge
from .surroundings import find_manifest_leaks, find_neighbors, find_other_claims

_SUSPICIOUS = 1e-3
_CONFIDENCE = 0.95


def describe_content(released: Released) -> Finding:
    """Return how far the answers prefer longer texts: people do, so it is no leak."""
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


def find_constant_truth(released: Released, orders: Iterable[Channel]) -> Finding:
    """Return whether the answers look like one constant label that was randomized."""
    # The answers then agree with a fixed order as often as a coin of this ε keeps a label: more
    # often than half the time, and not more often than that.
    kept = float(expit(released.epsilon))
    named = [(channel.name, channel.guesses) for channel in orders]
    canonical = np.asarray(1 - released.swapped, dtype=np.int8)
    found = [
        name
        for name, guesses in [*named, ("canonical order", canonical)]
        if _is_randomized_constant(released.answers, guesses, kept)
    ]
    if released.layout == "chosen-rejected" or not found:
        return Finding(
            attack="constant-truth",
            outcome="clear",
            summary="In no order do the answers look like one constant label that was randomized.",
        )
    return Finding(
        attack="constant-truth",
        outcome="warning",
        summary=f"In some order ({', '.join(dict.fromkeys(found))}) the answers agree as often as "
        "if the first one were always preferred and then randomized. The raw file tells.",
        details={"orders": list(dict.fromkeys(found))},
    )


def _is_randomized_constant(
    answers: Integer[np.ndarray, " n"], guesses: Integer[np.ndarray, " n"], kept: float
) -> bool:
    """Whether answers agree with an order as a kept label does, and as a fair coin does not."""
    # Either end of the order may be the preferred one.
    told = guesses != UNKNOWN
    n = int(told.sum())
    agree = int((answers == guesses)[told].sum())
    most = max(agree, n - agree)
    low, high = clopper_pearson(most, n, (1 + _CONFIDENCE) / 2)
    return low <= kept <= high and 2 * at_least(most, n, 0.5) < _SUSPICIOUS


_SAME = 0.99  # share of rows in which undone coins and an order say the same
_UNITS = ("label", "person")
_NEED_RAW = {
    "flip-rate": "How many labels are flipped",
    "shared-coin": "Whether different persons share a coin",
    "person-coin": "Whether the answers of one person share a coin",
    "reused-coin": "Whether a coin is used again when an answer changes",
    "label-flips": "Whether one label is flipped less often than the other",
    "block-flips": "Whether a part of the file is flipped less often",
    "stratum-flips": "Whether rows alike in what is public are flipped less often",
    "neighbor-flips": "Whether flips follow from those of other rows",
    "exact-flips": "Whether the number of flips was fixed",
    "row-order": "Whether the order of rows tells labels",
    "column": "Whether another column tells labels",
}
_PATTERNS = ("block-flips", "stratum-flips", "neighbor-flips")  # that count flips in groups of rows
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
    _validate.one_of("unit", unit, _UNITS)
    _validate.failure_probability("level", level, zero=False)
    path = Path(path)
    released = read_released(
        path, epsilon=epsilon, manifest=manifest, person_field=person_field, progress=progress
    )
    _refuse_unknown_columns(released, covariates)
    covariates = _with_parts(released, covariates)
    claim = _claim(released, unit)
    released = replace(released, epsilon=_label_epsilon(released, claim))
    counts = None
    if raw is not None:
        released, counts = join_truth(released, raw, person_field=person_field, progress=progress)
    attempt = _Attempt.of(released, tuple(covariates), seeds, progress)
    findings = attempt.with_raw(level, counts) if counts else attempt.alone()
    return Audit(
        kind="release",
        subject=path.name,
        claim=claim,
        findings=(
            *attempt.seeds,
            *findings,
            *find_repeats(released, claim),
            find_constant_truth(released, attempt.fixed),
            find_manifest_leaks(released),
            find_other_claims(released, claim, path),
            find_neighbors(released, path),
            describe_content(released),
        ),
        measured=attempt.measured(findings) if counts else (),
        level=level,
        confidential=raw is not None,
    )


def _refuse_unknown_columns(released: Released, covariates: Sequence[str]) -> None:
    """Refuse a covariate that is no column of the file."""
    if isinstance(covariates, str) or not set(covariates) <= released.columns.keys():
        raise UsageError(
            f"covariates must be names of columns that every layout leaves over, got "
            f"{covariates!r}. Nothing was audited."
        )


def _with_parts(released: Released, covariates: Sequence[str]) -> list[str]:
    """Return declared columns and what lies inside them: it was fixed no later."""
    inside = tuple(f"{name}{mark}" for name in covariates for mark in ".[")
    parts = (name for name in released.columns if name.startswith(inside))
    return list(dict.fromkeys([*covariates, *parts]))


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


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """Everything in a file that may tell labels, and the coins that could be undone."""

    released: Released
    covariates: tuple[str, ...]
    orders: list[Channel]
    ids: Sequence[Channel]
    coins: CoinAttack
    seeds: list[Finding]

    @classmethod
    def of(
        cls,
        released: Released,
        covariates: tuple[str, ...],
        seeds: Sequence[int],
        progress: Progress | None,
    ) -> _Attempt:
        """Look for channels, and try the coins of the registry."""
        orders, ids = order_channels(released), id_channels(released)
        coins = attack_coins(released, [*orders, *ids], seeds=seeds, progress=progress)
        return cls(
            released=released,
            covariates=covariates,
            orders=orders,
            ids=ids,
            coins=coins,
            seeds=seed_findings(coins, released),
        )

    @property
    def fixed(self) -> list[Channel]:
        """Return the orders of the two answers: as written, and as the ids hash them."""
        return [*(one for one in self.orders if one.name == "position"), *self.ids]

    def with_raw(self, level: float, counts: JoinCounts) -> list[Finding]:
        """Return what the attacks that compare with the raw file found."""
        channels = [*self.orders, *self.ids]
        evidence = [
            *attack_channels(self.released, channels, covariates=self.covariates),
            *attack_flips(self.released),
        ]
        found = decide(evidence, level)
        tried = {one.attack for one in found}
        shown = find_exact_count(_strongest(found))
        return [_joined(counts), *shown, *_not_tried(self.released, tried)]

    def alone(self) -> list[Finding]:
        """Return what the orders of answers say without the raw file."""
        needed = [
            _skipped(attack, f"{what} can be told with the raw file only.")
            for attack, what in _NEED_RAW.items()
        ]
        return [*(self._alone(channel) for channel in self.fixed), *needed]

    def _alone(self, channel: Channel) -> Finding:
        """Return whether one order is shown by undone coins to be the preference."""
        shared = max((_sameness(channel, labels) for labels in self.undone), default=0.0)
        if shared >= _SAME:
            return Finding(
                attack=channel.name,
                outcome="refutes",
                summary="With the coins undone, the labels are this order: it is the preference.",
                recovered=shared,
                details=channel.details,
            )
        rule = _public_rule(self.released, channel)
        if rule is not None:
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

    @property
    def undone(self) -> list[np.ndarray]:
        """Return the labels that are left when coins are undone, for every recipe that hit."""
        return [hit.guesses for hit in self.coins.hits]

    def measured(self, findings: Sequence[Finding]) -> tuple[Measurement, ...]:
        """Return lower bounds on ε, the largest first, that all hold together."""
        # Every channel counts as tried, whichever is measured in the end.
        tried = 1 + len(_PATTERNS) + len(self.orders) + len(self.ids) + len(self.undone)
        confidence = 1 - (1 - _CONFIDENCE) / tried
        flips = measure_flips(self.released, confidence)
        recoveries = [*_channel_recoveries(self.released, findings), *self._undone_recoveries()]
        bounds = [found.bound(self.released.epsilon, confidence) for found in recoveries]
        bounds += _pattern_bounds(self.released, findings, confidence)
        found = [*bounds, *([] if flips is None else [replace(flips, confidence=_CONFIDENCE)])]
        return tuple(sorted(dict.fromkeys(found), key=lambda one: -one.lower))

    def _undone_recoveries(self) -> Iterable[_Recovery]:
        """Yield how many labels each recipe that hit recovers."""
        public = PublicKnowledge(released=self.released, covariates=self.covariates)
        for labels in self.undone:
            rows = np.asarray(public.known & (labels != UNKNOWN))
            if rows.any():
                right = int((labels == public.truth)[rows].sum())
                yield _Recovery(right, int(rows.sum()), public.log_odds(rows))


@dataclass(frozen=True)
class _Recovery:
    """How many labels were read out, of how many, and what was public about them anyway."""

    right: int
    rows: int
    log_odds: float

    def bound(self, claimed: float, confidence: float) -> Measurement:
        """Return the ε without which so many labels cannot be read out."""
        # Source: Under ε a guess is right with chance at most σ(ε + |log-odds given what is
        # public|); the chance itself by Clopper & Pearson 1934.
        low, _ = clopper_pearson(self.right, self.rows, confidence)
        lower = max(0.0, float(logit(low)) - self.log_odds) if low > 0 else 0.0
        return Measurement(metric="epsilon", claimed=claimed, lower=lower, confidence=_CONFIDENCE)


def _channel_recoveries(released: Released, findings: Iterable[Finding]) -> Iterable[_Recovery]:
    """Yield how many labels each channel that refutes tells; what the public tells is stated."""
    for found in findings:
        permitted = found.details.get("permitted")
        if found.outcome != "refutes" or found.recovered is None or not _is_share(permitted):
            continue
        rows = int(found.details["rows"])
        odds = float(logit(permitted)) - released.epsilon
        yield _Recovery(round(found.recovered * rows), rows, odds)


def _pattern_bounds(
    released: Released, findings: Iterable[Finding], confidence: float
) -> Iterable[Measurement]:
    """Yield the ε of a group of rows that is flipped too seldom, or too often; of many, one."""
    for found in findings:
        if found.outcome != "refutes" or found.attack not in _PATTERNS:
            continue
        flipped, rows, groups = (int(found.details[key]) for key in ("flipped", "rows", "groups"))
        fewest = min(flipped, rows - flipped)
        _, high = clopper_pearson(fewest, rows, 1 - (1 - confidence) / (2 * groups))
        lower = max(0.0, float(logit(1 - high)))
        yield Measurement(
            metric="epsilon", claimed=released.epsilon, lower=lower, confidence=_CONFIDENCE
        )


def _is_share(value: object) -> bool:
    """Return whether a value is a share of labels below all of them."""
    return isinstance(value, float) and 0 < value < 1


def _sameness(channel: Channel, labels: np.ndarray) -> float:
    """Return in how many rows an order says what the labels are, or the reverse."""
    # An order that says nothing of most rows shows nothing.
    told = channel.speaks & (labels != UNKNOWN)
    if not 2 * told.sum() >= len(labels) > 0:
        return 0.0
    share = float((channel.guesses == labels)[told].mean())
    return max(share, 1 - share)


def _public_rule(released: Released, channel: Channel) -> str | None:
    """Return the public order of the texts that an order is, or None."""
    told = channel.speaks
    for name, bits in rule_bits(released).items():
        if reproduces(bits[told], channel.guesses[told]):
            return name
    return None


def _strongest(findings: Sequence[Finding]) -> list[Finding]:
    """Return the strongest finding of every attack and column, with how many there were."""
    kept: defaultdict[tuple[str, object], list[Finding]] = defaultdict(list)
    for found in findings:
        kept[found.attack, found.details.get("column")].append(found)
    best = [(min(same, key=_p_value), len(same)) for same in kept.values()]
    return [replace(one, details={**one.details, "tried": tried}) for one, tried in best]


def _p_value(found: Finding) -> float:
    """Return the p-value of a finding, 1 if it has none."""
    return 1.0 if found.p_value is None else found.p_value


def _not_tried(released: Released, tried: set[str]) -> list[Finding]:
    """Return the attacks that need more than this file and its raw file have."""
    return [
        _skipped(attack, f"{what} {_lacking(released, attack)}.")
        for attack, what in _NEED_RAW.items()
        if attack not in tried
    ]


def _lacking(released: Released, attack: str) -> str:
    """Return why an attack could not be tried."""
    if attack in _NEED_PERSONS and released.persons is None:
        return "cannot be told without person ids"
    return "cannot be told: there is nothing to try it on"


def _joined(counts: JoinCounts) -> Finding:
    """Return how many rows were found in the raw file."""
    return Finding(
        attack="join",
        outcome="clear",
        summary=f"The raw file tells the truth of {counts.matched} rows; {counts.unmatched} are "
        f"not in it, {counts.ambiguous} fit different labels, {counts.undecided} are undecided.",
        details={
            "matched": counts.matched,
            "unmatched": counts.unmatched,
            "ambiguous": counts.ambiguous,
            "undecided": counts.undecided,
        },
    )


def _skipped(attack: str, summary: str) -> Finding:
    """Return an attack that could not be tried."""
    return Finding(attack=attack, outcome="skipped", summary=summary)
