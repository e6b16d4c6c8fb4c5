"""From battles to what a board may see of them: a noised sum, randomized answers, or all.

Who met whom is public where labels are hidden, and is noised too where whole records are. The
spend is written before noise is drawn; what is made of it afterwards is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Int64, Integer
from scipy import sparse

from sordino import _random
from sordino._random import Entropy
from sordino.engines.engine import Rows
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.grid import Matrix, dense_parts
from sordino.mechanisms.label_sum import LabelGaussian, coefficients
from sordino.mechanisms.randomized_response import NonPrivate, debiased_choices
from sordino.mechanisms.ranking_sum import BallotDesign, BallotGaussian, pair_rows
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunk, judgments, refuse_kind
from sordino.preferences.comparisons import ItemDifferences
from sordino.preferences.files import untold
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.preferences.rankings import PrivateChoices, Rankings
from sordino.preferences.records import turned
from sordino.privacy.guarantee import (
    ADAPTIVE_QUESTIONS,
    REPLACE_ONE,
    UNDECIDED,
    Guarantee,
    NeighboringRelation,
)
from sordino.privacy.ledger import Charged, Ledger, provenance
from sordino.privacy.ledger_chain import digest_of_array
from sordino.privatization.answers import refuse_other_ballots

from .evidence import Evidence, Released, evidence_of_answers
from .label_release import Judged, digest_of_statistic, release_sum, votes_of
from .leaderboard import Ballots, Votes
from .ranking_fit import terms_of_ballots
from .release_checks import record_promise

_TIE: Final = 2**-0.5  # how long a tie of a record is beside its pair: as a win or a loss is
_CELLS: Final = 50  # K − 1 items for which a pair counts as long as a win: see docs/ranking.md
_ROOM: Final = 1 + 2.0**-16  # so that rounding to the grid shortens no record
_AT_ONCE: Final = 1 << 20  # numbers of records' vectors that are held


Boards = dict[str, Votes]
"""What the board of all votes (""), and that of each group, may see of battles."""


def record_mechanism(
    epsilon: float, *, delta: float, items: int, neighbors: NeighboringRelation
) -> GaussianMechanism:
    """Return the noise of least variance that hides any battle among so many items.

    Guarantee:
        (epsilon, delta) for one record: that of
        :class:`~sordino.mechanisms.gaussian.GaussianMechanism` with the norm of one record's
        vector as bound. Shown by tests/soundness/test_votes_release.py.
    """
    return GaussianMechanism.calibrated(
        epsilon, delta=delta, bound=_record_bound(items), neighbors=neighbors, grid=2.0**-20
    )


def release_votes(
    battles: Pairs | ChunkSurvey,
    mechanism: LabelGaussian | GaussianMechanism | NonPrivate,
    *,
    items: ItemDifferences,
    ledger: Ledger,
    simulate_seed: int | None = None,
    ages: Int64[np.ndarray, " n"] | None = None,
) -> Charged[Boards]:
    """Return what boards may see of raw battles, after recording the spend.

    Guarantee:
        Trust ``"central"``. Of ``LabelGaussian`` as
        :func:`~sordino.rewards.label_release.release_labels`: unit ``"label"`` or ``"person"``
        under ``REPLACE_ONE``. Of :func:`record_mechanism` for one record under the relation of the
        ledger's budget: each record adds one vector to one sum, of a norm that nothing but the
        number of declared items decides, and who met whom is known from that sum alone. Shown by
        tests/soundness/test_votes_release.py.
    """
    # `ages` says how many updates ago each battle was new, where noise is correlated over updates:
    # old ones count less, and rows and counts are of new ones (age 0) alone.
    if not isinstance(items, ItemDifferences) or not isinstance(ledger, Ledger):
        raise UsageError("release_votes needs items=ItemDifferences(...) and a Ledger.")
    _refuse_other_battles(battles)
    entropy = _random.entropy(simulate_seed)
    if isinstance(mechanism, GaussianMechanism):
        return _release_records(battles, mechanism, items, ledger, entropy)
    if isinstance(mechanism, NonPrivate):
        return _open_votes(battles, mechanism, items, ledger)
    judged = Judged.of("release_votes", battles, mechanism, ledger, ages)
    if mechanism.ties != items.counters:
        raise UsageError(
            f"The mechanism counts ties={mechanism.ties!r} numbers of ties and the items have "
            f"{items.counters}. Nothing was released. Give both the same."
        )
    judged.promise(mechanism, ledger, entropy)  # refused before the work on many votes
    # Of files it is counted in one pass who met whom, and who won how often: the noised sum, and
    # how far a vote moves it, follow from that table.
    table = _Met.of_files(battles, items) if isinstance(battles, ChunkSurvey) else None
    vectors = judged.vectors(items) if table is None else table.weighed
    known, released = release_sum(
        judged, mechanism, vectors, details={}, ledger=ledger, entropy=entropy, noted=True
    )
    d = items.dimension - items.counters
    met = table or _Met.of(known.counted(vectors), items)
    if ages is not None and known.used is not None:  # what was new, beside the sum of all
        total = (coefficients(int(ages.max()) + 1)[ages] * known.used) @ vectors.held
        new = replace(known, used=known.used & (ages == 0))
        met = replace(_Met.of(new.counted(vectors), items), total=total)
    factor = known.factor
    return Charged(
        _boards(
            met,
            items,
            released.value[:d] - met.total[:d] / 2,
            ties=released.value[d:],
            noise=np.asarray(factor @ factor.T),
        ),
        **provenance(released),
    )


def votes_of_answers(
    answers: PrivatePairs | Released[Evidence], items: ItemDifferences
) -> Charged[Boards]:
    """Return what boards may see of battles whose answers were randomized one by one: it is free.

    Guarantee:
        What the answers promise: this is post-processing. Shown by
        tests/soundness/test_votes_release.py.
    """
    if items.ties:
        raise UsageError(
            "Each answer went through a coin that knows no tie, so ties cannot be counted. Nothing "
            "was ranked. Take them as half wins (ties=False, --ties half); or release one noised "
            "sum (--noise estimate), which counts them."
        )
    _refuse_chosen_questions(answers.guarantee)
    if isinstance(answers, PrivatePairs):
        _refuse_other_battles(answers)
        once = np.flatnonzero(answers.first_rows())
        rows = answers.differences(items)
        beside = Rows.of(rows[once], answers.answers[once])
        evidence = evidence_of_answers(beside, items, answers.flip_probability)
    else:
        evidence = answers.evidence
    met = _Met.of(evidence.differences, items)
    return Charged(
        _boards(
            met,
            items,
            evidence.statistic - met.total / 2,
            ties=np.zeros(0),
            noise=np.zeros((items.dimension, items.dimension)),
            inflation=(1 - 2 * evidence.flip_probability) ** -2,
        ),
        **provenance(answers),
    )


def votes_of_choices(choices: PrivateChoices, items: tuple[str, ...]) -> Charged[Boards]:
    """Return what a board may see of first choices that were randomized one by one: it is free.

    Guarantee:
        What the answers promise: this is post-processing. Shown by
        tests/soundness/test_choice_files.py.
    """
    _refuse_chosen_questions(choices.guarantee)
    k, number = choices.categories, {name: at for at, name in enumerate(items)}
    unknown = [name for name in choices.names or () if name not in number]
    if choices.names is None or unknown:
        raise DataError(
            "A board is about names, and these choices do not say whose the candidates are, or "
            "name one that is not among the items. Nothing was ranked. Learn a reward of them: "
            "sordino align."
        )
    offered = np.array([number[name] for name in choices.names]).reshape(-1, k)
    members = np.zeros((len(choices), len(items)), dtype=bool)
    np.put_along_axis(members, offered, values=True, axis=1)
    if (members.sum(axis=1) < k).any():
        raise DataError(
            f"Choice {int(np.argmin(members.sum(axis=1)))} has two candidates of one name, so that "
            "it does not say how good that is beside the others. Nothing was ranked. Learn a "
            "reward of them: sordino align."
        )
    once = choices.first_rows()
    statistic = np.zeros(len(items))
    chosen = debiased_choices(choices.answers[once], k, choices.flip_probability)
    np.add.at(statistic, offered[once], chosen - 1 / k)
    sets, times = np.unique(members[once], axis=0, return_counts=True)
    ballots = Ballots(sets, times.astype(np.float64), np.ones(len(sets)))
    one, two = np.triu_indices(k, 1)
    in_order = np.nonzero(sets)[1].reshape(-1, k)
    rows = pair_rows(in_order[:, one].ravel(), in_order[:, two].ravel(), len(items))
    other = choices.flip_probability / (k - 1)
    votes = Votes(
        items=items,
        rows=rows,
        counts=np.repeat(ballots.counts, len(one)),
        statistic=statistic,
        noise=np.zeros((len(items),) * 2),
        inflation=(1 - choices.flip_probability - other) ** -2,
        ballots=ballots,
        first=True,
    )
    return Charged({"": votes}, **provenance(choices))


def _refuse_chosen_questions(guarantee: Guarantee) -> None:
    """Refuse answers to questions that earlier answers chose."""
    if ADAPTIVE_QUESTIONS in guarantee.caveats:
        raise UsageError(
            'Which battles were fought depends on earlier votes (choose = "optimistic"), and a '
            "board's intervals do not hold then. Nothing was ranked. For a board use a study with "
            'choose = "uncertain", which looks at counts alone.'
        )


def _refuse_other_battles(battles: object) -> None:
    """Refuse what no board is made of."""
    source = battles.chunks if isinstance(battles, ChunkSurvey) else battles
    if getattr(source, "parts", 2) != 2:  # noqa: PLR2004 (halves)
        raise DataError(
            "These are ratings, and a board is made of battles and thumbs. Nothing was released. "
            "Compare the rated answers to one prompt with each other: --ratings pairs."
        )


@dataclass(eq=False)
class _Met:
    """Who met whom: public rows, each once, and how often; outcomes where nothing is hidden."""

    rows: Float[np.ndarray, "m d"]  # the first that is not 0 is above it; marks of ties behind
    outcomes: Int64[np.ndarray, "m 3"]  # lost, tied and won; or all that met in the first column
    total: Float[np.ndarray, " d"]  # Σ x, as rows were given

    @classmethod
    def of(cls, rows: Rows, items: ItemDifferences, *, openly: bool = False) -> _Met:
        """Return who met whom in all rows."""
        task = partial(cls._block, items.dimension - items.counters, openly)
        return rows.fold(task, cls.together)

    @classmethod
    def of_files(cls, survey: ChunkSurvey, items: ItemDifferences) -> _Met:
        """Return who met whom in all rows of files that count, with outcomes: still secret."""
        read = partial(_tallied, survey, items)
        rows = Rows(survey.engine, survey.chunks, read, (survey.counted, 0), survey.taken)
        met = cls.of(rows, items, openly=True)
        if met.outcomes.sum() != survey.counted:
            raise DataError("The input changed while it was read. Nothing was released.")
        return replace(met, total=met.outcomes.sum(axis=1) @ met.rows)

    @property
    def weighed(self) -> Rows:
        """Return every row with each label, and how often: which rows there are is public."""
        labels, m = np.repeat(np.array([0, UNDECIDED, 1], dtype=np.int8), len(self.rows)), 3
        return Rows.of(np.tile(self.rows, (m, 1)), labels, self.outcomes.T.ravel())

    @classmethod
    def _block(
        cls,
        width: int,
        openly: object,
        _first: int,
        block: Matrix,
        labels: Integer[np.ndarray, " n"] | None = None,
        counts: Int64[np.ndarray, " n"] | None = None,
    ) -> _Met:
        parts = []
        for part, given in dense_parts(block):
            values, n = given.copy(), np.arange(len(given))
            leads = values[n, (values[:, :width] != 0).argmax(axis=1)]
            values[:, :width] *= np.where(leads < 0, -1, 1)[:, np.newaxis]
            outcomes = np.zeros((len(values), 3), dtype=np.int64)
            said = np.zeros(len(values), dtype=np.int64)
            if openly and labels is not None:
                said = np.array([0, 2, 1])[turned(labels[part], swap=leads < 0)]
            outcomes[n, said] = 1 if counts is None else counts[part]
            made = cls(values + 0.0, outcomes, outcomes.sum(axis=1) @ given)  # no −0.0
            parts.append(made.together())
        return parts[0].together(*parts[1:])

    def together(self, *others: _Met) -> _Met:
        """Return who met whom in all of these, each row once."""
        every = (self, *others)
        rows = np.concatenate([one.rows for one in every])
        bytes_ = np.ascontiguousarray(rows).view(f"V{8 * rows.shape[1]}").ravel()
        _, first, which = np.unique(bytes_, return_index=True, return_inverse=True)
        outcomes = np.zeros((len(first), 3), dtype=np.int64)
        np.add.at(outcomes, which, np.concatenate([one.outcomes for one in every]))
        return _Met(rows[first], outcomes, np.sum([one.total for one in every], axis=0))


def _tallied(
    survey: ChunkSurvey, items: ItemDifferences, chunk: Chunk
) -> Iterator[tuple[int, Any, Integer[np.ndarray, " k"], Int64[np.ndarray, " k"]]]:
    """Yield (0, rows, labels, how many) of the rows of a chunk that count; refuse another chunk."""
    refuse_kind(survey.chunks, privatized=False)
    for (pairs, _, _, kinds), counts in survey.read(chunk):
        each = np.arange(len(pairs)) if kinds is None else kinds
        times = np.bincount(each, counts, len(pairs)).astype(np.int64)
        if len(used := np.flatnonzero(times)):
            yield 0, pairs.differences(items)[used], pairs.labels[used], times[used]


def _boards(
    met: _Met,
    items: ItemDifferences,
    centered: Float[np.ndarray, " d"],
    *,
    ties: Float[np.ndarray, " q"],
    noise: Float[np.ndarray, "s s"],
    inflation: float = 1.0,
    openly: bool = False,
) -> Boards:
    """Return what the board of all votes may see, and that of each group."""
    d, boards = items.dimension - items.counters, {}
    for at, group in enumerate(("", *items.groups)):
        columns = items.board(group)
        inside = met.rows[:, columns]
        mine = met.rows[:, d + at] > 0 if items.ties else inside.any(axis=1)
        mine |= at == 0
        own = _Met(inside[mine], met.outcomes[mine], met.total).together()
        kept = [*range(columns.start, columns.stop), *([d + at] if items.ties else [])]
        boards[group] = Votes(
            items=items.items,
            rows=sparse.csr_array(own.rows),
            counts=own.outcomes.sum(axis=1).astype(np.float64),
            statistic=centered[columns],
            ties=float(ties[at]) if items.ties else None,
            noise=noise[np.ix_(kept, kept)],
            inflation=inflation,
            outcomes=own.outcomes.astype(np.float64) if openly else None,
        )
    return boards


def _open_votes(
    battles: Pairs | ChunkSurvey, mechanism: NonPrivate, items: ItemDifferences, ledger: Ledger
) -> Charged[Boards]:
    """Return all that battles say, after an infinite spend."""
    judged = Judged.of("release_votes", battles, _ANY, ledger)
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    rows: Any = None if isinstance(battles, ChunkSurvey) else judged.vectors(items).held

    def drawn() -> _Met:
        if isinstance(battles, ChunkSurvey):
            return _Met.of_files(battles, items)
        return _Met.of(Rows.of(rows[judged.rows], battles.labels[judged.rows]), items, openly=True)

    released = ledger.charge(
        mechanism.event,
        drawn,
        digest=lambda _: judged.source.public_digest,  # raw labels are not digested
        promise=promise,
        stored=False,
        questions=judged.questions(promise),
        people=judged.people,
    )
    met, d = released.value, items.dimension - items.counters
    lost, tied, won = met.outcomes.T
    return Charged(
        _boards(
            met,
            items,
            met.rows[:, :d].T @ ((won - lost) / 2),
            ties=met.rows[:, d:].T @ tied.astype(np.float64),
            noise=np.zeros((items.dimension,) * 2),
            openly=True,
        ),
        **provenance(released),
    )


_ANY: Final = LabelGaussian(1.0, delta=0.5)
"""Stands where battles are checked and nothing is hidden."""


# Ballots.


def release_ballots(
    rankings: Rankings,
    mechanism: BallotGaussian,
    *,
    ledger: Ledger,
    simulate_seed: int | None = None,
) -> Charged[Boards]:
    """Return what a board may see of raw ballots over items, after recording the spend.

    Guarantee:
        That of the mechanism, trust ``"central"``, under ``REPLACE_ONE``: unit ``"label"``, one
        ballot with its length and its ties, or unit ``"person"``. Shown by
        tests/soundness/test_ballot_sum.py.
    """
    refuse_other_ballots("release_ballots", rankings, mechanism, ledger, BallotGaussian)
    if rankings.items is None or rankings.offered is None:
        raise DataError(
            "These ballots have candidates of their own, and a board is about items that many "
            "ballots share. Nothing was released. Name the items in the file's first line."
        )
    if mechanism.counted is rankings.named:
        raise UsageError(
            "Whether a ballot compares two of its items is as private as its order, unless every "
            f"ballot lists all. Nothing was released. Give counted={not rankings.named!r}."
        )
    entropy = _random.entropy(simulate_seed)
    terms, counted = terms_of_ballots(rankings, mechanism, ledger, entropy)
    design = mechanism.prepare(
        rankings.offered, rankings.starts, items=len(rankings.items), **counted
    )
    released = ledger.charge(
        mechanism.event,
        lambda: design.release(rankings.ranks, entropy=entropy),
        digest=lambda value: digest_of_statistic(rankings.public_digest, value),
        votes=votes_of(rankings, np.flatnonzero(rankings.first_rows())),
        **terms,
    )
    return Charged(
        {"": votes_of_ballots(design, released.value, rankings.items)},
        **provenance(released),
    )


def votes_of_ballots(
    design: BallotDesign, value: Float[np.ndarray, " r"], items: tuple[str, ...]
) -> Votes:
    """Return what a board sees of ballots: what was released, and what they were offered."""
    counted, sizes = np.flatnonzero(design.used), np.diff(design.starts)
    ballots = np.repeat(np.arange(len(sizes)), sizes)
    members = np.zeros((len(sizes), len(items)), dtype=bool)
    members[ballots, design.offered] = True
    packed = np.packbits(members[counted], axis=1)
    _, first, times = np.unique(packed, axis=0, return_index=True, return_counts=True)
    first = counted[first]
    offers = Ballots(members[first], times.astype(np.float64), design.shares[first])
    sums, counts = np.split(value, [len(items)])
    noise, *other = np.unique((design.scale * design.worth) ** 2)[::-1]
    return Votes.of_ballots(
        items,
        offers,
        sums,
        noise * np.eye(len(items)),
        counts=counts if design.mechanism.counted else None,
        count_variance=other[0] if design.mechanism.counted else 0.0,
    )


# Whole records.


def _record_weight(items: int) -> float:
    """Return how long the mark of who met is, in a record's vector: c₂."""
    # Source: docs/ranking.md, "How it is private": the least of (½ + c₂²)(1 + a/c₂²) over c₂ is at
    # c₂⁴ = a/2 with a = (K − 1)/25.
    return float(((items - 1) / _CELLS) ** 0.25)


