"""An audit of a trainer on raw judgments before its first step: clipping, noise, sampling.

The sums are those of the trainer's own clipping, and the noise is added by its own code. What is
stood in for is the data (every unit is made up, of tokens drawn at random, so that an audit tells
nothing but how the trainer works), the chance to be drawn (1) and the noise multiplier (1, so that
mu = 1 is claimed). Attacks and their power: docs/auditing.md, "Training".
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from jaxtyping import Float, UInt64
from scipy.stats import binom, chi2

from sordino import _random, _validate
from sordino._random import Entropy
from sordino._validate import integer
from sordino.auditing.canaries import judged_guesses, refuse_few
from sordino.auditing.findings import POWER, Audit, Finding, Measurement, Outcome
from sordino.auditing.statistical.distinguishing import Sure, mu_question
from sordino.errors import UsageError
from sordino.language.dp_sgd.clipping import ClippedSum, differences, without_dropout
from sordino.language.dp_sgd.privacy import sampling_threshold
from sordino.language.dp_sgd.training import CentralTraining, TokenPair
from sordino.language.references.texts import TextsRead
from sordino.preferences.pairs import Pairs
from sordino.privacy.conversions import group_approximate
from sordino.privacy.guarantee import Guarantee

_ANSWER: Final = 8  # tokens of the longest made-up answer
_GENES: Final = 4 + 2 * _ANSWER  # words that decide one pair
_CHANGED: Final = 4  # one word in so many is drawn anew
_ENOUGH: Final = 0.98  # of the worst case: nothing more to look for
_SAME: Final = 2  # tokens that both answers of a pair of partners begin with
_LONGEST: Final = 512  # tokens of a long unit


# ruff: noqa: SLF001 (an audit looks inside a trainer: does what is private there what it says?)

Unit: TypeAlias = tuple[TokenPair, ...]
"""All pairs of one record or person."""


class Canary(NamedTuple):
    """Two neighboring contributions, one of which a fair coin puts into the data."""

    one: Unit  # the pairs of the unit if the coin says yes
    other: Unit | None  # its pairs if the coin says no; None if it is then left out


class _WorstCanary(NamedTuple):
    """The unit that a search found to show most, and how near the worst case it comes."""

    unit: Unit  # its pairs, as trainers take them
    reaches: float  # norm of its clipped gradient, over C: 1 is the worst case of a correct trainer
    # Norm of the sum of the clipped gradients of both answers of its pair, over 2C: 1 is the worst
    # case of a trainer that clips each answer alone.
    row_by_row: float


def _worst_canary(trainer: CentralTraining, entropy: Entropy) -> _WorstCanary:
    """Return a made-up unit whose answers pull the trainer's own model in one direction."""
    # A pair is two rows of a batch. Where each row is clipped alone, a pair moves the sum by up to
    # 2C, and does so only if the gradients of its rows point the same way. Pairs are drawn at
    # random and changed at random, and the best ones are kept: six parents, six children each.
    # Source: docs/auditing.md, "Training".
    genes = _drawn(entropy, 48)  # pairs that a search starts from
    fitness = _shares(trainer, genes)
    for _ in range(40):  # of children, at most
        best = fitness.min(axis=1).argsort()[::-1][:6]
        if fitness[best[0]].min() >= _ENOUGH:
            break
        parents = genes[best].repeat(6, axis=0)  # of each parent
        fresh, coins = (entropy.words(parents.size).reshape(parents.shape) for _ in range(2))
        children = np.where(coins % np.uint64(_CHANGED) == 0, fresh, parents)
        genes = np.concatenate([genes[best], children])
        fitness = np.concatenate([fitness[best], _shares(trainer, children)])
    winner = int(fitness.min(axis=1).argmax())
    unit = (_pair(trainer, genes[winner]),) * _pairs_of(trainer, None)
    return _WorstCanary(unit, *map(float, fitness[winner]))


