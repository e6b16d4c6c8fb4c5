"""Judgments of which of two answers is better: raw, and randomized with the promise they carry.

What a privatized file promises is said in a file of its own beside it, its manifest.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from jaxtyping import Float, Integer

from sordino import _validate
from sordino._files import read_json, sha256_of
from sordino.errors import DataError, PrivacyError, UsageError, modules_of_extra
from sordino.privacy.conversions import flip_probability, randomized_response_epsilon
from sordino.privacy.guarantee import CAVEATS, CODES, REPLACE_ONE, SHARES, Guarantee, never_less

from .comparisons import (
    RAW,
    Comparisons,
    PublicDigest,
    Questions,
    TextRules,
    columns_of,
    kept,
    leads_of,
    outcomes,
    outcomes_of,
    row_key,
)
from .containers import Progress
from .files import COMPARISONS, RATINGS, line_of, records_of, untold
from .records import Levels, alike, paired_ratings, turned

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Pairs(Comparisons):
    """Raw judgments: confidential until :func:`sordino.privatize` has randomized them.

    Attributes:
        labels: 1 where ``first`` was preferred, 0 where ``second`` was, 2 where neither (a tie,
            "both bad", "skip"), or the code of a level; never printed.

    Example:
        >>> pairs = Pairs.from_features([[1.0, 0.0], [0.0, -2.0]], [1, 0])
        >>> pairs
        Pairs(n=2)
    """

    _said = ("Row", "its position could tell its label", "pairs with read_pairs or from_features")

    labels: Integer[np.ndarray, " n"] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        labels = outcomes("labels", self.labels, len(self), parts=self.parts)
        object.__setattr__(self, "labels", labels)

    def _outcome(self, row: int) -> dict[str, Any]:
        return {"label": float(SHARES[int(self.labels[row])])}

    def _card(self) -> list[tuple[str, object]]:
        return [*super()._card(), RAW]

    @classmethod
    @_validate.typed
    def from_features(
        cls,
        differences: object,
        labels: object,
        *,
        persons: Iterable[str] | None = None,
        hides_records: bool = False,
        parts: int = 2,
    ) -> Pairs:
        """Return pairs from feature differences, put into an order that ignores the labels.

        A row x = φ(a) − φ(b) and its label say the same as −x with the other label, so each row
        is turned until its first nonzero entry is positive. Without this, rows written as
        "chosen minus rejected" would give every label away.

        Args:
            differences: φ(a) − φ(b), shape (n, d), finite.
            labels: 1 where a was preferred, 0 where b was, 0.5 where neither, shape (n,).
            persons: Public person ids, one per row.
            hides_records: Whether all of a record is private, as under unit ``"record"``: then
                rows that are zero are left out, there may be no row, and no message gives one.
            parts: Of ratings, P: labels are then multiples of 1/P. Declared, never taken from them.

        Raises:
            DataError: Shapes disagree, a value is not finite, a label is none of these, or a row
                is zero (identical answers carry no preference).
        """
        with untold(hides_records=hides_records):
            given = _validate.finite_array("differences", differences, ndim=2)
            outcome = number_labels(labels, len(given), parts)
            people = None if persons is None else _validate.person_ids(persons, len(given))
        if not len(given) and not hides_records:
            raise DataError("differences is empty: no record in it.")
        kept = np.flatnonzero(given.any(axis=1) | (not hides_records))
        people = people and tuple(people[row] for row in kept)
        rows, outcome = turned_rows(given[kept], outcome[kept])
        keys = tuple(map(row_key, rows))
        return cls(
            keys=keys,
            public_digest=PublicDigest.of(keys, people or None),
            given=rows,
            persons=people or None,
            labels=outcome,
            dropped=len(given) - len(rows),
            parts=parts,
        )


def refuse_manifest(manifest: str | Path | None) -> None:
    """Refuse a manifest that was given for raw judgments."""
    if manifest is not None:
        raise UsageError(
            "These are raw judgments, and manifest is for randomized answers. Nothing was spent. "
            "Leave it out, or give the file that it describes."
        )


def turned_rows(
    rows: Float[np.ndarray, "n d"], outcome: Integer[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "n d"], Integer[np.ndarray, " n"]]:
    """Return feature differences and their labels in an order that ignores the labels."""
    lead = leads_of(rows)
    if not lead.all():
        index = int(np.flatnonzero(lead == 0)[0])
        raise DataError(f"differences: row {index} is zero; identical answers say nothing.")
    # + 0.0 turns −0.0 into 0.0
    return rows * np.sign(lead)[:, None] + 0.0, turned(outcome, swap=lead < 0)


def number_labels(labels: object, n: int, parts: int = 2) -> Integer[np.ndarray, " n"]:
    """Return n labels that were given as numbers: 0, 1 or 0.5, or multiples of one part."""
    # A 2 is refused although it is how undecided labels are kept: whoever counts the two answers as
    # 1 and 2 would have every other judgment taken for a tie.
    steps = np.arange(_validate.integer("parts", parts, at_least=1) + 1) / parts
    given = np.asarray(labels)
    if given.shape != (n,) or not np.isin(given, steps).all():
        also = "" if parts == 2 else f", or multiples of 1/{parts}"  # noqa: PLR2004 (halves)
        raise DataError(
            f"labels must be 0 or 1 (or 0.5: undecided){also}, one for each of the {n} rows."
        )
    codes = np.array([CODES[Fraction(step, parts)] for step in range(parts + 1)], np.int8)
    return codes[np.searchsorted(steps, given.astype(np.float64))]


_SLACK = 1e-9  # relative: a flip probability is the nearest float to a ratio of integers
_BITS = 2  # outcomes of a coin


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Randomized(Questions):
    """Randomized answers of any kind with the promise they carry."""

    answers: Integer[np.ndarray, " n"] = field(kw_only=True)
    flip_probability: float = field(kw_only=True)
    guarantee: Guarantee = field(kw_only=True)
    release_ids: tuple[str, ...] = field(default=(), kw_only=True)
    artifact: str = field(kw_only=True)
    seal: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        answers = np.array(self.answers)
        if answers.shape != (len(self),) or not np.isin(answers, range(self.categories)).all():
            raise DataError(
                f"answers must be whole numbers from 0 to {self.categories - 1}, one for each of "
                f"the {len(self)} keys."
            )
        answers = answers.astype(np.int8 if self.categories == _BITS else np.int16)
        answers.setflags(write=False)
        object.__setattr__(self, "answers", answers)
        # A digest of the answers, of what they answer, and of who gave them.
        who = PublicDigest.of(self.keys, self.persons, self.beside)
        seal = digest_of_answers(f"{self.public_digest} {who}", self.answers)
        if self.seal not in {None, seal}:
            raise PrivacyError(
                "These are not the answers that were released under this promise, so it does not "
                "speak for them. Make private pairs with privatize or read_pairs."
            )
        object.__setattr__(self, "seal", seal)
        if self.guarantee.unit == "person":
            self._refuse_more_than_promised()
            return
        epsilon = self.guarantee.epsilon
        flips = 0.0 if math.isinf(epsilon) else flip_probability(epsilon, self.categories)
        if not math.isclose(self.flip_probability, flips, rel_tol=_SLACK):
            raise PrivacyError(
                f"Answers that promise epsilon={never_less(epsilon)} are flipped with probability "
                f"{flips:.9g}, not {self.flip_probability:.9g}."
            )

    def _refuse_more_than_promised(self) -> None:
        """Refuse a promise about whole people that one of them has too many answers for."""
        if self.persons is None or "labels-only" not in self.guarantee.caveats:
            raise PrivacyError(
                "A promise about all labels of one person needs person ids, and the caveat "
                "labels-only: who answered what is in the answers."
            )
        fair = 1 - 1 / self.categories  # a fair coin or die says nothing
        if not 0 <= self.flip_probability < fair:
            raise PrivacyError(
                f"flip_probability must be in [0, {fair:.6g}), got {self.flip_probability!r}."
            )
        labels = most_questions(self.persons, self.keys)
        loss = label_loss(self.flip_probability, self.categories)
        if self.guarantee.epsilon < labels * loss * (1 - _SLACK):
            raise PrivacyError(
                f"A promise of epsilon={never_less(self.guarantee.epsilon)} for one person does "
                f"not cover {labels} answers of one person at epsilon={never_less(loss)} each."
            )

    def _outcome(self, row: int) -> dict[str, Any]:
        return {"answer": int(self.answers[row])}

    def _card(self) -> list[tuple[str, object]]:
        flips = ("flip probability", f"{self.flip_probability:.6g}")
        return [*super()._card(), flips]

    @property
    def categories(self) -> int:
        """Return among how many answers each was drawn; it is public."""
        return _BITS

    @property
    def beside(self) -> list[str]:
        """Return what is public of each answer beside its question and person."""
        return []

    @property
    def label_epsilon(self) -> float:
        """Return the loss of one label; under unit ``"person"`` a share of the guarantee's."""
        total = self.guarantee.epsilon
        if self.guarantee.unit != "person" or math.isinf(total):
            return total
        loss = label_loss(self.flip_probability, self.categories)
        share = total / max(round(total / loss), 1)
        return share if math.isclose(share, loss, rel_tol=_SLACK) else loss

    def received(self: _R, release_id: str) -> _R:  # noqa: PYI019 (Self cannot be checked at run time)
        """Return the same answers, tied to the ledger entry that recorded their arrival."""
        return replace(self, release_ids=(*self.release_ids, release_id))


