"""An audit of a trainer on raw judgments before its first step: clipping, noise, sampling.

It takes seconds on a small model, spends nothing, and looks at no judgment: every unit is made up.
One step is played many times with a worst canary and without it. The sums are those of the
trainer's own clipping, and the noise is added by its own code. What is stood in for is the data,
the chance to be drawn (1) and the noise multiplier (1, so that mu = 1 is claimed): clipping and
noise are what is measured, and not how they are accounted for. A sampler is asked whether it draws
as its accountant counts: everybody alone, in every step anew.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float

from sordino import _random, _validate
from sordino._random import Entropy
from sordino._validate import integer
from sordino.auditing.findings import POWER, Audit, Finding, Measurement
from sordino.auditing.statistical.distinguishing import mu_question
from sordino.errors import UsageError
from sordino.language.dp_sgd.privacy import sampling_threshold
from sordino.language.references.texts import TextsRead
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import never_less, never_more

from .canaries import (
    Canary,
    Trainer,
    Unit,
    WorstCanary,
    gradients_kept,
    one_run_findings,
    partner_units,
    person_canaries,
    unit_norms,
    worst_canary,
)

Sampler = Callable[[Sequence[int], Entropy], Sequence[Hashable]]
"""From everybody, and a source of words, to those who take part in one step."""

_EXPECTED: Final = 2.0  # units in a batch: few enough that some batches are empty
_MOST: Final = 4096


class _Draws(NamedTuple):
    """What was counted, and the binomial that it follows if the claim is true."""

    name: str  # what was counted
    hits: int  # how often it happened
    trials: int  # how often it could have
    chance: float  # its probability under the claim, in [0, 1]

    @property
    def p_value(self) -> float:
        """Return twice the smaller tail of the binomial, at most 1."""
        from scipy.stats import binom  # noqa: PLC0415 (slow to import)

        low = binom.cdf(self.hits, self.trials, self.chance)
        high = binom.sf(self.hits - 1, self.trials, self.chance)
        return float(min(1.0, 2 * min(low, high)))


def sampling_finding(
    sampler: Sampler, probability: float, *, level: float, entropy: Entropy, trials: int = 2000
) -> Finding:
    """Return whether batches are Poisson samples, by exact tests that share one level.

    Guarantee:
        None is needed: the units are numbers, and nobody's.
    """
    # The tests are exact: under the claim every number below is that of a binomial. A loader that
    # shuffles and cuts batches of one size draws each unit as often as a Poisson sample does, and
    # is found by its sizes and by who comes back in the next batch.
    # Source: docs/auditing.md, "Training".
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    sampling_threshold(probability)
    q, trials = probability, 2 * (integer("trials", trials, at_least=20) // 2)
    units = min(_MOST, max(4, math.ceil(_EXPECTED / q)))
    batches = [list(sampler(range(units), entropy)) for _ in range(trials)]
    sizes = np.array([len(batch) for batch in batches])
    middle, pairs = round(units * q), zip(batches[::2], batches[1::2], strict=True)
    again = sum(len({*one} & {*other}) for one, other in pairs)
    usual, fewer = float(binom.pmf(middle, units, q)), float(binom.cdf(middle - 1, units, q))
    tests = [
        _Draws("inclusions", int(sizes.sum()), units * trials, q),
        _Draws("usual sizes", int((sizes == middle).sum()), trials, usual),
        _Draws("smaller sizes", int((sizes < middle).sum()), trials, fewer),
        _Draws("empty batches", int((sizes == 0).sum()), trials, (1 - q) ** units),
        _Draws("drawn again", again, units * (trials // 2), q * q),
    ]
    worst = min(tests, key=lambda test: test.p_value)
    strange = any(len(set(one)) < len(one) or not set(one) <= set(range(units)) for one in batches)
    wrong = ""
    share, expected = worst.hits / worst.trials, worst.chance
    told = f"{worst.name} have a share of {share:.4g} where {expected:.4g} is expected"
    if strange:
        wrong = "A batch holds a unit twice, or one that was not there: that is no sample."
    elif worst.p_value < level / len(tests):
        wrong = f"{trials} batches are not drawn as the accountant counts: {told}."
    # Which chance would have been found.
    limits = "Anybody who is ever left out would have been noticed."
    if q != 1:
        above = binom.isf(level / len(tests) / 2, units * trials, q)
        tried = q + (1 - q) * np.geomspace(1e-6, 1, 400)
        found = tried[binom.sf(above, units * trials, tried) >= POWER][0]
        limits = f"A chance of {found:.3g} where {q:g} is claimed would have been detected."
    clear = f"{trials} batches look like Poisson samples; at most, {told}. {limits}"
    return Finding.judged(
        "sampler",
        wrong=wrong,
        clear=clear,
        p_value=0.0 if strange else min(1.0, worst.p_value * len(tests)),
        details={
            "batches": trials,
            "units": units,
            "sampling_probability": q,
            "tests": {
                name: {"count": hits, "trials": n, "chance": chance, "p_value": test.p_value}
                for test in tests
                for name, hits, n, chance in [test]
            },
        },
    )


_CLAIMED_MU: Final = 1.0  # of a step of noise multiplier 1, by a unit drawn for certain
_MOST_ENTRIES: Final = 1 << 13  # entries of the gradient that are looked at
_AT_ONCE: Final = 1 << 22  # entries that are drawn at once
_MOVES_NOTHING: Final = (
    "A made-up unit moves no gradient of this model, or moves it to no number: nothing can be told "
    "apart, and nothing was audited. Is anything trained?"
)
_OTHERS: Final = 3  # made-up units beside the canary
_LEAST_TRIALS: Final = 4000
_ROUNDING: Final = 1e-4  # of C: some devices add in another order each time, in 32-bit floats
_PARTNERS: Final = 32  # made-up units with which a long one shares a step
_MOST_PARTNERS: Final = 2048
_ALMOST_ALL: Final = 0.95  # of the norm of a gradient
_WRONG: Final = 1e-2
_DOUBTFUL: Final = 1e-4


def audit_training(  # noqa: PLR0913 (each is one choice of the user)
    trainer: Trainer,
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
    several = trainer._processes.several  # noqa: SLF001 (an audit looks inside)
    if several and (simulate_seed is None or canaries):
        # each would make up units of its own
        raise UsageError(
            "Several processes are audited with the same made-up units in each: give "
            "simulate_seed, and leave canaries out. Nothing was audited. Or audit in one process."
        )
    entropy = _random.entropy(simulate_seed)
    share = level / 4  # tests that share the level: canary, noise, sampler, one run
    canary = worst_canary(trainer, entropy=entropy)
    made_up = person_canaries(trainer, _OTHERS, entropy=entropy, pairs=1)
    others = [one.one for one in made_up]
    # first, as of several processes one alone draws noise, and all draw the same tokens here
    beside = _partners_finding(trainer, partners, entropy)
    played, shown = _canary_finding(
        trainer,
        canary,
        others,
        trials=trials,
        confidence=confidence,
        needed=1 - share,
        entropy=entropy,
    )
    probability = trainer._privacy.sampling_probability  # noqa: SLF001
    claim = trainer._run.promise  # noqa: SLF001

    def own_sampler(units: Sequence[int], entropy: Entropy) -> Sequence[int]:
        return _stand_in(trainer, units=units)._drawn(entropy)  # noqa: SLF001

    found: tuple[Finding, ...] = (
        played,
        beside,
        _noise_finding(trainer, share, entropy),
        sampling_finding(sampler or own_sampler, probability, level=share, entropy=entropy),
        _gradients_finding(trainer, [canary.unit, *others]),
    )
    measured: tuple[Measurement, ...] = (shown,)
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


def _reading_finding(trainer: Trainer, records: Pairs) -> Finding:
    """Return whether model and tokenizer say that they were made from some records."""
    own: TextsRead = trainer._read  # noqa: SLF001 (of the model as it was before adapters)
    read = own.with_those_of(TextsRead.on(trainer.processing_class))
    found = read.beside(TextsRead.of(records))
    wrong = (
        "The model or its tokenizer was made from texts of these records as they are, and is "
        "released with them: no noise on later steps hides that."
    )
    odd = (
        "Nothing says all that the model and its tokenizer have read, so that these records may be "
        "among it."
    )
    return Finding.judged(
        "texts-read",
        wrong=wrong if found["read"] else "",
        odd="" if found["read"] or found["known"] else odd,
        clear="Model and tokenizer say all that they have read, and none of these texts is among "
        "it.",
    )


class _Terms:
    """The privacy settings of a trainer, some of them replaced."""

    def __init__(self, privacy: object, **changed: float) -> None:
        self._privacy, self._changed = privacy, changed

    def __getattr__(self, name: str) -> object:
        return self._changed[name] if name in self._changed else getattr(self._privacy, name)


def _stand_in(trainer: Trainer, *, units: Sequence[object], **terms: float) -> Trainer:
    """Return a shallow copy of a trainer on other units, with some privacy settings replaced."""
    made = copy.copy(trainer)
    made._units = list(units)  # noqa: SLF001 (an audit looks inside)
    made._privacy = _Terms(trainer._privacy, **terms)  # noqa: SLF001
    return made


def _canary_finding(
    trainer: Trainer,
    canary: WorstCanary,
    others: Sequence[Unit],
    *,
    trials: int,
    confidence: float,
    needed: float,
    entropy: Entropy,
) -> tuple[Finding, Measurement]:
    """Return the verdict on one step with the worst canary or without it, and its bound on mu."""
    played = _stand_in(trainer, units=(), noise_multiplier=_CLAIMED_MU, sampling_probability=1.0)
    sums = [_sum(played, [*others, *extra]) for extra in ([canary.unit], [])]
    direction = sums[0] - sums[1]
    length = float(np.linalg.norm(direction))
    if not np.isfinite(length) or length == 0:
        raise UsageError(_MOVES_NOTHING)
    kept = np.argpartition(np.abs(direction), -min(_MOST_ENTRIES, direction.size))[-_MOST_ENTRIES:]
    weights = direction[kept] / np.linalg.norm(direction[kept])
    one, other = (_scores(played, total[kept], weights, trials, entropy) for total in sums)
    moved = length / trainer._privacy.clip  # noqa: SLF001
    seen = float(np.linalg.norm(direction[kept])) / length
    question = mu_question(_CLAIMED_MU, attack="worst-canary")
    answer = question.answer(one, other, confidence=confidence, needed=needed)
    refutes = answer.refutes or moved > 1 + _ROUNDING
    lower, sure = (
        (answer.needed, f"{100 * needed:.6g}")
        if answer.refutes
        else (answer.shown.lower, f"{100 * confidence:g}")
    )
    told = (
        f"It moves the sum of a step by {moved:.4g} C, and C is permitted; mu is at least "
        f"{never_more(lower, 4)} at {sure} % confidence, and {never_less(_CLAIMED_MU)} is claimed."
    )
    if not refutes:
        row_by_row = 2 * canary.row_by_row * seen
        told += f" Rows clipped one by one would show mu of about {row_by_row:.2g}."
    if seen < _ALMOST_ALL:
        told += f" Only entries with a share of {seen:.2g} of the gradient were looked at."
    finding = Finding(
        attack="worst-canary",
        outcome="refutes" if refutes else "warning" if answer.suspicious else "clear",
        summary=f"A made-up unit with answers that pull one way is in a step or not. {told}",
        details={
            "trials": trials,
            "moved": moved,
            "entries_seen": seen,
            "reaches": canary.reaches,
            "row_by_row": canary.row_by_row,
            "lower_at_verdict": answer.needed,
            "verdict_confidence": needed,
            "event": answer.cut.to_dict(),
        },
    )
    return finding, answer.shown


def _sum(trainer: Trainer, units: Sequence[Unit]) -> Float[np.ndarray, " d"]:
    """Return the sum of clipped gradients that the trainer leaves, all tensors in a row."""
    played = _stand_in(trainer, units=units)
    with gradients_kept(trainer.model):
        sums = played._clipped_sums(trainer.model, range(len(units)))  # noqa: SLF001
    return np.concatenate([one.cpu().numpy().ravel() for one in sums])


def _scores(
    trainer: Trainer,
    total: Float[np.ndarray, " k"],
    weights: Float[np.ndarray, " k"],
    trials: int,
    entropy: Entropy,
) -> Float[np.ndarray, " n"]:
    """Return one number for each noisy copy of a sum: how far it lies along a direction."""
    # The trainer's own code adds the noise, to many copies at once.
    like = next(iter(trainer.model.parameters())).detach().flatten()[:1].double()
    found, many = [], max(1, _AT_ONCE // len(total))
    for first in range(0, trials, many):
        copies = np.tile(total, (min(many, trials - first), 1))
        held = like.new_tensor(copies)
        trainer._add_noise([held], entropy)  # noqa: SLF001
        found.append(held.cpu().numpy() @ weights)
    return np.concatenate(found)


def _noise_finding(trainer: Trainer, level: float, entropy: Entropy) -> Finding:
    """Return whether every tensor gets as much noise as is stated; more is no leak."""
    from scipy.stats import chi2  # noqa: PLC0415 (slow to import)

    # The step is the trainer's own, with nobody in it; squares are in units of the variance that is
    # stated, so that each sum is that of so many squared standard normal numbers.
    terms = trainer._privacy  # noqa: SLF001
    scale = terms.noise_multiplier * terms.clip / terms.expected_batch
    with gradients_kept(trainer.model):
        sums = trainer._clipped_sums(trainer.model, [])  # noqa: SLF001
        trainer._add_noise(sums, entropy)  # noqa: SLF001
        masses = [(one.numel(), float((one / scale).square().sum())) for one in sums]
    tails = [float(chi2.cdf(mass, entries)) for entries, mass in masses]
    least, (entries, mass) = min(zip(tails, masses, strict=True))
    refutes = least < level / len(masses)
    size = math.sqrt(mass / entries)
    wrong = f"A step that nobody is in gives a tensor {size:.4g} of the noise that is stated."
    return Finding.judged(
        "noise",
        wrong=wrong if refutes else "",
        clear=f"A step that nobody is in gives each of {len(masses)} trained tensors the noise "
        "that is stated.",
        p_value=min(1.0, least * len(masses)),
        details={"tensors": len(masses), "least_p_value": least, "its_entries": entries},
    )


def _partners_finding(trainer: Trainer, partners: int, entropy: Entropy) -> Finding:
    """Return whether what is counted of units depends on who else is in a step."""
    # A long unit stands behind as many short units as the trainer is set to read at once, so that
    # it would decide how far they are padded; and in front of blocks of so many long and short ones
    # in turn, so that each would be read with others than before. C is chosen so small that all of
    # them are clipped.
    size = int(trainer.args.per_device_train_batch_size)
    short, *canaries = partner_units(trainer, entropy=entropy)
    bound = float(unit_norms(trainer, [short, *canaries]).min()) / 2
    if not np.isfinite(bound) or bound == 0:
        raise UsageError(_MOVES_NOTHING)
    played, norms = _stand_in(trainer, units=(), clip=bound), []
    for canary in canaries:
        alone = _sum(played, [canary])
        blocks = [*[canary] * size, *[short] * size]
        blocks = (blocks * (1 + partners // len(blocks)))[:partners]
        few = [short] * min(size - 1, partners)
        for others, step in ((few, [*few, canary]), (blocks, [canary, *blocks])):
            change = _sum(played, step) - _sum(played, others)
            norms.append((np.linalg.norm(change), np.linalg.norm(change - alone)))
    # Over C: how far it moved the sum, where 1 is permitted; and how much of that was not what it
    # adds alone, where 0 is right.
    moved, shared = (float(each) for each in np.max(norms, axis=0) / bound)
    refutes, odd = moved > 1 + _ROUNDING, shared > _ROUNDING
    told = f"moves by {shared:.2g} C with it." if odd else "stays as it is."
    return Finding(
        attack="partners",
        outcome="refutes" if refutes else "warning" if odd else "clear",
        summary=(
            f"A long unit behind short ones, and in front of {partners} long and short ones in "
            f"turn, moves the sum of a step by {moved:.4g} C, and C is permitted; what others add "
            f"{told}"
        ),
        details={"partners": partners, "moved": moved, "shared": shared},
    )


def _gradients_finding(trainer: Trainer, units: Sequence[Unit]) -> Finding:
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