def person_canaries(
    trainer: CentralTraining, n: int, *, entropy: Entropy, pairs: int | None = None
) -> list[Canary]:
    """Return n made-up people with several pairs each, all of them there or none; or records.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    each = _pairs_of(trainer, pairs)
    found = [_pair(trainer, genes) for genes in _drawn(entropy, n * each)]
    return [Canary(tuple(found[i : i + each]), None) for i in range(0, n * each, each)]


def label_canaries(trainer: CentralTraining, n: int, *, entropy: Entropy) -> list[Canary]:
    """Return n made-up records, each there with one of two labels.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    # To flip a label is to take one record out and to put another one in: two changes under
    # `ADD_OR_REMOVE_ONE` and under `REPLACE_SPECIAL`.
    return [
        Canary((_pair(trainer, genes),), (_pair(trainer, genes, turned=True),))
        for genes in _drawn(entropy, n)
    ]


def _partner_units(trainer: CentralTraining, entropy: Entropy) -> list[Unit]:
    """Return a short unit, and a long one with either label: their answers are almost the same."""
    # The gradient of such a pair is small beside those of its answers, so that whatever is added to
    # its norm for the size of a batch moves its factor most.
    tokens = _tokens(trainer)
    longest = min(int(trainer._tokens.max_length), _LONGEST)
    size = max(1, min(_SAME + 1, longest - 1))
    words = [tokens[int(word) % len(tokens)] for word in entropy.words(longest + 2)]
    said, end, other = words[: size - 1], words[-1], words[-2]
    if end == other:
        other = tokens[(tokens.index(end) + 1) % len(tokens)]

    long = words[size:longest]
    pairs = (
        TokenPair([*prompt, *said, end], [*prompt, *said, other], liked, (size, size))
        for prompt, liked in ((words[:1], 1.0), (long, 0.0), (long, 1.0))
    )
    return [(trainer._judged(pair),) for pair in pairs]


def _tokens(trainer: CentralTraining) -> list[int]:
    config = trainer.model.config.get_text_config()
    padding = config.pad_token_id
    return [one for one in range(config.vocab_size) if one != padding]


def _pairs_of(trainer: CentralTraining, pairs: int | None) -> int:
    if pairs is not None:
        return integer("pairs", pairs, at_least=1)
    cap = getattr(trainer._privacy, "cap", None)
    return 1 if cap is None else min(int(cap), 4)  # of a made-up person


def _drawn(entropy: Entropy, n: int) -> UInt64[np.ndarray, "n genes"]:
    """Return the words that decide n pairs."""
    n = integer("n", n, at_least=1)
    return entropy.words(n * _GENES).reshape(n, _GENES)


def _pair(
    trainer: CentralTraining, genes: UInt64[np.ndarray, " genes"], *, turned: bool = False
) -> TokenPair:
    """Return the pair that some words decide: a prompt of one token, two answers, a label."""
    tokens = _tokens(trainer)
    liked, asked, *rest = (int(word) for word in genes)
    sizes = [1 + word % _ANSWER for word in rest[:2]]
    ids = [tokens[word % len(tokens)] for word in rest[2:]]
    answers = ids[:_ANSWER][: sizes[0]], ids[_ANSWER:][: sizes[1]]
    first, second = ([tokens[asked % len(tokens)], *answer] for answer in answers)
    likes_first = float(liked % 2)
    likes_first = 1 - likes_first if turned else likes_first
    pair = TokenPair(first, second, likes_first, (len(first) - 1, len(second) - 1))
    return cast("TokenPair", trainer._judged(pair))


def _shares(
    trainer: CentralTraining, genes: UInt64[np.ndarray, "n genes"]
) -> Float[np.ndarray, "n 2"]:
    """Return of each pair how near it comes to either worst case: clipped whole, and row by row."""
    rows = np.array([_row_products(trainer, _pair(trainer, one)) for one in genes])
    first, second, inner = rows[:, 0] ** 0.5, rows[:, 1] ** 0.5, rows[:, 2]
    whole = np.sqrt(np.maximum(rows[:, 0] + rows[:, 1] + 2 * inner, 0))
    bound = trainer._privacy.clip
    times = _pairs_of(trainer, None)
    one, other = (np.minimum(1, bound / np.maximum(norm, 1e-30)) for norm in (first, second))
    square = (one * first) ** 2 + (other * second) ** 2 + 2 * one * other * inner
    found = [np.minimum(1, times * whole / bound), np.sqrt(np.maximum(square, 0)) / (2 * bound)]
    return np.asarray(np.nan_to_num(np.stack(found, axis=1)))


