"""An audit of a trainer on raw judgments before its first step: clipping, noise, sampling.

It takes seconds on a small model, spends nothing, and looks at no judgment: every unit is made up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sordino import _random, _validate
from sordino.auditing.findings import Audit, Finding, Measurement
from sordino.auditing.statistical.answers import Answer
from sordino.auditing.statistical.bounds import mu_from_counts
from sordino.auditing.statistical.power import detectable_mu
from sordino.auditing.statistical.scores import mu_cut
from sordino.auditing.training.canaries import (
    Canary,
    WorstCanary,
    pair_canaries,
    worst_canary,
)
from sordino.auditing.training.one_run import one_run_findings
from sordino.auditing.training.sampling import Sampler, sampling_finding
from sordino.auditing.training.step_games import (
    CLAIMED_MU,
    PartnerScores,
    StepScores,
    noise_masses,
    played_partners,
    played_step,
    stand_in,
)
from sordino.errors import UsageError
from sordino.language.references.texts_read import TextsRead
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import never_less, never_more

__all__ = ["audit_training"]

_OTHERS: Final = 3  # made-up units beside the canary
_LEAST_TRIALS: Final = 4000
_RANDOM: Final = 4  # tests that share the level: canary, noise, sampler, one run
_ROUNDING: Final = 1e-4  # of C: some devices add in another order each time, in 32-bit floats
_PARTNERS: Final = 32  # made-up units with which a long one shares a step
_MOST_PARTNERS: Final = 2048
_ALMOST_ALL: Final = 0.95  # of the norm of a gradient
_WRONG: Final = 1e-2
_DOUBTFUL: Final = 1e-4


def audit_training(  # noqa: PLR0913 (each is one choice of the user)
    trainer: Any,
    *,
    trials: int = 10_000,
    confidence: float = 0.95,
    level: float = 1e-3,
    sampler: Sampler | None = None,
    canaries: Sequence[Canary] = (),
    partners: int = _PARTNERS,
    records: Pairs | None = None,
    simulate_seed: int | None = None,
) -> Audit:
    """Return what attacks on the steps of a trainer show, before it takes one.

    Five things are tried, all on units that are made up: a worst canary that is in a step or not
    (as rows of a pair that are clipped one by one would show it), a long unit beside others (as
    it would show were they padded, rounded or scaled by it), the noise on every trained tensor,
    the sampler against the accountant, and clipped gradients against autograd.

    Args:
        trainer: A :class:`~sordino.language.central.reward_trainer.CentralRewardTrainer`, or
            another trainer on raw pairs of this library, on the user's own model. Nothing of it
            is changed, its ledger and its pairs are not touched, unless canaries are given.
        trials: Noisy steps with the canary, and as many without; at least 4000.
        confidence: Coverage of the lower bound that is reported; the verdict does not use it.
        level: Chance that a trainer that keeps its promise is refuted, over all attacks.
        sampler: Another way to draw batches, from everybody and a source of words to those who
            take part; the trainer's own if left out.
        canaries: Made-up units, at least 50, for an audit of one whole run: then the trainer is
            trained on its pairs and on half of the canaries, and its ledger pays.
        partners: With how many others a long unit shares a step, from 2 to 2048: what they give
            away adds up, and so does the time.
        records: Pairs that are to be hidden: has the model, or its tokenizer, read them before?
            The audit is then confidential.
        simulate_seed: Plays with simulated entropy, so that the audit can be repeated; the claim
            is marked ``simulated``.

    Returns:
        The audit, with mu of one step as what was measured: 1 is claimed, for noise of C. With
        canaries also epsilon of the run.

    Raises:
        BudgetExceeded: Canaries are given, and the ledger does not permit the run.
        UsageError: A setting is out of range, or the model cannot be trained so.

    Source:
        Nasr et al. (2023), §4 (a canary of the auditor's own); docs/auditing.md, "Training".
    """
    trials = _validate.integer("trials", trials, at_least=_LEAST_TRIALS)
    _validate.integer("partners", partners, at_least=2, at_most=_MOST_PARTNERS)
    _validate.failure_probability("confidence", confidence, zero=False)
    _validate.failure_probability("level", level, zero=False)
    if simulate_seed is not None:
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
    _refuse_other_coins(trainer, simulate_seed, canaries)
    entropy = _random.entropy(simulate_seed)
    share = level / _RANDOM
    canary = worst_canary(trainer, entropy=entropy)
    others = [one.one for one in pair_canaries(trainer, _OTHERS, entropy=entropy)]
    # first, as of several processes one alone draws noise, and all draw the same tokens here
    shares = played_partners(trainer, partners=partners, entropy=entropy)
    scores = played_step(trainer, canary.unit, others, trials=trials, entropy=entropy)
    answer = _measured(scores, confidence=confidence, needed=1 - share)
    probability = trainer._privacy.sampling_probability  # noqa: SLF001 (an audit looks inside)
    drawn = sampler or partial(_own_sampler, trainer)
    claim = trainer._run.promise  # noqa: SLF001
    found: tuple[Finding, ...] = (
        _canary_finding(answer, canary, scores, confidence=confidence, needed=1 - share),
        _partners_finding(shares, partners),
        _noise_finding(noise_masses(trainer, entropy=entropy), share),
        sampling_finding(drawn, probability, level=share, entropy=entropy),
        _gradients_finding(trainer, [canary.unit, *others]),
    )
    measured: tuple[Measurement, ...] = (answer.shown,)
    if canaries:
        guessed, losses = one_run_findings(
            trainer, canaries, confidence=confidence, level=share, entropy=entropy
        )
        found, measured = (*found, *guessed), (*measured, *losses)
    if records is not None:
        found = (*found, _reading_finding(trainer, records))
    return Audit(
        kind="training",
        subject=type(trainer).__name__,
        claim=claim if simulate_seed is None else replace(claim, randomness="simulated"),
        findings=found,
        measured=measured,
        level=level,
        confidential=records is not None,
    )


def _reading_finding(trainer: Any, records: Pairs) -> Finding:
    """Return whether model and tokenizer say that they were made from some records."""
    own: TextsRead = trainer._read  # noqa: SLF001 (of the model as it was before adapters)
    read = own.with_those_of(TextsRead.on(trainer.processing_class))
    found = read.beside(TextsRead.of(records))
    attack = "texts-read"
    if found["read"]:
        return Finding(
            attack=attack,
            outcome="refutes",
            summary="The model or its tokenizer was made from texts of these records as they are, "
            "and is released with them: no noise on later steps hides that.",
        )
    if not found["known"]:
        return Finding(
            attack=attack,
            outcome="warning",
            summary="Nothing says all that the model and its tokenizer have read, so that these "
            "records may be among it.",
        )
    return Finding(
        attack=attack,
        outcome="clear",
        summary="Model and tokenizer say all that they have read, and none of these texts is "
        "among it.",
    )


def _refuse_other_coins(trainer: Any, seed: int | None, canaries: Sequence[Canary]) -> None:
    """Refuse to audit in several processes that would each make up units of their own.

    Raises:
        UsageError: There are several, and no seed, or canaries.
    """
    if trainer._processes.several and (seed is None or canaries):  # noqa: SLF001
        raise UsageError(
            "Several processes are audited with the same made-up units in each: give "
            "simulate_seed, and leave canaries out. Nothing was audited. Or audit in one process."
        )


def _own_sampler(trainer: Any, units: Sequence[int], entropy: _random.Entropy) -> Any:
    """Return whom the trainer's own code draws."""
    return stand_in(trainer, units=units)._drawn(entropy)  # noqa: SLF001


def _measured(scores: StepScores, *, confidence: float, needed: float) -> Answer:
    """Return what the scores of a game show of mu."""
    cut = mu_cut(scores.one, scores.other)
    shown = Measurement(
        metric="mu",
        claimed=CLAIMED_MU,
        lower=mu_from_counts(*cut.counts, confidence=confidence),
        confidence=confidence,
        power=detectable_mu(CLAIMED_MU, len(scores.one), confidence=needed),
    )
    return Answer(cut=cut, shown=shown, needed=mu_from_counts(*cut.counts, confidence=needed))


def _canary_finding(
    answer: Answer, canary: WorstCanary, scores: StepScores, *, confidence: float, needed: float
) -> Finding:
    """Return the verdict on one step with the worst canary, in words."""
    too_far = scores.moved > 1 + _ROUNDING
    refutes = answer.refutes or too_far
    told = f"It moves the sum of a step by {scores.moved:.4g} C, and C is permitted; "
    told += (
        f"mu is at least {never_more(answer.needed, 4)} at {100 * needed:.6g} % confidence, and "
        if answer.refutes
        else f"mu is at least {never_more(answer.shown.lower, 4)} at {100 * confidence:g} % "
        "confidence, and "
    )
    told += f"{never_less(CLAIMED_MU)} is claimed."
    if not refutes:
        row_by_row = 2 * canary.row_by_row * scores.seen
        told += f" Rows clipped one by one would show mu of about {row_by_row:.2g}."
    if scores.seen < _ALMOST_ALL:
        told += f" Only entries with a share of {scores.seen:.2g} of the gradient were looked at."
    return Finding(
        attack="worst-canary",
        outcome="refutes" if refutes else "warning" if answer.suspicious else "clear",
        summary=f"A made-up unit with answers that pull one way is in a step or not. {told}",
        details={
            "trials": len(scores.one),
            "moved": scores.moved,
            "entries_seen": scores.seen,
            "reaches": canary.reaches,
            "row_by_row": canary.row_by_row,
            "lower_at_verdict": answer.needed,
            "verdict_confidence": needed,
            "event": answer.cut.to_dict(),
        },
    )


def _noise_finding(masses: list[tuple[int, float]], level: float) -> Finding:
    """Return whether every tensor gets as much noise as is stated; more is no leak."""
    from scipy.stats import chi2  # noqa: PLC0415 (slow to import)

    tails = [float(chi2.cdf(mass, entries)) for entries, mass in masses]
    least, (entries, mass) = min(zip(tails, masses, strict=True))
    refutes = least < level / len(masses)
    size = math.sqrt(mass / entries)
    return Finding(
        attack="noise",
        outcome="refutes" if refutes else "clear",
        summary=(
            f"A step that nobody is in gives a tensor {size:.4g} of the noise that is stated."
            if refutes
            else f"A step that nobody is in gives each of {len(masses)} trained tensors the noise "
            "that is stated."
        ),
        p_value=min(1.0, least * len(masses)),
        details={"tensors": len(masses), "least_p_value": least, "its_entries": entries},
    )


def _partners_finding(scores: PartnerScores, partners: int) -> Finding:
    """Return whether what is counted of units depends on who else is in a step."""
    refutes, shared = scores.moved > 1 + _ROUNDING, scores.shared > _ROUNDING
    told = (
        f"what others add moves by {scores.shared:.2g} C with it."
        if shared
        else "what others add stays as it is."
    )
    return Finding(
        attack="partners",
        outcome="refutes" if refutes else "warning" if shared else "clear",
        summary=(
            f"A long unit behind short ones, and in front of {partners} long and short ones in "
            f"turn, moves the sum of a step by {scores.moved:.4g} C, and C is permitted; {told}"
        ),
        details={"partners": partners, "moved": scores.moved, "shared": scores.shared},
    )


def _gradients_finding(trainer: Any, units: Sequence[Any]) -> Finding:
    """Return whether clipped gradients of made-up units are those that autograd finds."""
    from sordino.language.clipping.self_test import differences  # noqa: PLC0415 (loads torch)

    model = trainer.model
    differ = differences(
        model,
        trainer._losses,  # noqa: SLF001
        lambda some, bound: trainer._own_sum(model, some, bound).values(),  # noqa: SLF001
        units,
    )
    worst = max(
        one if math.isfinite(one) else math.inf for one in (differ.gradients, differ.partners)
    )
    right = worst <= _DOUBTFUL
    told = "empty or wrong" if worst > _WRONG else "right" if right else "inexact"
    return Finding(
        attack="gradients",
        outcome="clear" if right else "refutes" if worst > _WRONG else "warning",
        summary=(
            f"Gradients of whole units are {told}: what each adds differs by at most {worst:.2g} C "
            "from its own clipped gradient, found by autograd."
        ),
        details={name: str(one) for name, one in differ._asdict().items()},
    )