_R = TypeVar("_R", bound=Randomized)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PrivatePairs(Comparisons, Randomized):
    """Randomized answers with the promise they carry: everything done with them is free.

    Attributes:
        answers: 1 where the randomized answer prefers ``first``, else 0.
        flip_probability: Chance that an answer is not the judgment.
        guarantee: What the answers promise.
        release_ids: Ledger entries that paid for them, or recorded their arrival.
        artifact: SHA-256 of the released answers.
    """

    def to_dataset(self) -> Dataset:
        """Return the answers as a ``datasets.Dataset`` in trl's preference format, in memory.

        Columns are ``prompt``, ``chosen`` and ``rejected``; all are chat messages if any text is.
        Of thumbs and ratings they are ``prompt``, ``completion`` and ``label``, as for KTO.
        ``chosen`` is what the *randomized* answer prefers, so whatever is trained on it has to
        know how often answers are flipped: see :meth:`trl_arguments`. ``info.description``, which
        ``save_to_disk`` keeps, holds that probability, the promise and its caveats.

        Raises:
            MissingExtra: The library ``datasets`` is not installed.
            DataError: The pairs hold feature vectors, or a prompt without any message.

        Guarantee:
            Exactly what ``guarantee`` says: this is post-processing. Shown by
            tests/language/test_trl_datasets.py.
        """
        need = "A Dataset needs the library datasets. Nothing was made."
        (library,) = modules_of_extra("language", need, "datasets")
        if self.given is not None:
            raise DataError("A Dataset for trl holds texts, and these pairs hold feature vectors.")
        liked, name = (self.answers == 1).tolist(), "label" if self.alone else "chosen"
        if self.alone:
            prompts, completions = alike(self.prompts, self.first)
            columns: dict[str, Any] = {"prompt": prompts, "completion": completions, "label": liked}
        else:
            prompts, first, second = alike(self.prompts, self.first, self.second)
            sides = zip(first, second, liked, strict=True)
            ordered = [(one, other) if kept else (other, one) for one, other, kept in sides]
            chosen, rejected = zip(*ordered, strict=True) if ordered else ((), ())
            columns = {"prompt": prompts, "chosen": chosen, "rejected": rejected}
        from sordino.privacy.exports import model_card  # noqa: PLC0415 - slow

        flips = self.flip_probability
        card = model_card(
            self.guarantee,
            title="Private preferences",
            said=[f"Each `{name}` is that of a randomized label, flipped with chance {flips}."],
            usage="" if self.alone else f"DPOConfig(..., **{self.trl_arguments()!r})",
            front={"flip_probability": flips, "release_ids": self.release_ids},
        )
        told = {name: list(column) for name, column in columns.items()}
        made: Dataset = library.Dataset.from_dict(told, info=library.DatasetInfo(description=card))
        return made

    def trl_arguments(self, kind: Literal["dpo", "reward"] = "dpo") -> dict[str, Any]:
        """Return the settings under which a trainer of trl is right for labels that are flipped.

        ``DPOConfig(folder, **private.trl_arguments())`` makes the loss of trl's ``DPOTrainer`` the
        debiased one: ``robust``, with the known flip probability. Its ``RewardTrainer`` has no
        such loss.

        Args:
            kind: The trainer: ``"dpo"`` or ``"reward"``.

        Raises:
            UsageError: No setting of that trainer corrects for flips, and there are some.

        Source:
            docs/local.md, "Debiased likelihood"; trl's ``robust`` is that of Chowdhury et al. 2024.

        Example:
            >>> private.trl_arguments()  # doctest: +SKIP
            {'loss_type': ['robust'], 'label_smoothing': 0.11920292202211755}
        """
        flips = self.flip_probability
        _validate.one_of("kind", kind, ("dpo", "reward"))
        if self.alone:
            raise UsageError(
                "No trainer of trl has a setting that corrects thumbs or ratings for flips. "
                "Nothing was set. Learn a reward of them with sordino.fit_reward."
            )
        if kind == "dpo":
            return {"loss_type": ["robust"], "label_smoothing": flips}
        if flips:
            raise UsageError(
                "No setting of trl's RewardTrainer corrects for labels that are flipped with "
                f"probability {flips:.6g}: its loss takes them for true, and rewards shrink. "
                "Nothing was set. Train with sordino.language.PrivateRewardTrainer, which is that "
                "trainer with the debiased loss; or override compute_loss as in "
                'docs/language_models.md, "Out to any trainer".'
            )
        return {}