def _record_bound(items: int) -> float:
    """Return the norm of one record's vector: half a difference, or a tie, and who met."""
    return float(np.sqrt(0.5 + _record_weight(items) ** 2)) * _ROOM


def _release_records(
    battles: Pairs | ChunkSurvey,
    mechanism: GaussianMechanism,
    items: ItemDifferences,
    ledger: Ledger,
    entropy: Entropy,
) -> Charged[Boards]:
    k, neighbors = len(items.items), ledger.budget.neighbors
    if items.groups or items.style:
        raise UsageError(
            "Groups and style are read from records, and under unit='record' these are private. "
            "Nothing was released. Leave both out, or hide labels only (--unit label)."
        )
    if mechanism.bound != _record_bound(k) or mechanism.records_per_person is not None:
        raise UsageError("Make the mechanism with record_mechanism(..., items=len(items.items)).")
    if mechanism.neighbors != neighbors:
        raise PrivacyError(
            f"The mechanism is for {mechanism.neighbors.name} and the ledger for {neighbors.name}. "
            "Nothing was released. Make both for the same."
        )
    n = battles.n + battles.dropped
    promise = record_promise(mechanism, ledger, entropy, n=n, features=items)
    ledger.check(mechanism.event, promise=promise)  # before the work on many records
    table = _record_rows(battles, items).fold(partial(_table, k), np.add)
    total = _record_total(mechanism, table, k)
    released = ledger.charge(
        mechanism.event,
        lambda: mechanism.release_total(total, entropy=entropy),
        digest=digest_of_array,
        promise=promise,
    )
    sums, variance = released.value, mechanism.standard_deviation**2
    weight = _record_weight(k)
    noise = np.full(k + items.ties, variance)
    noise[k:] /= _TIE**2
    votes = Votes(
        items=items.items,
        rows=pair_rows(*np.triu_indices(k, 1), k),
        counts=sums[k + 1 :] / weight,
        statistic=sums[:k],
        ties=float(sums[k] / _TIE) if items.ties else None,
        noise=np.diag(noise),
        count_variance=variance / weight**2,
    )
    return Charged({"": votes}, **provenance(released))


