"""Fair coins guessed from one run: how canaries were judged, or which of them were there.

A canary is a pair of answers that a fair coin had a say in before training: which label it got, or
whether it was there at all. Whoever guesses the coins better than the claim permits, refutes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit
from scipy.stats import binom, binomtest

from sordino import _validate
from sordino.auditing.findings import POWER, Audit, Finding, Measurement
from sordino.auditing.statistical.bounds import Counts, one_run_cut, one_run_epsilon, split_sizes
from sordino.auditing.statistical.distinguishing import Question, Sure
from sordino.errors import DataError, UsageError
from sordino.language.dp_sgd.training import TokenPair, log_ratio_gaps, reward_margins
from sordino.language.models.checkpoints import (
    checkpoint_folder,
    context_length,
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.generation import evaluating
from sordino.language.models.promises import CheckpointPromise, is_checkpoint
from sordino.language.models.tokens import DialogueTokens
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.privacy.conversions import group_approximate
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, Guarantee, Unit, never_less

_LEAST_CANARIES: Final = 50
_AT_ONCE: Final = 16  # pairs
_CONTROL: Final = "canary-control"


def _detectable_in_one_run(
    claimed: float, canaries: int, guesses: int, *, delta: float, confidence: float
) -> float:
    """Return the smallest epsilon that so many guesses refute with probability .95."""
    tried = np.arange(_validate.non_negative("claimed", claimed), 50.0, 0.05)
    counts = binom.ppf(1 - POWER, guesses, expit(tried)).astype(int)

    def refutes(correct: int) -> bool:
        shown = one_run_epsilon(canaries, guesses, correct, delta=delta, confidence=confidence)
        return shown > claimed

    least = next((right for right in np.unique(counts) if refutes(int(right))), None)
    return math.inf if least is None else float(tried[counts >= least][0])


def refuse_few(canaries: int, undone: str) -> None:
    """Refuse so few canaries that no run is told apart by them."""
    if canaries < _LEAST_CANARIES:
        least = f"at least {_LEAST_CANARIES} canaries, got {canaries}"
        raise UsageError(f"One run is told apart by {least}. {undone}")


def judged_guesses(
    attack: str,
    scores: Float[np.ndarray, " m"],
    coins: Bool[np.ndarray, " m"],
    claim: tuple[float, float],
    sure: Sure,
) -> tuple[Finding, Measurement]:
    """Return what guesses of fair coins, by one score each, show of a claim about each coin."""
    claimed, delta = claim
    one, other = scores[coins], scores[~coins]
    counted = split_sizes(len(one))[1] + split_sizes(len(other))[1]

    def guessed(counts: Counts) -> tuple[int, int]:
        """Return how many coins were guessed, and how many of them right."""
        hits, n, alarms, m = counts
        return n + m, hits + m - alarms

    question = Question(
        attack=attack,
        metric="epsilon",
        claimed=claimed,
        cut=one_run_cut,
        bound=lambda counts, confidence: one_run_epsilon(
            counted, *guessed(counts), delta=delta, confidence=confidence
        ),
        detectable=lambda cut, _, confidence: _detectable_in_one_run(
            claimed, counted, guessed(cut.counts)[0], delta=delta, confidence=confidence
        ),
    )
    answer = question.answer(one, other, sure)
    guesses, correct = guessed(answer.cut.counts)
    power = answer.shown.power or math.inf
    limits = f" An epsilon of {never_less(power, 4)} or more would have been detected."
    if math.isinf(power):
        limits = " Right guesses alone would not have refuted the claim: more canaries are needed."
    finding = Finding(
        attack=attack,
        outcome=answer.outcome,
        summary=f"Canaries that coins put into the run are guessed: {answer.said} for each."
        f"{'' if answer.outcome == 'refutes' else limits}",
        details={
            "canaries": len(coins),
            "counted": counted,
            "guesses": guesses,
            "correct": correct,
            "delta": delta,
            "lower_at_verdict": answer.needed,
            "verdict_confidence": sure.verdict,
        },
    )
    return finding, answer.shown


def audit_model(
    folder: str | Path,
    *,
    canaries: Pairs,
    held_out: Pairs | None = None,
    reference: str | Path | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    level: float = 1e-3,
) -> Audit:
    """Return what the weights in a folder tell of canaries that fair coins decided on.

    Guarantee:
        None is needed: whoever holds the weights may do the same. A true claim is refuted with
        chance ``level`` at most if the coins were fair and independent, which nothing here can
        see but in part. Shown by tests/language/test_membership.py.
    """
    # Without pairs that were held out, coins decided the labels of all canaries; with them, which
    # pairs were trained on. The attack is that of PREMIA on preferences: by how much likelier the
    # policy finds the preferred answer than the rejected one, less what its reference makes of it.
    # Source: Feng et al. 2024 (arXiv 2407.06443), the log-ratio of a pair; Steinke, Nasr &
    # Jagielski 2023, Theorem 5.2, for the bound; docs/auditing.md, "Weights".
    sure = Sure.of(confidence, level)
    folder = checkpoint_folder(folder)
    claim = _claim(folder, flipped=held_out is None, epsilon=epsilon, delta=delta)
    kept = [("canaries", canaries), *([] if held_out is None else [("held_out", held_out)])]
    coins = _coins(kept, level)
    scores = _scores(folder, kept)
    checks, lacks = [Finding.skipped(_CONTROL)], []
    if reference is not None:
        place = checkpoint_folder(reference)
        known = _scores(place, kept)
        found, _ = judged_guesses(_CONTROL, known, coins, (0.0, 0.0), sure)
        told = found.outcome == "refutes"
        checks = [Finding.judged(_CONTROL, odd=told)]
        lacks = [checks[0].summary] if told else []
        scores = scores - known if _is_reward(folder) == _is_reward(place) else scores
    changes = 1 if held_out is not None or claim.neighbors == REPLACE_ONE else 2
    size = group_approximate(claim.epsilon, claim.delta, changes)
    found, shown = judged_guesses("preference-ratio", scores, coins, size, sure)
    if lacks and found.outcome == "refutes":
        found = replace(found, outcome="warning")
    return Audit(
        kind="model",
        subject=folder.resolve().name,
        claim=claim,
        findings=(found, *checks),
        measured=(shown,),
        level=level,
        confidential=True,
        lacks=tuple(lacks),
    )


def _claim(folder: Path, *, flipped: bool, epsilon: float | None, delta: float | None) -> Guarantee:
    """Return the claim that is tested: the checkpoint's own, or another size of it."""
    if is_checkpoint(folder):
        claim = CheckpointPromise.read(folder).guarantee
    elif epsilon is None:
        raise UsageError(
            f"{folder.name} claims nothing, so there is nothing to refute. Nothing was audited. "
            "Say what is claimed: epsilon (--epsilon)."
        )
    else:
        unit: Unit = "label" if flipped else "record"
        neighbors = REPLACE_ONE if flipped else ADD_OR_REMOVE_ONE
        claim = Guarantee(epsilon, delta=0.0, unit=unit, neighbors=neighbors, trust="central")
    if not flipped and (claim.unit == "label" or claim.neighbors == REPLACE_ONE):
        raise UsageError(
            f"{claim} does not hide who is there, so nothing was audited. Flip the labels of "
            "canaries by coins, and leave held_out (--held-out) out."
        )
    claim = replace(
        claim,
        epsilon=claim.epsilon if epsilon is None else _validate.non_negative("epsilon", epsilon),
        delta=claim.delta if delta is None else _validate.failure_probability("delta", delta),
    )
    if math.isinf(claim.epsilon):
        raise UsageError(
            "A claim of epsilon=inf promises nothing and cannot be refuted. Nothing was audited. "
            "Say which claim is tested: epsilon (--epsilon)."
        )
    return claim


