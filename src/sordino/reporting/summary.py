"""What a report says, as one plain dict: promise, spend, quality, caveats, provenance.

Everything in it was already released; building it reads no raw judgment and spends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from sordino import _validate
from sordino._version import __version__
from sordino.auditing.findings import Audit
from sordino.errors import DataError, UsageError
from sordino.privacy.guarantee import CAVEATS, DECLARED_DISJOINT
from sordino.reporting._details import (
    describe_confidence,
    describe_decisive,
    describe_examples,
    describe_fit,
)
from sordino.reporting._items import describe_items
from sordino.reporting._ledger_words import describe_ledger
from sordino.reporting._mechanism_words import (
    describe_mechanism,
    describe_metrics,
    explain_missing,
    is_of_rankings,
)
from sordino.reporting._metrics import describe_policy, describe_public, describe_reward
from sordino.reporting._numbers import real, whole
from sordino.reporting._prediction import describe_prediction
from sordino.reporting.audits import describe_audits
from sordino.reporting.wording import (
    METRICS_NOTES,
    SIMULATED,
    WAYS,
    describe_guarantee,
    hides_texts,
    read_guarantee,
)

__all__ = ["calibration_bins", "summarize"]

_Z = 1.96  # of a 95% interval
_Plain = Mapping[str, Any]
_DUST = 1e-9  # share of a budget that rounding leaves


def calibration_bins(
    differences: Float[np.ndarray, " n"],
    targets: Shaped[np.ndarray, " n"],
    flip_probability: float,
    bins: int = 10,
) -> list[dict[str, Any]]:
    """Return how often the first answer won, next to how often it was predicted to win.

    Pairs are grouped by quantiles of the predicted probability σ(difference); equal predictions
    share a group, whatever their order. In each group the randomized answers are debiased,
    ỹ = (answer - flip) / (1 - 2 flip), so that the mean estimates the share of true labels
    without bias; it may lie outside [0, 1]. The bins use nothing but randomized answers and
    public inputs, so they spend nothing.

    Args:
        differences: Reward of the first answer minus that of the second, any finite number.
        targets: The randomized answers: 1 if the first was named, 0 if the second.
        flip_probability: Probability that an answer is not the true label, in [0, 1/2).
        bins: Largest number of groups, at least 1.

    Returns:
        For each group, from the lowest prediction up: ``predicted`` (mean), ``observed``
        (debiased mean), ``low`` and ``high`` (Wilson's interval of the share of answers,
        debiased: ± 1.96 · sd / √m holds too seldom in small groups) and ``pairs`` (m).

    Raises:
        DataError: Shapes differ, there are no pairs, or a target is neither 0 nor 1.
        UsageError: ``flip_probability`` or ``bins`` is outside its range.

    Source:
        Debiased answers: docs/local.md; Warner 1965. Intervals: Wilson 1927.

    Example:
        >>> bins = calibration_bins(np.array([-1.0, 1.0]), np.array([0.0, 1.0]), 0.25, bins=2)
        >>> [row["observed"] for row in bins]
        [-0.5, 1.5]
    """
    differences = _validate.finite_array("differences", differences, ndim=1)
    targets = _checked_targets(targets, len(differences))
    flip = _validate.non_negative("flip_probability", flip_probability)
    if not flip < 0.5:  # noqa: PLR2004
        raise UsageError(f"flip_probability must be in [0, 0.5), got {flip_probability!r}.")
    count = _validate.integer("bins", bins, at_least=1)
    predicted = 0.5 * (1 + np.tanh(0.5 * differences))
    last = -(-len(differences) * np.arange(1, count) // count) - 1  # exact, unlike a float share
    edges = np.unique(np.sort(differences)[last])
    group = np.searchsorted(edges, differences, side="left")
    return [
        _bin(predicted[group == index], targets[group == index], flip) for index in np.unique(group)
    ]


def _checked_targets(targets: Any, n: int) -> np.ndarray:
    """Return the answers as an array of zeros and ones, one for each difference."""
    array = _validate.finite_array("targets", targets, ndim=1)
    if n == 0 or len(array) != n:
        raise DataError(
            f"targets must have one entry for each difference and at least one: got shapes "
            f"{array.shape} and ({n},)."
        )
    wrong = np.flatnonzero((array != 0) & (array != 1))
    if wrong.size:
        raise DataError(f"targets must be 0 or 1: row {int(wrong[0])} is neither.")
    return array


def _bin(predicted: np.ndarray, targets: np.ndarray, flip: float) -> dict[str, Any]:
    """Return one group of :func:`calibration_bins`."""
    pairs, share = len(targets), float(np.mean(targets))
    center = (share + _Z**2 / (2 * pairs)) / (1 + _Z**2 / pairs)
    half = math.sqrt(share * (1 - share) / pairs + (_Z / (2 * pairs)) ** 2)
    half *= _Z / (1 + _Z**2 / pairs)
    observed, low, high = (
        (value - flip) / (1 - 2 * flip) for value in (share, center - half, center + half)
    )
    return {
        "predicted": float(np.mean(predicted)),
        "observed": observed,
        "low": low,
        "high": high,
        "pairs": pairs,
    }


def summarize(
    result: _Plain,
    *,
    calibration: Sequence[_Plain] = (),
    ledger: _Plain | None = None,
    caveat_texts: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
    reasons: Mapping[str, str] | None = None,
    title: str | None = None,
    audits: Audit | Sequence[Audit] = (),
) -> dict[str, Any]:
    """Return everything that the report page says, as one JSON-like dict.

    Args:
        result: The run as ``sordino.result`` holds it; only ``guarantee`` is required. Any
            metric may be null, and then the page says that it is not available. What is missing
            of ``utility`` (accuracy against ε), ``decisive`` (features), ``examples`` and, in
            ``policy``, ``pessimism`` is left out.
        calibration: What :func:`calibration_bins` returned.
        ledger: Budget, total, head and entries of the ledger; None leaves the section out.
        caveat_texts: One sentence for each caveat, over those that the library knows.
        versions: Versions to print; this library's own if None.
        reasons: Why a metric is null, by its key, over the general reason.
        title: Heading of the page.
        audits: What was tried against the promise; without any, nothing is said of it.

    Returns:
        The summary that ``render_report`` takes: the same input gives the same output.

    Raises:
        DataError: A required field is missing, a metric is not a number, or examples come from
            texts that are neither declared public nor released before.
        PrivacyError: A part was made of texts that the promise protects.
        UsageError: A setting of a guarantee is outside what is permitted.
    """
    names = tuple(result.get("caveats") or ())
    guarantee = read_guarantee("result.guarantee", result.get("guarantee"), names)
    words = describe_guarantee(guarantee)
    counted = guarantee.neighbors.name != "ADD_OR_REMOVE_ONE"  # else the number is a secret
    spend = _spend(ledger, counted=counted) if ledger else None
    pairs_text, ballots_text = (
        _count(result, name) if counted else None for name in ("pairs", "ballots")
    )
    data = str(ledger["data"]) if ledger and ledger.get("data") is not None else None
    simulated = guarantee.simulated or "simulated" in names or bool(spend and spend["simulated"])
    way = str(result.get("way") or "")
    texts = {**CAVEATS, **(caveat_texts or {})}
    central = way == "central"
    reasons = {**(explain_missing(result, guarantee) if central else {}), **(reasons or {})}
    reward = describe_reward(result.get("reward"), reasons)
    accuracy = reward["metrics"][0] if reward else None
    tried = describe_audits(audits)
    refuted = any(audit["refuted"] for audit in tried)
    return {
        "format": "sordino.summary",
        "version": 1,
        "title": title or (f"Privacy report: {data}" if data else "Privacy report"),
        "statement": _statement(
            result, words, _source(pairs_text, ballots_text), simulated=simulated, refuted=refuted
        ),
        "simulated": simulated,
        "simulated_text": SIMULATED,
        "data": data,
        "pairs": pairs_text,
        "ballots": ballots_text,
        "rankings": is_of_rankings(result),
        "worths": describe_items(result, records=hides_texts(guarantee)),
        "way": way,
        "way_text": WAYS.get(way, ""),
        "guarantee": words,
        "mechanism": describe_mechanism(result, guarantee, counted=counted),
        "spend": spend,
        "metrics_note": describe_metrics(result, guarantee, counted=counted)
        if central
        else METRICS_NOTES["local" if way == "local" else "other"],
        "reward": reward,
        "fit": describe_fit(result.get("reward")),
        "calibration": _calibration(calibration, counted=counted),
        "prediction": describe_prediction(result.get("utility"), accuracy, pairs=pairs_text),
        "decisive": describe_decisive(
            result.get("decisive"), texts_are_public=not hides_texts(guarantee)
        ),
        "policy": describe_policy(result.get("policy"), reasons),
        "confidence": describe_confidence(_distrust(result.get("policy"))),
        "examples": describe_examples(result.get("examples")),
        "public": describe_public(result, reasons),
        "caveats": [
            _caveat(name, texts)
            for name in _caveat_names([*names, *_declared(ledger)], simulated=simulated)
        ],
        "provenance": _provenance(result, versions or {"sordino": __version__}, counted=counted),
        **({"audits": tried} if tried else {}),
    }


def _spend(ledger: _Plain, *, counted: bool) -> dict[str, Any]:
    """Return what was spent; no times of day where they would tell how many records there are."""
    told = describe_ledger(ledger)
    # all of it: no dust, and one number in one way
    if (told["share"] or 0) > 1 - _DUST and not told["over"]:
        told |= {"remaining_text": "0", "budget_epsilon_text": told["spent_text"]}
    if not counted:
        days = [{**entry, "time": entry["time"].partition(" ")[0]} for entry in told["entries"]]
        told["entries"] = days
    return told


def _distrust(policy: _Plain | None) -> _Plain | None:
    """Return what a policy makes of uncertainty; its settings alone where texts are private."""
    if policy is None or policy.get("pessimism") is not None:
        return (policy or {}).get("pessimism")
    return policy if policy.get("confidence") is not None else None


def _count(result: _Plain, name: str) -> str | None:
    """Return how many pairs or ballots there are, if it is told."""
    count = real(f"data.{name}", (result.get("data") or {}).get(name))
    return None if count is None else whole(count)


def _source(pairs: str | None, ballots: str | None) -> str:
    """Return what was learned from."""
    if ballots is not None:
        return f"{ballots} ballots"
    return "human judgments" if pairs is None else f"{pairs} pairs"


def _statement(
    result: _Plain, words: _Plain, source: str, *, simulated: bool, refuted: bool
) -> str:
    """Return the page in one line: what was learned, and what it can reveal."""
    parts = (("reward", "a reward model"), ("policy", "a policy"))
    learned = " and ".join(text for key, text in parts if result.get(key) is not None)
    opening = f"Learned from {source}: {learned}. " if learned else ""
    if not words["promise"]:
        return f"{opening}No promise is made about any judgment in the data."
    aside = "" if words["delta"] == 0 else f", apart from δ = {words['delta_text']}"
    nobody, can = ("Were the randomness real, nobody", "could") if simulated else ("Nobody", "can")
    if refuted:
        nobody = f"Claimed, and refuted by an audit: {nobody[0].lower()}{nobody[1:]}"
    return (
        f"{opening}{nobody} who sees what was released {can} shift the odds "
        f"{words['question']} by more than a factor of {words['factor_text']}{aside}."
    )


def _calibration(bins: Iterable[_Plain], *, counted: bool) -> list[dict[str, Any]]:
    """Return the bins whose numbers are all there, counts hidden where they are a secret."""
    keys = ("predicted", "observed", "low", "high")
    rows = []
    for row in bins:
        values = {key: real(f"calibration.{key}", row.get(key)) for key in keys}
        if None not in values.values():
            pairs = real("calibration.pairs", row.get("pairs")) if counted else None
            rows.append({**values, "pairs": pairs})
    return rows


def _caveat_names(names: Iterable[str], *, simulated: bool) -> list[str]:
    """Return the caveats in order, once each, with ``simulated`` first if it holds."""
    ordered = [str(name) for name in names]
    return list(dict.fromkeys(["simulated", *ordered] if simulated else ordered))


def _declared(ledger: Mapping[str, Any] | None) -> list[str]:
    """Return the caveat that the total of a ledger rests on a declaration, if it does."""
    told = ((ledger or {}).get("budget") or {}).get("caveats") or ()
    return [name for name in told if name == DECLARED_DISJOINT]


def _caveat(name: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return a caveat with its sentence."""
    return {"name": name, "text": texts.get(name, "No sentence is on file for this caveat.")}


def _provenance(result: _Plain, versions: Mapping[str, str], *, counted: bool) -> dict[str, Any]:
    """Return what a reader needs to check the run or to repeat it; a time tells a size."""
    reward, policy = result.get("reward") or {}, result.get("policy") or {}
    settings = {
        "way": result.get("way"),
        **{
            f"features {key}".replace("_", " "): value
            for key, value in (reward.get("features") or {}).items()
        },
        "method": reward.get("method"),
        "ridge": reward.get("ridge"),
        "gradient norm": reward.get("gradient_norm"),
        "temperature": policy.get("temperature"),
    }
    return {
        "settings": [[key, str(value)] for key, value in settings.items() if value is not None],
        "versions": [[str(name), str(versions[name])] for name in sorted(versions)],
        "seconds": real("seconds", result.get("seconds")) if counted else None,
    }