def _row_products(trainer: CentralTraining, pair: TokenPair) -> tuple[float, float, float]:
    """Return the squared norms of the gradients of both rows of a pair, and their product."""
    model, seen, rows = trainer.model, [], []
    trained = [one for one in model.parameters() if one.requires_grad]
    hook = model.register_forward_hook(lambda *given: seen.append(given[-1].logits))
    with _gradients_kept(trainer), without_dropout(model):
        try:
            loss = trainer._losses(model, [(pair,)]).sum()
        finally:
            hook.remove()
        seen[0].retain_grad()
        loss.backward(inputs=seen, retain_graph=True)
        behind = seen[0].grad.clone()
        for row in range(2):
            one = behind.new_zeros(behind.shape)
            one[row] = behind[row]
            for each in trained:
                each.grad = None
            seen[0].backward(one, retain_graph=True)
            rows.append([None if each.grad is None else each.grad.double() for each in trained])
    kept = [both for both in zip(*rows, strict=True) if both[0] is not None]
    products = ((0, 0), (1, 1), (0, 1))
    first, second, inner = (
        sum(float((both[i] * both[j]).sum()) for both in kept) for i, j in products
    )
    return first, second, inner


def _unit_norms(trainer: CentralTraining, units: Sequence[Unit]) -> Float[np.ndarray, " n"]:
    """Return the norm of the gradient of each unit, as it is clipped by."""
    model = trainer.model
    with _gradients_kept(trainer), without_dropout(model):
        total = ClippedSum(model, trainer._privacy.clip)
        norms = [total.add(partial(trainer._loss, model, pair) for pair in unit) for unit in units]
    return np.asarray(norms, dtype=np.float64)


@contextmanager
def _gradients_kept(trainer: CentralTraining) -> Iterator[None]:
    """Put the gradients of the trainer's model back in the end."""
    before = [(one, one.grad) for one in trainer.model.parameters()]
    try:
        yield
    finally:
        for one, gradient in before:
            one.grad = gradient


_STEP: Final = 0.05  # length of the step along a gradient over which a loss is compared


def _one_run_claim(claim: Guarantee, canaries: Sequence[Canary]) -> tuple[float, float]:
    """Return (epsilon, delta) that a claim promises to every canary's coin."""
    # A canary that is there or not is one change under `ADD_OR_REMOVE_ONE` and under
    # `REPLACE_SPECIAL`. One that is there with this label or with that one is two.
    changes = 1 if all(canary.other is None for canary in canaries) else 2
    return group_approximate(claim.epsilon, claim.delta, changes)


def _one_run_finding(
    trainer: CentralTraining, canaries: Sequence[Canary], sure: Sure, entropy: Entropy
) -> tuple[Finding, Measurement]:
    """Return what is guessed of the steps of a run; it is trained, and paid for, here."""
    # What the run promises covers everything that is looked at: canaries are made up, and the rest
    # is computed from what steps release. Nothing is drawn before the trainer's entry on its
    # ledger.
    # Source: Steinke, Nasr & Jagielski 2023, Algorithm 1 and Theorem 5.2.
    refuse_few(len(canaries), "Nothing was trained and nothing was audited.")
    coins = (entropy.words(len(canaries)) & np.uint64(1)).astype(bool)
    chosen = [canary[0 if coin else 1] for canary, coin in zip(canaries, coins, strict=True)]
    watcher, own = _Watcher(trainer, canaries), trainer._units
    trainer._units = [*own, *(unit for unit in chosen if unit is not None)]
    trainer.add_callback(watcher)
    try:
        trainer.train()
    finally:
        trainer._units = own
        trainer.remove_callback(watcher)
    claim = _one_run_claim(trainer._run.promise, canaries)
    return judged_guesses("one-run-steps", watcher.seen, coins, claim, sure)