def _record_rows(battles: Pairs | ChunkSurvey, items: ItemDifferences) -> Rows:
    """Return who met whom in every record, with who won; nothing tells which is amiss."""
    if isinstance(battles, Pairs):
        battles.refuse_shared()
        with untold(hides_records=True):
            return Rows.of(battles.differences(items), battles.labels)
    read = partial(_blocks, battles, items)
    return Rows(battles.engine, battles.chunks, read, (battles.n, items.dimension))


def _blocks(
    survey: ChunkSurvey, items: ItemDifferences, chunk: Chunk
) -> Iterator[tuple[int, Any, Integer[np.ndarray, " k"]]]:
    yield 0, sparse.csr_array((0, items.dimension)), np.zeros(0, np.int8)
    with untold(hides_records=True):
        for pairs in judgments(survey.chunks, chunk):
            pairs.refuse_shared()
            yield 0, pairs.differences(items), pairs.labels


def _table(
    k: int, _first: int, block: Matrix, labels: Integer[np.ndarray, " n"]
) -> Int64[np.ndarray, " cells"]:
    """Return how often the first of each two items lost, won and tied: as secret as the records."""
    counts = np.zeros(3 * (k * (k - 1) // 2), dtype=np.int64)
    for part, values in dense_parts(block[:, :k]):
        one, other = values.argmax(axis=1), values.argmin(axis=1)
        low, high = np.minimum(one, other), np.maximum(one, other)
        cells = low * (2 * k - low - 1) // 2 + high - low - 1
        codes = np.asarray(turned(labels[part], swap=other < one))
        met = low < high  # one that met itself adds nothing
        counts += np.bincount((3 * cells + codes)[met], minlength=len(counts))
    return counts


def _record_total(
    mechanism: GaussianMechanism, table: Int64[np.ndarray, " cells"], k: int
) -> Int64[np.ndarray, " d"]:
    """Return the exact sum of all records' vectors, in steps."""
    one, other = np.triu_indices(k, 1)
    width, weight = k + 1 + len(one), _record_weight(k)
    total, kinds = np.zeros(width, dtype=np.int64), np.flatnonzero(table)
    for some in np.array_split(kinds, max(1, len(kinds) * width // _AT_ONCE)):
        cell, code, rows = some // 3, some % 3, np.arange(len(some))
        vectors = np.zeros((len(some), width))
        half = np.array([-0.5, 0.5, 0.0])[code]
        vectors[rows, one[cell]], vectors[rows, other[cell]] = half, -half
        vectors[rows, k] = _TIE * (code == UNDECIDED)
        vectors[rows, k + 1 + cell] = weight
        total += mechanism.total(vectors, table[some])
    return total