def digest_of_answers(public_digest: str, answers: Integer[np.ndarray, " n"]) -> str:
    """Return the SHA-256 of released answers together with what they answer."""
    return hashlib.sha256(f"{public_digest}\n".encode() + answers.tobytes()).hexdigest()


def answer_lines(
    pairs: Comparisons, answers: Integer[np.ndarray, " n"], rows: Iterable[int] | None = None
) -> Iterator[bytes]:
    """Yield some records of texts, or all, with their answers, as lines of a privatized file."""
    for row in range(len(pairs)) if rows is None else rows:
        person = None if pairs.persons is None else pairs.persons[row]
        texts = pairs.prompts[row], pairs.first[row], pairs.second[row]
        names = None if pairs.names is None else pairs.names[row]
        yield line_of(*texts, int(answers[row]), person, pairs.levels, names)


def label_loss(flips: float, categories: int = _BITS) -> float:
    """Return log((1 − f)(K − 1)/f), the loss of one of K labels that is replaced so often."""
    # Source: Warner 1965; docs/local.md, "Randomized response", with e^ε = (1 − f)(K − 1)/f.
    if flips <= 0:
        return math.inf
    return math.log1p((categories - 1 - categories * flips) / flips)


def most_questions(persons: Sequence[str], keys: Sequence[bytes]) -> int:
    """Return the largest number of different questions that one person answered."""
    different = set(zip(persons, keys, strict=True))
    return max(Counter(person for person, _ in different).values(), default=0)