def _coins(kept: list[tuple[str, Pairs]], level: float) -> Bool[np.ndarray, " m"]:
    """Return the coin of every canary; refuse what cannot be canaries of fair coins."""
    for name, pairs in kept:
        if isinstance(pairs, PrivatePairs) or not isinstance(pairs, Pairs):
            raise UsageError(f"{name} must be raw pairs, got {type(pairs).__name__}.")
        if (pairs.labels > 1).any():
            raise DataError(f"{name} must be decided: nothing was audited. Leave ties out.")
    labels = [pairs.labels == 1 for _, pairs in kept]
    given = [np.full(len(each), not at) for at, each in enumerate(labels)]
    coins = labels[0] if len(kept) == 1 else np.concatenate(given)
    refuse_few(len(coins), "Nothing was audited.")
    if binomtest(int(coins.sum()), len(coins)).pvalue < level:
        raise UsageError(
            "Fair coins would not fall so unevenly as those of these canaries. Nothing was "
            "audited. Toss one for each, before training."
        )
    return coins


def _is_reward(folder: Path) -> bool:
    names = json.loads((folder / "config.json").read_bytes())["architectures"]
    return any(name.endswith("ForSequenceClassification") for name in names)


def _scores(folder: Path, kept: list[tuple[str, Pairs]]) -> Float[np.ndarray, " m"]:
    """Return by how much a model prefers one answer of each canary, in units of its own."""
    # Where coins decided labels, it is the answer that a label of 1 names; else the preferred one.
    whole = _is_reward(folder)
    model = (load_reward_checkpoint if whole else load_causal_model)(folder)
    tokenizer = load_tokenizer(folder)
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    tokens = DialogueTokens(tokenizer, context_length(model, tokenizer))
    preferred = reward_margins if whole else log_ratio_gaps

    def gaps(pairs: Pairs) -> Iterator[float]:
        first, second, _ = tokens.pairs(pairs)
        both = [TokenPair.of(*one, 1.0) for one in zip(first, second, strict=True)]
        for at in range(0, len(both), _AT_ONCE):
            some = both[at : at + _AT_ONCE]
            yield from preferred(model, some, padding=tokenizer.pad_token_id).tolist()

    with evaluating(model.requires_grad_(False)):
        found = [np.array(list(gaps(pairs))) for _, pairs in kept]
    if len(kept) > 1:
        found = [one * (2 * pairs.labels - 1) for one, (_, pairs) in zip(found, kept, strict=True)]
    return np.concatenate(found)
