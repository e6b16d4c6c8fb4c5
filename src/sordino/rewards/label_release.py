"""From raw judgments to one noised sum of their labels: the spend is written, then noise is drawn.

Judgments are in memory or in files. Of files an engine's tasks add up whole numbers, and this
process alone writes to the ledger and draws.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int64

from sordino import _random
from sordino._random import Entropy
from sordino._validate import Vector
from sordino.engines.engine import Rows
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.label_sum import (
    ChunkedLabels,
    LabelGaussian,
    SumMechanism,
    coefficients,
    counted_rows,
)
from sordino.preferences.chunk_survey import ChunkSurvey, Part
from sordino.preferences.comparisons import refuse_one_side
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.preferences.rankings import Rankings
from sordino.preferences.records import person_key
from sordino.privacy.guarantee import REPLACE_ONE, GaussianEvent, Guarantee
from sordino.privacy.ledger import Charged, Ledger, Share, provenance
from sordino.privacy.persons import KEY_BYTES, People
from sordino.privatization.randomization import refuse_unlinked

from .evidence import Evidence, Released, counted_vectors, longest_row, verified
from .release_checks import UNREAD, held_out_rows, refuse_own_rows, weighed

_UP: Final = 1 + 2.0**-30  # so that rounding makes no event smaller
_EXACT: Final = 2.0**-31  # of a count that is rounded up
_CLASSES: Final = 64  # of persons by how often they came; of more, some are charged a bit more
_FINE: Final = 8  # such classes between a loss and twice that
ROUNDED_UP: Final = 2 ** (1 / _FINE)  # what is charged of what is lost, at most
_V = TypeVar("_V", Pairs, Rankings)


def release_labels(
    judgments: Pairs | ChunkSurvey,
    mechanism: LabelGaussian,
    *,
    ledger: Ledger,
    features: Features | None = None,
    held_out: bool = False,
    simulate_seed: int | None = None,
) -> Released[Evidence]:
    """Return all labels as one noised sum, after recording the spend.

    Guarantee:
        That of the mechanism, trust ``"central"``, under ``REPLACE_ONE``: unit ``"label"``, or
        unit ``"person"`` for all labels of one person (caveat ``labels-only``). Where persons are
        known and the unit is the label, the caveat is ``person-group``. In memory labels are read
        once, when the noise is added; of files wherever and however often a task runs: tasks draw
        nothing. Shown by tests/soundness/test_central_label.py.
    """
    # A repeat of one person to one question is the same observation and does not count. With
    # `records_per_person` the rows of a person that count are the first in the order of a digest of
    # person and question, which anybody can compute: no label and no coin decides.
    judged = Judged.of("release_labels", judgments, mechanism, ledger)
    if mechanism.ties:
        raise UsageError("A reward counts no ties: leave ties out. Nothing was released.")
    refuse_own_rows(held_out)
    entropy = _random.entropy(simulate_seed)
    judged.promise(mechanism, ledger, entropy)  # refused before the work on texts
    judged = judged.part("fitted") if held_out else judged
    vectors = judged.vectors(features)
    known, released = release_sum(
        judged,
        mechanism,
        vectors,
        details=UNREAD if held_out else {},
        ledger=ledger,
        entropy=entropy,
    )
    reach = longest_row(vectors.held) if known.longest is None else known.longest
    counted = known.counted(vectors)
    n = counted.shape[0]
    return Released(
        evidence=Evidence(
            differences=counted,
            statistic=released.value,
            factor=known.factor,
            feature_bound=reach / 2 if features is None else features.feature_bound,
            # Of each row every coordinate is rounded by half a step, as often as it has parts.
            rounding=float(n * np.sqrt(known.factor.shape[1]) / known.scale * judged.parts / 2),
            longest=mechanism.longest,
            known_squares=known.squares,
        ),
        **provenance(released),
        features=features,
        pairs=n,
        method=mechanism.name,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownSum:
    """All that is public of one sum Σ y v, known before it is drawn."""

    used: Bool[np.ndarray, " n"] | None  # which rows count; None of files, where all do
    factor: Float[np.ndarray, "d r"]  # F; the noise has covariance FFᵀ
    scale: float  # standard deviation of the noise, in steps of its grid
    squares: float | None = None  # Σ‖v‖², where it was measured with the sum
    longest: float | None = None  # the largest ‖v‖, likewise

    def counted(self, rows: Rows) -> Rows:
        """Return the rows that count."""
        return rows if self.used is None else Rows.of(rows.held[np.flatnonzero(self.used)])


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """Raw judgments whose labels are to be summed, and what is public of them."""

    source: Pairs | ChunkSurvey
    rows: Int64[np.ndarray, " k"] | None  # which may count, in order of preference; None of files
    most: int | None  # how many rows of one person count, by the mechanism they were checked for
    ages: Int64[np.ndarray, " n"] | None = None  # how many updates ago each row was new

    @classmethod
    def of(
        cls,
        asked: str,
        source: Pairs | ChunkSurvey,
        mechanism: LabelGaussian,
        ledger: Ledger,
        ages: Int64[np.ndarray, " n"] | None = None,
    ) -> Judged:
        """Return judgments that may be released; refuse other kinds, orders and settings."""
        if not isinstance(source, Pairs | ChunkSurvey):
            raise PrivacyError(
                f"{asked} takes raw judgments; these are released already, so they can be used as "
                "they are."
            )
        if not isinstance(mechanism, LabelGaussian) or not isinstance(ledger, Ledger):
            raise UsageError(f"{asked} needs a LabelGaussian and a Ledger. Nothing was released.")
        most = mechanism.records_per_person
        if isinstance(source, ChunkSurvey):
            if source.part != "all":
                raise UsageError(
                    f"{asked} takes the whole survey, not a part of it; held_out=True leaves the "
                    "held-out rows to metrics. Nothing was released."
                )
            if source.most != most:
                raise UsageError(
                    f"The files were surveyed for most={source.most!r} rows of one person, and the "
                    f"mechanism has records_per_person={most!r}. Nothing was released. Survey them "
                    "for the same."
                )
            if ages is not None:
                raise UsageError("Votes of several updates are read in memory. Nothing was done.")
            return cls(source=source, rows=None, most=most)
        source.refuse_other_order()
        if most is not None and source.persons is None:
            refuse_unlinked(f"a limit of {most} records of one person")
        return cls(source=source, rows=countable_rows(source), most=most, ages=ages)

    @property
    def parts(self) -> int:
        """Return of what every label is a whole number, as it was declared."""
        return self.source.parts if isinstance(self.source, Pairs) else self.source.chunks.parts

    def questions(self, promise: Guarantee) -> np.ndarray | None:
        """Return by what a ledger of labels knows these judgments."""
        return self.source.questions if promise.unit == "label" else None

    @property
    def people(self) -> People | None:
        """Return who judged, and how many labels of each are summed, if that is known."""
        source = self.source
        if isinstance(source, ChunkSurvey):
            return source.people
        if source.persons is None or self.rows is None:
            return None
        return People.of((person_key(source.persons[row]) for row in self.rows), most=self.most)

    @property
    def holders(self) -> Sequence[str] | None:
        """Return whose rows count up to the cap: of everybody, those of each update."""
        persons = self.source.persons if isinstance(self.source, Pairs) else None
        if persons is None or self.most is None or self.ages is None:
            return None if self.most is None else persons
        return [f"{age} {who}" for age, who in zip(self.ages, persons, strict=True)]

    @property
    def votes(self) -> list[bytes]:
        """Return the keys of person and question of what is new here, where both are known."""
        source = self.source
        if not isinstance(source, Pairs) or self.rows is None:
            return []
        new = self.rows if self.ages is None else self.rows[self.ages[self.rows] == 0]
        return votes_of(source, new)

    def shares(self, mechanism: LabelGaussian, promise: Guarantee) -> list[Share]:
        """Return what a release spends, and whom each part of it is about.

        Guarantee:
            Nobody's loss is more than that of the events with which a ledger finds them here: a
            label of age k moves the sum by at most c_k of what the noise hides; all labels of a
            person, or at most the cap of them from every update, by the sum of that over them.
            Shown by tests/soundness/test_continual.py.
        """
        source = self.source
        if self.ages is None or self.rows is None or not isinstance(source, Pairs):
            return [(mechanism.event, self.questions(promise), self.people)]
        rows = np.flatnonzero(counted_rows(len(source), self.holders, self.rows, self.most))
        ages = self.ages[rows]
        oldest, weights = int(ages.max()), coefficients(int(ages.max()) + 1)
        came = defaultdict[bytes, list[int]](list)  # how old votes are, by person
        for row, age in zip(rows.tolist(), ages.tolist(), strict=True):
            if source.persons is not None:
                came[person_key(source.persons[row])[:KEY_BYTES]].append(age)

        def event(share: float) -> GaussianEvent:
            return GaussianEvent(mechanism.mu * share * (1 if share == 1 else _UP))

        if promise.unit == "person":  # whatever one said in an update, it is up to the cap
            spent = np.array([weights[sorted({*mine})].sum() for mine in came.values()])
            if len(np.unique(spent)) > _CLASSES:
                spent = 2 ** (np.ceil(_FINE * np.log2(spent)) / _FINE)
            sizes = np.unique(spent)[::-1]
            return [(event(one), None, People.of(compress(came, spent == one))) for one in sizes]
        # Whoever has votes of several ages is in one row: what they move in one release adds up.
        counts = defaultdict[int, dict[bytes, int]](dict)
        for key, mine in came.items():
            place = mine[0] if len({*mine}) == 1 else oldest
            counts[place][key] = math.ceil(weights[mine].sum() / weights[place] - _EXACT)
        found: list[Share] = []
        seen = np.zeros(0, np.uint64)
        for age in np.unique(ages).tolist():
            asked, here = source.part(rows[ages == age].tolist()).questions, counts[age]
            assert asked is not None  # noqa: S101 - for the type checker
            if np.isin(asked, seen).any():
                raise UsageError(
                    "A question was asked in two of the planned updates, and a ledger of labels "
                    "knows votes by their questions: those of both updates would pay for all. "
                    "Nothing was released. Give every vote a question_id of its own, take --unit "
                    "person, or leave --updates out."
                )
            seen = np.append(seen, asked)
            who = People(b"".join(here), np.array([*here.values()], np.int64))
            found.append((event(weights[age]), asked, None if source.persons is None else who))
        return found

    def promise(self, mechanism: LabelGaussian, ledger: Ledger, entropy: Entropy) -> Guarantee:
        """Return what a release promises; refuse what the ledger would refuse."""
        source = self.source
        terms = {"linked": source.linked, "repeats": source.repeats}
        promise = promise_of(mechanism, ledger, entropy, n=source.n, **terms)
        for event, asked, people in self.shares(mechanism, promise):
            ledger.check(event, promise=promise, questions=asked, people=people)
        return promise

    def part(self, part: Part) -> Judged:
        """Return those on one side of the public rule for held-out rows."""
        if isinstance(self.source, ChunkSurvey):
            fitted, held_out = self.source.divided()
            return replace(self, source=fitted if part == "fitted" else held_out)
        assert self.rows is not None  # noqa: S101 - for the type checker
        out = held_out_rows(self.source)
        refuse_one_side(pairs=len(out), held_out=int(out.sum()))
        return replace(self, rows=self.rows[out[self.rows] == (part == "held-out")])

    def vectors(self, features: Features | None) -> Rows:
        """Return the feature differences: in memory of all, in files of those that count."""
        if isinstance(self.source, ChunkSurvey):
            return counted_vectors(self.source, features)
        return Rows.of(self.source.differences(features))

    def prepare(
        self, mechanism: LabelGaussian, vectors: Rows, entropy: Entropy
    ) -> tuple[KnownSum, Callable[[], Float[np.ndarray, " d"]]]:
        """Return what is public of the release, and what draws it; in memory no label is read."""
        # Whatever is wrong with vectors, files or the grid is found here, before anything is spent.
        source = self.source
        if isinstance(source, Pairs):
            ages = self.ages
            design = mechanism.prepare(
                vectors.held,
                persons=self.holders,
                rows=self.rows,
                parts=self.parts,
                weights=None if ages is None else coefficients(int(ages.max()) + 1)[ages],
            )
            public = KnownSum(used=design.used, factor=design.factor, scale=design.scale)
            return public, lambda: design.release(source.labels, entropy=entropy)
        if source.parts is not None and source.most is not None:
            raise UsageError(
                "These files were surveyed with hold_out=True: all rows together are more of one "
                "person than the mechanism hides. Nothing was released. Pass held_out=True, or "
                "survey them without."
            )
        in_files = ChunkedLabels.prepare(mechanism, vectors, parts=self.parts)
        others = source.linked and source.chunks.dimension is not None  # texts are, in any case
        total = in_files.total(verified(vectors, source) if others else vectors)
        added = total.added
        assert added is not None  # noqa: S101 - for the type checker
        sizes = {"squares": added.squares, "longest": added.longest}
        public = KnownSum(used=None, factor=total.factor, scale=total.scale, **sizes)
        return public, lambda: total.release(entropy=entropy)


def release_sum(
    judged: Judged,
    mechanism: LabelGaussian,
    vectors: Rows,
    *,
    details: Mapping[str, str],
    ledger: Ledger,
    entropy: Entropy,
    noted: bool = False,
) -> tuple[KnownSum, Charged[Vector]]:
    """Return Σ y v over the rows that count with noise, after recording the spend.

    Guarantee:
        As :func:`release_labels` states it. Shown by tests/soundness/test_central_label.py.
    """
    if mechanism.records_per_person != judged.most:
        raise UsageError(
            f"These judgments were checked for records_per_person={judged.most!r}, and the "
            f"mechanism has {mechanism.records_per_person!r}. Nothing was released."
        )
    promise = judged.promise(mechanism, ledger, entropy)
    known, draw = judged.prepare(mechanism, vectors, entropy)
    most = mechanism.records_per_person
    said = {**({} if most is None else {"cap": most}), **details} or None
    return known, ledger.charge(
        judged.shares(mechanism, promise),
        draw,
        # of all that is public of all judgments, held out or not
        digest=lambda value: digest_of_statistic(judged.source.public_digest, value),
        promise=promise,
        details=said,
        votes=judged.votes if noted else (),
    )


def label_promise(
    pairs: Pairs | Rankings, mechanism: SumMechanism, ledger: Ledger, entropy: Entropy
) -> Guarantee:
    """Return what a release promises under the terms of a ledger, with every caveat."""
    terms = {"linked": pairs.linked, "repeats": pairs.repeats}
    promise = promise_of(mechanism, ledger, entropy, n=len(pairs), **terms)
    named = isinstance(pairs, Rankings) and pairs.named
    return promise.with_caveats(when={"named-offered": named})


def promise_of(
    mechanism: SumMechanism,
    ledger: Ledger,
    entropy: Entropy,
    *,
    linked: bool,
    repeats: bool,
    n: int | None,
) -> Guarantee:
    """Return what a release promises, from what is public of the judgments."""
    promise = mechanism.guarantee(
        unit="person" if ledger.budget.unit == "person" else "label",
        neighbors=REPLACE_ONE,
        trust="central",
    )
    promise = weighed(promise, n, ledger.accepted)
    caveats = {"person-group": promise.unit == "label" and linked, "repeats-not-linked": repeats}
    return promise.with_caveats(when=caveats).drawn(entropy.randomness)


def countable_rows(pairs: Pairs | Rankings) -> Int64[np.ndarray, " k"]:
    """Return the rows that may count, in order of preference; it is a public rule."""
    # Each question of each person once, in the order of a digest of both: where the rows of one
    # person are limited, no file order and no person's habit decides which remain.
    once = np.flatnonzero(pairs.first_rows())
    if pairs.persons is None:
        return once
    both = zip(pairs.keys, pairs.persons, strict=True)
    ranks = [hashlib.sha256(person_key(person) + key).digest() for key, person in both]
    return np.array(sorted(once, key=ranks.__getitem__))


def votes_of(pairs: Pairs | Rankings, rows: Sequence[int] | Int64[np.ndarray, " k"]) -> list[bytes]:
    """Return the keys of person and question of votes; nothing if these do not tell them apart."""
    if pairs.persons is None:
        unique = len({*pairs.keys}) == len(pairs)
        return [pairs.keys[row] for row in rows] if unique else []
    return [person_key(pairs.persons[row]) + pairs.keys[row] for row in rows]


def new_votes(
    votes: _V, path: Path, paid: Sequence[Sequence[str]], *, spread: bool
) -> tuple[_V, Int64[np.ndarray, " n"] | None]:
    """Return the votes that a release is about, and how old each is where old ones are in it."""
    # The ledger knows those on the board again, by keyed digests, from what paid for each update.
    # Where noise is correlated over updates all votes so far are needed.
    keys = votes_of(votes, range(len(votes)))
    if spread and not keys:
        raise UsageError(
            "Later updates have to know these votes again. Nothing was done. Say who voted "
            "(person), or which question it was (question_id), each once; or leave --updates out."
        )
    if not paid or not path.exists():  # a board without its ledger is refused later
        return votes, np.zeros(len(votes), np.int64) if spread else None
    ledger = Ledger.read(path)
    said = {row.release_id: json.loads(row.payload) for row in ledger.rows if row.kind == "reserve"}
    behind = [said.get(name, {}) for names in paid for name in names]
    notes = [payload for payload in behind if "votes" in payload]
    if not notes or not keys:
        return votes, np.zeros(len(votes), np.int64) if spread else None
    marks = [payload["votes"] for payload in notes]
    places, sizes = ledger.rosters.places(keys, marks, notes[0]["secret"])
    new = np.flatnonzero(places < 0)
    if not len(new):
        raise UsageError(
            "All of these votes are on the board already. Nothing was released. Give new ones, too."
        )
    if not spread:
        return (votes if len(new) == len(votes) else votes.part(new.tolist())), None
    here = Counter(dict(zip(keys, places.tolist(), strict=True)).values())
    if lacking := [str(at + 1) for at, size in enumerate(sizes) if here[at] != size]:
        raise UsageError(
            "The noise of this board is correlated, so an update needs all votes so far, and those "
            f"of update {', '.join(lacking)} are not all here. Nothing was released. Give the "
            "files of every update."
        )
    return votes, np.where(places < 0, 0, len(sizes) - places)


def plan_updates(planned: int) -> dict[str, Any]:
    """Return how the noise of so many updates adds up, in standard errors of one release."""
    # At the same loss of a vote in all of them; of a person who comes `visits` times, at the same
    # loss of that person. Source: docs/ranking.md, "A board that goes on".
    squares = np.cumsum(coefficients(planned) ** 2)
    counts = np.arange(1, planned + 1)
    first = int(counts[squares * squares[-1] < counts][0])
    # Whoever comes k times moves the releases most by the first k updates: of two updates, what
    # both count together is least the later and the farther apart they are.
    sums = np.cumsum(coefficients(planned))
    moved = [
        float(((sums - np.append(np.zeros(k), sums)[:planned]) ** 2).sum()) for k in counts.tolist()
    ]
    visits = int(counts[squares[-1] * np.array(moved) < planned * counts].max())
    single, correlated = math.sqrt(planned), float(squares[-1])
    says = (
        f"correlated noise, whose standard error after {planned} updates is {correlated:.3g} times "
        f"that of one release; one by one it would be {single:.3g} times. It is less from update "
        f"{first} on, and for people who come to at most {visits} of them"
    )
    told = {"planned": planned, "used": "correlated", "single": single, "correlated": correlated}
    return told | {"from": first, "visits": visits, "says": says}


def digest_of_statistic(public_digest: str, statistic: Float[np.ndarray, " d"]) -> str:
    """Return the SHA-256 of a released sum together with what it is about."""
    return hashlib.sha256(
        f"{public_digest}\n".encode() + statistic.astype("<f8").tobytes()
    ).hexdigest()