MANIFEST_FORMAT = "sordino.manifest"
_MANIFEST_VERSION = 3
RANDOMIZED_RESPONSE, RANDOMIZED_CHOICE = "randomized-response", "randomized-choice"
_READABLE = {
    (mechanism, unit, REPLACE_ONE)
    for mechanism in (RANDOMIZED_RESPONSE, RANDOMIZED_CHOICE)
    for unit in ("label", "person")
}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a privatized file says of itself: exactly these keys, no counts, no seed."""

    # `flip_probability` is the chance that an answer is not the judgment; `epsilon` is for one
    # `unit`: per label, or for all labels of one person together, a whole multiple of the loss of
    # one; `sha256` is of the privatized file as it lies on disk. `release_id` is random: whatever
    # has the same was drawn together, so that its loss counts once: what is promised to a person is
    # for all files of one release together. `categories` is among how many answers each was drawn.

    sha256: str
    release_id: str
    mechanism: str
    categories: int
    epsilon: float
    flip_probability: float
    unit: str
    neighbors: str
    trust: str
    caveats: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON holds it."""
        head = {"format": MANIFEST_FORMAT, "version": _MANIFEST_VERSION}
        return head | asdict(self) | {"caveats": list(self.caveats)}

    @property
    def guarantee(self) -> Guarantee:
        """Return the promise; a seed, if one was used, shows as a caveat in the file."""
        randomness = "simulated" if "simulated" in self.caveats else "system"
        values = asdict(self) | {"delta": 0.0, "randomness": randomness}
        return Guarantee.from_dict(values, self.caveats)


