"""An audit of a trainer on raw judgments before its first step: clipping, noise, sampling.

It takes seconds on a small model, spends nothing, and looks at no judgment: every unit is made up.

Does a sampler draw as its accountant counts: everybody alone, in every step anew?

The tests are exact: under the claim every number below is that of a binomial. A loader that
shuffles and cuts batches of one size draws each unit as often as a Poisson sample does, and is
found by its sizes and by who comes back in the next batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from sordino import _random, _validate
from sordino._random import Entropy
from sordino._validate import integer
from sordino.auditing.findings import Audit, Finding, Measurement
from sordino.auditing.statistical.bounds import mu_cut, mu_from_counts
from sordino.auditing.statistical.distinguishing import Answer, detectable_mu
from sordino.errors import UsageError
from sordino.language.dp_sgd.privacy import sampling_threshold
from sordino.language.references.texts import TextsRead
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import never_less, never_more

from .canaries import Canary, WorstCanary, pair_canaries, worst_canary
from .one_run import one_run_findings
from .step_games import (
    CLAIMED_MU,
    PartnerScores,
    StepScores,
    noise_masses,
    played_partners,
    played_step,
    stand_in,
)

ATTACK: Final = "sampler"

Sampler = Callable[[Sequence[int], Entropy], Sequence[Hashable]]
"""From everybody, and a source of words, to those who take part in one step."""

_EXPECTED: Final = 2.0  # units in a batch: few enough that some batches are empty
_MOST: Final = 4096
_POWER: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class Draws:
    """What was counted, and the binomial that it follows if the claim is true."""

    name: str  # what was counted
    count: int  # how often it happened
    trials: int  # how often it could have
    chance: float  # its probability under the claim, in [0, 1]

    @property
    def p_value(self) -> float:
        """Return twice the smaller tail of the binomial, at most 1."""
        from scipy.stats import binom  # noqa: PLC0415 (slow to import)

        low = binom.cdf(self.count, self.trials, self.chance)
        high = binom.sf(self.count - 1, self.trials, self.chance)
        return float(min(1.0, 2 * min(low, high)))


def sampling_finding(
    sampler: Sampler, probability: float, *, level: float, entropy: Entropy, trials: int = 2000
) -> Finding:
    """Return whether batches are Poisson samples, by exact tests that share one level.

    Guarantee:
        None is needed: the units are numbers, and nobody's.
    """
    # Source: docs/auditing.md, "Training".
    sampling_threshold(probability)
    trials = 2 * (integer("trials", trials, at_least=20) // 2)
    units = min(_MOST, max(4, math.ceil(_EXPECTED / probability)))
    batches = [list(sampler(range(units), entropy)) for _ in range(trials)]
    tests = _counted(batches, units, probability)
    worst = min(tests, key=lambda test: test.p_value)
    strange = any(len(set(one)) < len(one) or not set(one) <= set(range(units)) for one in batches)
    refuted = strange or worst.p_value < level / len(tests)
    return Finding(
        attack=ATTACK,
        outcome="refutes" if refuted else "clear",
        summary=_summary(worst, refuted=refuted, strange=strange, trials=trials)
        + ("" if refuted else _limits(probability, units * trials, level / len(tests))),
        p_value=0.0 if strange else min(1.0, worst.p_value * len(tests)),
        details={
            "batches": trials,
            "units": units,
            "sampling_probability": probability,
            "tests": {test.name: _told(test) for test in tests},
        },
    )


def _counted(batches: list[list[Any]], units: int, q: float) -> list[Draws]:
    """Return everything that is counted in batches of made-up units."""
    from scipy.stats import binom  # noqa: PLC0415

    sizes = np.array([len(one) for one in batches])
    trials = len(batches)
    middle = round(units * q)
    again = sum(
        len({*one} & {*other}) for one, other in zip(batches[::2], batches[1::2], strict=True)
    )
    usual = float(binom.pmf(middle, units, q))
    fewer = float(binom.cdf(middle - 1, units, q))
    return [
        Draws(name="inclusions", count=int(sizes.sum()), trials=units * trials, chance=q),
        Draws(name="usual sizes", count=int((sizes == middle).sum()), trials=trials, chance=usual),
        Draws(name="smaller sizes", count=int((sizes < middle).sum()), trials=trials, chance=fewer),
        Draws(
            name="empty batches",
            count=int((sizes == 0).sum()),
            trials=trials,
            chance=(1 - q) ** units,
        ),
        Draws(name="drawn again", count=again, trials=units * (trials // 2), chance=q * q),
    ]


def _told(test: Draws) -> dict[str, float]:
    """Return a test as JSON holds it."""
    return {
        "count": test.count,
        "trials": test.trials,
        "chance": test.chance,
        "p_value": test.p_value,
    }


def _summary(worst: Draws, *, refuted: bool, strange: bool, trials: int) -> str:
    """Return in one sentence what the batches show."""
    if strange:
        return "A batch holds a unit twice, or one that was not there: that is no sample."
    share, expected = worst.count / worst.trials, worst.chance
    told = f"{worst.name} have a share of {share:.4g} where {expected:.4g} is expected"
    if refuted:
        return f"{trials} batches are not drawn as the accountant counts: {told}."
    return f"{trials} batches look like Poisson samples; at most, {told}."


def _limits(q: float, draws: int, level: float) -> str:
    """Return which chance would have been found."""
    from scipy.stats import binom  # noqa: PLC0415

    if q == 1:
        return " Anybody who is ever left out would have been noticed."
    above = binom.isf(level / 2, draws, q)
    tried = q + (1 - q) * np.geomspace(1e-6, 1, 400)
    found = tried[binom.sf(above, draws, tried) >= _POWER]
    return f" A chance of {found[0]:.3g} where {q:g} is claimed would have been detected."


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
    """Return what attacks on the steps of a trainer show, before it takes one."""
    # Five things are tried, all on units that are made up: a worst canary that is in a step or not
    # (as rows of a pair that are clipped one by one would show it), a long unit beside others (as
    # it would show were they padded, rounded or scaled by it), the noise on every trained tensor,
    # the sampler against the accountant, and clipped gradients against autograd.
    # Source: Nasr et al. (2023), §4 (a canary of the auditor's own); docs/auditing.md, "Training".
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
    """Refuse to audit in several processes that would each make up units of their own."""
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
    from sordino.language.dp_sgd.clipping import differences  # noqa: PLC0415 (loads torch)

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