class _Watcher:
    """Sees what steps release, as a callback of transformers does, and keeps scores of canaries."""

    def __init__(self, trainer: CentralTraining, canaries: Sequence[Canary]) -> None:
        self._trainer = trainer
        self._sides = [[canary.one for canary in canaries]]
        if any(canary.other is not None for canary in canaries):
            self._sides.append([canary.other or () for canary in canaries])
        self.seen = np.zeros(len(canaries))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what does nothing, for all other events of transformers."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def on_pre_optimizer_step(self, *_: object, **__: object) -> None:
        """Add up how far the noised gradient points along the gradient of each canary."""
        # What clipping multiplies the gradient of every unit with.
        trainer, model, seen = self._trainer, self._trainer.model, []
        norms = [_unit_norms(trainer, units) for units in self._sides]
        bound = trainer._privacy.clip
        factors = [np.minimum(1, bound / np.maximum(norm, 1e-30)) for norm in norms]
        for step in (_STEP, -_STEP):
            with _moved(trainer, step), without_dropout(model):
                losses = ([trainer._losses(model, [u]).item() for u in us] for us in self._sides)
                seen.append([np.array(each, dtype=np.float64) for each in losses])
        rises = [f * (ahead - behind) for f, ahead, behind in zip(factors, *seen, strict=True)]
        # As the coin says yes, less as it says no.
        self.seen += rises[0] if len(rises) == 1 else rises[0] - rises[1]


@contextmanager
def _moved(trainer: CentralTraining, length: float) -> Iterator[None]:
    """Move the weights of a model along its gradient for a while."""
    trained = [
        one for one in trainer.model.parameters() if one.requires_grad and one.grad is not None
    ]
    square = sum(float(one.grad.double().square().sum()) for one in trained)
    before = [one.data.clone() for one in trained]
    try:
        for one in trained:
            one.data.add_(one.grad, alpha=length / math.sqrt(max(square, math.ulp(0.0))))
        yield
    finally:
        for one, weights in zip(trained, before, strict=True):
            one.data.copy_(weights)


Sampler = Callable[[Sequence[int], Entropy], Sequence[Hashable]]
"""From everybody, and a source of words, to those who take part in one step."""

_EXPECTED: Final = 2.0  # units in a batch: few enough that some batches are empty
_MOST: Final = 4096