def digest_of_files(manifests: Iterable[Manifest]) -> str:
    """Return one SHA-256 for many privatized files, in whatever order they are given."""
    together = "\n".join(sorted(manifest.sha256 for manifest in manifests))
    return hashlib.sha256(f"shards\n{together}".encode()).hexdigest()


def manifest_path(path: Path) -> Path:
    """Return where the manifest of a privatized file lies."""
    return path.with_name(f"{stem(path)}.manifest.json")


def stem(path: Path) -> str:
    """Return a file's name without ``.jsonl``, ``.jsonl.gz`` or ``.parquet``."""
    return path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".parquet")


def read_manifest(
    source: object, manifest: str | Path | None = None, *, mechanism: str | None = None
) -> Manifest:
    """Return the manifest of a privatized file, checked against the file itself."""
    # Answers to a question are read as what one `mechanism` made of them.
    if not isinstance(source, str | Path):
        raise DataError("Randomized answers can only be read from a file with a manifest.")
    path = Path(source)
    manifest = manifest_path(path) if manifest is None else Path(manifest)
    problem = "These answers cannot be used without their manifest"
    if not os.path.isfile(manifest):  # noqa: PTH113 (as above)
        raise DataError(
            f"{problem}: there is no {manifest.name} beside the file. Without it nobody knows how "
            "the answers were randomized."
        )
    values = read_json(manifest, kind=MANIFEST_FORMAT, version=_MANIFEST_VERSION, problem=problem)
    result = _checked(values, f"{problem}: {manifest.name}")
    if result.sha256 != sha256_of(path):
        raise DataError(f"{problem}: {manifest.name} is of another file (its sha256 differs).")
    if mechanism not in {None, result.mechanism}:
        raise DataError(
            f"{problem}: {manifest.name} is of {result.mechanism}, and such answers are made by "
            f"{mechanism}."
        )
    return result