def _sampling_finding(
    sampler: Sampler, probability: float, *, level: float, entropy: Entropy, trials: int = 2000
) -> Finding:
    """Return whether batches are Poisson samples, by exact tests that share one level."""
    # The tests are exact: under the claim every number below is that of a binomial. A loader that
    # shuffles and cuts batches of one size draws each unit as often as a Poisson sample does, and
    # is found by its sizes and by who comes back in the next batch.
    # Source: docs/auditing.md, "Training".
    sampling_threshold(probability)
    q, trials = probability, 2 * (integer("trials", trials, at_least=20) // 2)
    units = min(_MOST, max(4, math.ceil(_EXPECTED / q)))
    batches = [list(sampler(range(units), entropy)) for _ in range(trials)]
    sizes = np.array([len(batch) for batch in batches])
    middle, pairs = round(units * q), zip(batches[::2], batches[1::2], strict=True)
    again = sum(len({*one} & {*other}) for one, other in pairs)
    usual, fewer = float(binom.pmf(middle, units, q)), float(binom.cdf(middle - 1, units, q))
    # What was counted, how often it could have been, and its chance if the claim is true.
    tests = {
        "inclusions": (int(sizes.sum()), units * trials, q),
        "usual sizes": (int((sizes == middle).sum()), trials, usual),
        "smaller sizes": (int((sizes < middle).sum()), trials, fewer),
        "empty batches": (int((sizes == 0).sum()), trials, (1 - q) ** units),
        "drawn again": (again, units * (trials // 2), q * q),
    }
    p_values = {  # twice the smaller tail of the binomial
        name: float(min(1.0, 2 * min(binom.cdf(hits, *rest), binom.sf(hits - 1, *rest))))
        for name, (hits, *rest) in tests.items()
    }
    worst = min(p_values, key=p_values.__getitem__)
    strange = any(len(set(one)) < len(one) or not set(one) <= set(range(units)) for one in batches)
    (hits, n, expected), least = tests[worst], p_values[worst]
    told = f"{worst} have a share of {hits / n:.4g} where {expected:.4g} is expected"
    wrong = "twice" if strange else "wrong" if least < level / len(tests) else ""
    # Which chance would have been found.
    limits = "Anybody who is ever left out would have been noticed."
    if q != 1:
        above = binom.isf(level / len(tests) / 2, units * trials, q)
        tried = q + (1 - q) * np.geomspace(1e-6, 1, 400)
        found = tried[binom.sf(above, units * trials, tried) >= POWER][0]
        limits = f"A chance of {found:.3g} where {q:g} is claimed would have been detected."
    return Finding.judged(
        "sampler",
        wrong=wrong,
        told=told,
        limits=limits,
        p_value=0.0 if strange else min(1.0, least * len(tests)),
        details={
            "batches": trials,
            "units": units,
            "sampling_probability": q,
            "tests": {
                name: dict(zip(("count", "trials", "chance"), test, strict=True))
                | {"p_value": p_values[name]}
                for name, test in tests.items()
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
    trainer: CentralTraining,
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
    sure = Sure.of(confidence, level).shared(4)  # by canary, noise, sampler and one run
    entropy = _random.entropy(simulate_seed)
    if canaries and not trainer._replicas:
        raise UsageError(
            f"{type(trainer).__name__} learns from what people are asked, so that no made-up pair "
            "is in a run of it. Nothing was audited. Leave canaries out."
        )
    several = trainer._processes.several
    if several and (simulate_seed is None or canaries):
        # each would make up units of its own
        raise UsageError(
            "Several processes are audited with the same made-up units in each: give "
            "simulate_seed, and leave canaries out. Nothing was audited. Or audit in one process."
        )
    canary = _worst_canary(trainer, entropy)
    others = [one.one for one in person_canaries(trainer, _OTHERS, entropy=entropy, pairs=1)]
    # first, as of several processes one alone draws noise, and all draw the same tokens here
    beside = _partners_finding(trainer, partners, entropy)
    played, shown = _canary_finding(trainer, canary, others, trials, sure, entropy)
    # whoever has a slot takes part for certain
    probability = getattr(trainer._privacy, "sampling_probability", 1.0)
    claim = trainer._run.promise

    def own_sampler(units: Sequence[int], entropy: Entropy) -> Sequence[int]:
        return _stand_in(trainer, units=units)._drawn(entropy)

    found, measured = [played, beside, _noise_finding(trainer, sure.level, entropy)], [shown]
    drawn = sampler or own_sampler
    found.append(_sampling_finding(drawn, probability, level=sure.level, entropy=entropy))
    found.append(_gradients_finding(trainer, [canary.unit, *others]))
    if canaries:
        guessed, loss = _one_run_finding(trainer, canaries, sure, entropy)
        found.append(guessed)
        measured.append(loss)
    if records is not None:
        found.append(_reading_finding(trainer, records))
    return Audit(
        kind="training",
        subject=type(trainer).__name__,
        claim=claim if simulate_seed is None else replace(claim, randomness="simulated"),
        findings=tuple(found),
        measured=tuple(measured),
        level=level,
        confidential=records is not None,
    )


def _reading_finding(trainer: CentralTraining, records: Pairs) -> Finding:
    """Return whether model and tokenizer say that they were made from some records."""
    own: TextsRead = trainer._read
    read = own.with_those_of(TextsRead.on(trainer.processing_class))
    found = read.beside(TextsRead.of(records))
    odd = not (found["read"] or found["known"])
    return Finding.judged("texts-read", wrong=found["read"], odd=odd)


class _Terms:
    """The privacy settings of a trainer, some of them replaced."""

    def __init__(self, privacy: object, **changed: float) -> None:
        self._privacy, self._changed = privacy, changed

    def __getattr__(self, name: str) -> object:
        return self._changed[name] if name in self._changed else getattr(self._privacy, name)


def _stand_in(
    trainer: CentralTraining, *, units: Sequence[object], **terms: float
) -> CentralTraining:
    """Return a shallow copy of a trainer on other units, with some privacy settings replaced."""
    made = copy.copy(trainer)
    made._units = list(units)
    made._privacy = cast("Any", _Terms(trainer._privacy, **terms))
    return made


def _canary_finding(
    trainer: CentralTraining,
    canary: _WorstCanary,
    others: Sequence[Unit],
    trials: int,
    sure: Sure,
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
    moved = length / trainer._privacy.clip
    seen = float(np.linalg.norm(direction[kept])) / length
    question = mu_question(_CLAIMED_MU, attack="worst-canary")
    answer = question.answer(one, other, sure)
    outcome: Outcome = "refutes" if moved > 1 + _ROUNDING else answer.outcome
    told = f"It moves the sum of a step by {moved:.4g} C, and C is permitted; {answer.said}."
    if outcome != "refutes":
        row_by_row = 2 * canary.row_by_row * seen
        told += f" Rows clipped one by one would show mu of about {row_by_row:.2g}."
    if seen < _ALMOST_ALL:
        told += f" Only entries with a share of {seen:.2g} of the gradient were looked at."
    finding = Finding(
        attack="worst-canary",
        outcome=outcome,
        summary=f"A made-up unit with answers that pull one way is in a step or not. {told}",
        details={
            "trials": trials,
            "moved": moved,
            "entries_seen": seen,
            "reaches": canary.reaches,
            "row_by_row": canary.row_by_row,
            "lower_at_verdict": answer.needed,
            "verdict_confidence": sure.verdict,
            "event": answer.cut.to_dict(),
        },
    )
    return finding, answer.shown


def _sum(trainer: CentralTraining, units: Sequence[Unit]) -> Float[np.ndarray, " d"]:
    """Return the sum of clipped gradients that the trainer leaves, all tensors in a row."""
    played = _stand_in(trainer, units=units)
    with _gradients_kept(trainer):
        sums = played._clipped_sums(trainer.model, range(len(units)))
    return np.concatenate([one.cpu().numpy().ravel() for one in sums])


def _scores(
    trainer: CentralTraining,
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
        trainer._add_noise([held], entropy)
        found.append(held.cpu().numpy() @ weights)
    return np.concatenate(found)


def _noise_finding(trainer: CentralTraining, level: float, entropy: Entropy) -> Finding:
    """Return whether every tensor gets as much noise as is stated; more is no leak."""
    # The step is the trainer's own, with nobody in it; squares are in units of the variance that is
    # stated, so that each sum is that of so many squared standard normal numbers.
    terms = trainer._privacy
    scale = terms.noise_multiplier * terms.clip / terms.expected_batch
    with _gradients_kept(trainer):
        sums = trainer._clipped_sums(trainer.model, [])
        trainer._add_noise(sums, entropy)
        masses = [(one.numel(), float((one / scale).square().sum())) for one in sums]
    tails = [float(chi2.cdf(mass, entries)) for entries, mass in masses]
    least, (entries, mass) = min(zip(tails, masses, strict=True))
    return Finding.judged(
        "noise",
        wrong=least < level / len(masses),
        size=math.sqrt(mass / entries),
        p_value=min(1.0, least * len(masses)),
        details={"tensors": len(masses), "least_p_value": least, "its_entries": entries},
    )


def _partners_finding(trainer: CentralTraining, partners: int, entropy: Entropy) -> Finding:
    """Return whether what is counted of units depends on who else is in a step."""
    # A long unit stands behind as many short units as the trainer is set to read at once, so that
    # it would decide how far they are padded; and in front of blocks of so many long and short ones
    # in turn, so that each would be read with others than before. C is chosen so small that all of
    # them are clipped.
    size = int(trainer.args.per_device_train_batch_size)
    short, *canaries = _partner_units(trainer, entropy)
    bound = float(_unit_norms(trainer, [short, *canaries]).min()) / 2
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
    details = {"partners": partners, "moved": moved, "shared": shared}
    wrong, odd_alone = "said" * refutes, "said" * (odd and not refutes)
    return Finding.judged(
        "partners", wrong=wrong, odd=odd_alone, clear="said", details=details, told=told
    )


def _gradients_finding(trainer: CentralTraining, units: Sequence[Unit]) -> Finding:
    """Return whether clipped gradients of made-up units are those that autograd finds."""
    model = trainer.model
    differ = differences(
        model,
        trainer._losses,
        lambda some, bound: trainer._own_sum(model, some, bound).values(),
        units,
    )
    worst = max(
        one if math.isfinite(one) else math.inf for one in (differ.gradients, differ.partners)
    )
    wrong, odd = "said" * (worst > _WRONG), "said" * (_DOUBTFUL < worst <= _WRONG)
    return Finding.judged(
        "gradients",
        wrong=wrong,
        odd=odd,
        clear="said",
        told="empty or wrong" if wrong else "inexact" if odd else "right",
        worst=worst,
        details={name: str(one) for name, one in differ._asdict().items()},
    )