def _checked(values: dict[str, Any], problem: str) -> Manifest:
    wanted = set(Manifest.__dataclass_fields__)
    if set(values) - {"format", "version"} != wanted:
        raise DataError(f"{problem} must have exactly the fields {sorted(wanted)}.")
    promise: Guarantee | None = None
    own = {"caveats", "release_id", "categories", "epsilon", "flip_probability"}
    caveats = values["caveats"]
    try:
        result = Manifest(
            **{name: values[name] for name in wanted - own},
            caveats=tuple(caveats),
            release_id=_validate.release_id("release_id", values["release_id"]),
            categories=_validate.integer(
                "categories", values["categories"], at_least=_BITS, at_most=2**15 - 1
            ),
            epsilon=_validate.positive("epsilon", values["epsilon"]),
            flip_probability=_validate.positive("flip_probability", values["flip_probability"]),
        )
        promise = result.guarantee
        flip_probability(result.epsilon, result.categories)  # refuses what no coin or die keeps
    except (TypeError, ValueError, UsageError):
        promise = None
    if (
        promise is None
        or not isinstance(caveats, list)
        or not all(name in CAVEATS for name in caveats)  # one nobody can explain is no promise
        or not (isinstance(result.sha256, str) and isinstance(result.mechanism, str))
    ):
        raise DataError(f"{problem} has a field of a wrong type or value.")
    if (result.mechanism, promise.unit, promise.neighbors) not in _READABLE:
        raise DataError(
            f"{problem} names another mechanism, unit or relation than this sordino reads: "
            f"mechanism {RANDOMIZED_RESPONSE!r} or {RANDOMIZED_CHOICE!r}, unit 'label' or "
            "'person', and neighbors 'REPLACE_ONE'."
        )
    contradiction = None
    if ("randomized-at-ingestion" in caveats) != (result.trust == "central"):
        contradiction = "trust and caveats disagree"
    elif promise.unit == "person" and "labels-only" not in caveats:
        contradiction = (
            "a promise about all labels of one person needs the caveat 'labels-only', because who "
            "answered what is in the file"
        )
    elif result.mechanism == RANDOMIZED_RESPONSE and result.categories != _BITS:
        contradiction = f"a coin has two sides, and categories is {result.categories}"
    elif not _is_kept(result):
        contradiction = "epsilon and flip_probability disagree"
    if contradiction is not None:
        raise DataError(f"{problem} contradicts itself: {contradiction}.")
    return result


def _is_kept(manifest: Manifest) -> bool:
    """Return whether the flips keep epsilon: once, or a whole number of times for a person."""
    epsilon, flips, k = manifest.epsilon, manifest.flip_probability, manifest.categories
    if manifest.unit != "person":
        return math.isclose(flip_probability(epsilon, k), flips, rel_tol=_SLACK) and (
            randomized_response_epsilon(epsilon, k) >= epsilon * (1 - _SLACK)
        )
    # Coins are on 64-bit words; a fair one says nothing. A promise may be for several files, of
    # which another coin or die for the same loss keeps a little less of it.
    if not flips < 1 - 1 / k or not (flips * 2**64).is_integer():
        return False
    least, most = label_loss(flips, k), label_loss(flips - 2.0**-64, k)
    times = math.floor(epsilon / least * (1 + _SLACK))
    return 1 <= times <= 1 / _SLACK and epsilon <= times * most * (1 + _SLACK)


@_validate.typed
def read_pairs(  # noqa: PLR0913 (each is one choice of the user)
    source: object,
    *,
    columns: Mapping[str, str] | None = None,
    drop: Collection[str] = (),
    longest: int | None = None,
    person_field: str | None = "person",
    manifest: str | Path | None = None,
    hides_records: bool = False,
    levels: object = None,
    ratings: str = "levels",
    progress: Progress | None = None,
) -> Pairs | PrivatePairs:
    """Return the pairs of a file, or of any iterable of mappings (a ``datasets`` object, say).

    Raw records hold ``prompt`` and either ``chosen`` and ``rejected`` (texts or chat messages) or
    ``first``, ``second`` and ``label``: 1 if ``first`` is preferred, 0, or undecided ("tie",
    "both bad", "both good", "skip", 0.5), which is as private as the other two. All records may
    leave ``prompt`` out: it is then what both answers begin with. Where one answer was judged by
    itself a record holds ``prompt``, ``completion`` and ``label`` (a thumb: true or false), or
    ``rating``, of which ``levels`` says what it may be. ``labels`` (a list) instead of
    ``label`` is one judgment of each of several people. Privatized records hold ``answer`` and
    need their manifest. Which of two answers is called ``first`` is decided by a hash of the
    text, so it tells nothing about the label.

    Args:
        source: A file of JSON (lines or an array), of a table (``.csv`` or another), Parquet or
            Arrow, also packed (``.gz``, ``.zst``); a folder of them, or one that ``datasets``
            saved; a data frame, a data set of ``datasets``, or an iterable of mappings.
        columns: What our fields are called there, where their names do not say it:
            ``{"prompt": "question", "winner": "vote"}``.
        drop: Which pairs to leave out for their texts, a public rule that looks at no label:
            ``"identical"`` (answers, which are refused otherwise), ``"empty"`` (an answer), and
            ``"overlong"`` (more characters than ``longest``).
        longest: Most characters of prompt and answers together; more are refused, or left out.
        person_field: Name of the optional public person id; its plural (``persons``) is a list
            beside ``labels``. None reads nobody, and does not ask whose a column of ids is.
        manifest: Manifest of a privatized file, if not beside it.
        hides_records: Whether all of a record is private, as under unit ``"record"``. Then there
            may be no record at all, those of identical answers are left out, persons are known if
            every record names one, and no message says which record cannot be used, or why.
        levels: The lowest and the highest rating, such as ``"1..5"``, where records hold
            ``rating``: declared, and never taken from the ratings.
        ratings: ``"levels"`` takes each rating by itself; ``"pairs"`` makes disjoint pairs of the
            answers to one prompt, by a public rule, and says which was rated higher.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A record or the manifest cannot be used; place and field are named.
        UsageError: ``columns`` cannot be meant, or a column looks like ids of people, and nothing
            says whether they matter.
        FileSystemError: The file cannot be read.

    Example:
        >>> read_pairs([{"prompt": "Hi", "chosen": "Hello!", "rejected": "What?"}])
        Pairs(n=1)
    """
    declared = None if levels is None else Levels.of(levels)
    if _validate.one_of("ratings", ratings, RATINGS) == "pairs" and hides_records:
        raise UsageError(
            "ratings='pairs' (--ratings pairs) makes pairs of several records, and one of them is "
            "what is hidden. Nothing was read. Leave it out, or protect labels (--unit label)."
        )
    # Where all of a record is private there may be none at all.
    rows = COMPARISONS.rows(
        source,
        person_field=person_field,
        columns=columns,
        asks=not hides_records,
        empty=hides_records,
        progress=progress,
    )
    records = records_of(
        rows, person_field=person_field, hides_records=hides_records, levels=declared
    )
    with untold(hides_records=hides_records):
        rules, digest = TextRules.of(drop, longest), PublicDigest()
        if hides_records:
            rules = replace(rules, drop=rules.drop | {"identical"})
        used = list(kept(paired_ratings(records) if ratings == "pairs" else records, digest, rules))
        if not used and not hides_records:
            raise DataError(
                f"No pair is left: {', '.join(sorted(rules.drop))} are left out, and every record "
                "is."
                if digest.dropped
                else "The input is empty: no record in it."
            )
    found, outcome = columns_of(used, digest), outcomes_of(used)
    if not (used and used[0].privatized):
        refuse_manifest(manifest)
        return Pairs(**found, labels=outcome)
    note = read_manifest(source, manifest, mechanism=RANDOMIZED_RESPONSE)
    return PrivatePairs(
        **found,
        answers=outcome,
        flip_probability=note.flip_probability,
        guarantee=note.guarantee,
        artifact=note.sha256,
    )
