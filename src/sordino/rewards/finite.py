"""A finite class of candidate rewards: the likeliest, and how far the others disagree with it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._files import sha256_of
from sordino._validate import Vector
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.bandit_logs import ContextColumn, cell_of, read_cells
from sordino.preferences.features import CLASS, SIGNALS, HashedText
from sordino.preferences.files import read_rows
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.preferences.records import Text
from sordino.privacy.ledger import provenance

from .candidates import Candidates, ReferenceLists
from .confidence import DisagreementSet, spread_of
from .evidence import Design
from .model import RewardModel
from .pair_losses import answer_probability

RewardFunction: TypeAlias = Callable[[Sequence[Text], Sequence[Text]], Any]
"""Prompts and answers in, one reward in [0, 1] for each out."""

_BLOCK = 1 << 21  # numbers of rewards that are held at once: 16 MiB
_TEXTS = ("completion", "answer", "response")  # what the column of an answer is called
_LISTED = 10  # candidates that a result tells
_HALF = 0.5  # the longest weights whose rewards, moved by as much, are in [0, 1]
_FORMS = (
    "rows of prompt, completion and a column of scores in [0, 1] for each candidate; or rows of a "
    "name and its weights, a list for hashed text features or {signal: weight}"
)


@dataclass(frozen=True)
class FiniteRewards:
    """A finite class of candidate rewards, one of which is assumed to be true.

    Each function is public and was written down before anybody answered. It is called with n
    prompts and n answers and returns n rewards in [0, 1]; a row must depend on its own prompt
    and answer only.

    Args:
        functions: Name → function.
        digest: SHA-256 of the file that they were read from, if any.

    Example:
        >>> def short(prompts, answers):
        ...     return [1 / (1 + len(answer)) for answer in answers]
        >>> def polite(prompts, answers):
        ...     return [float("please" in answer) for answer in answers]
        >>> FiniteRewards({"short": short, "polite": polite})
        FiniteRewards('polite', 'short')
    """

    functions: Mapping[str, RewardFunction] = field(repr=False)
    digest: str = field(default="", repr=False, kw_only=True)  # of the file it was read from

    @classmethod
    def read(cls, path: str | Path) -> FiniteRewards:
        """Return the candidates of a public file that was written before anybody answered.

        It holds rows of ``prompt``, ``completion`` and a column of scores in [0, 1] for each
        candidate; or rows of ``name`` and ``weights``: a list for that many hashed text features,
        or a mapping from names of :data:`~sordino.preferences.features.SIGNALS`. A reward is then
        weights · φ + 1/2, so weights have a norm of at most 1/2.

        Raises:
            DataError: The file is of neither form, or a score or weight cannot be used.
            FileSystemError: It cannot be read.
        """
        rows = list(read_rows(path))
        first: Mapping[str, Any] = rows[0][1] if isinstance(rows[0][1], Mapping) else {}
        text = next((name for name in _TEXTS if name in first), None)
        if "weights" in first:
            made = {name: partial(_linear, one) for name, one in read_weights(rows).items()}
            return cls(made, digest=sha256_of(Path(path)))
        names = [name for name in first if name not in ("prompt", text)]
        if text is None or "prompt" not in first or not names:
            raise DataError(f"A class of rewards is {_FORMS}. Nothing was done.")
        scores = read_cells(rows, tuple(map(ContextColumn, names)))
        for (where, _), row in zip(rows, scores, strict=True):
            if not ((row >= 0) & (row <= 1)).all():
                raise DataError(f"{where}: a score of a class must be in [0, 1]. Nothing was done.")
        texts = ([cell_of(row, name, where) for name in ("prompt", text)] for where, row in rows)
        places = {_key(*both): at for at, both in enumerate(texts)}
        if len(places) < len(rows):
            raise DataError("A class of rewards scores an answer twice. Nothing was done.")
        table = {
            name: partial(_looked_up, places, column)
            for name, column in zip(names, scores.T, strict=True)
        }
        return cls(table, digest=sha256_of(Path(path)))

    def __post_init__(self) -> None:
        given = self.functions if isinstance(self.functions, Mapping) else {}
        named = [name for name in given if isinstance(name, str) and name]
        if not given or len(named) < len(given) or not all(map(callable, given.values())):
            raise UsageError(
                "functions must be a dict of at least one name and function of prompts and "
                "answers, such as {'short': short}."
            )
        ordered = {name: given[name] for name in sorted(named)}
        object.__setattr__(self, "functions", MappingProxyType(ordered))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.names)) if self.dimension <= 5 else f"N={self.dimension}"  # noqa: PLR2004
        return f"FiniteRewards({shown})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names in alphabetical order, which breaks ties."""
        return tuple(self.functions)

    @property
    def dimension(self) -> int:
        """N, the number of rewards."""
        return len(self.functions)

    @property
    def feature_bound(self) -> float:
        """The largest norm of N rewards in [0, 1]."""
        return math.sqrt(self.dimension)

    def score(
        self, name: str, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, " n"]:
        """Return one candidate's reward of each answer.

        Raises:
            DataError: It returned another shape, or a reward outside [0, 1]; the message names
                the candidate and the index.
        """
        what = f"The rewards of {_validate.one_of('name', name, self.functions)!r}"
        if len(prompts) != len(answers):
            raise DataError(f"Each prompt needs its answer, got {len(prompts)} and {len(answers)}.")
        rewards = _validate.finite_array(what, self.functions[name](prompts, answers), ndim=1)
        if len(rewards) != len(answers):
            raise DataError(f"{what} must be {len(answers)}, one for each answer.")
        outside = np.flatnonzero((rewards < 0) | (rewards > 1))
        if len(outside):
            raise DataError(
                f"{what} must be in [0, 1]: entry {outside[0]} is not. Nothing was clipped; "
                "rescale the function."
            )
        return rewards

    def transform(
        self, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, "n N"]:
        """Return the rewards of all candidates, one row for each answer, one column for each.

        Raises:
            DataError: As in :meth:`score`.
        """
        return np.stack([self.score(name, prompts, answers) for name in self.names], axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the names; of the functions nothing is stored, of a file its digest."""
        kept = {"digest": self.digest} if self.digest else {}
        return {"kind": CLASS, "names": list(self.names), **kept}

    def fit(
        self,
        pairs: PrivatePairs,
        *,
        drawn_from_reference: bool = False,
        prompts: Sequence[Text] | None = None,
        candidates: Sequence[Sequence[Text]] | None = None,
        reference: ReferenceLists = None,
    ) -> RewardModel:
        """Return the candidate under which the randomized answers are likeliest.

        The maximum is exact, by enumeration; ties go to the name that comes first. A repeated
        answer of one person to one question counts once.

        Args:
            pairs: Randomized answers about texts.
            drawn_from_reference: Whether both answers of every pair were drawn from the
                reference policy. If so, disagreement may be measured by the variance under the
                reference, on the prompts and candidates given here; if not, it is measured on
                the pairs themselves, which always holds.
            prompts: With ``drawn_from_reference``: n contexts, as the pairs' prompts are
                distributed. Give all of them where they are few; a sample adds its error.
            candidates: With ``drawn_from_reference``: all answers that the reference can give,
                one list for each prompt.
            reference: With ``drawn_from_reference``: their probabilities; uniform if left out.

        Raises:
            PrivacyError: The pairs are raw judgments.
            UsageError: The pairs hold no texts, or settings do not fit together.
            DataError: A function returned no rewards in [0, 1].

        Returns:
            A reward whose features are the rewards of all candidates, and whose weights pick one.

        Guarantee:
            Exactly what the answers promise: this is post-processing. Shown by
            tests/soundness/test_pessimism.py.

        Source:
            PPKL, Algorithm 1, step 1; docs/local.md, finite reward class: maximum likelihood of
            P(z) = κσ(r(first) − r(second)) + f.
        """
        if isinstance(pairs, Pairs):
            raise PrivacyError(
                "These are raw judgments; the likeliest reward would give them away. Nothing was "
                "fitted. Randomize them first with sordino.privatize(pairs, "
                "sordino.RandomizedResponse(epsilon=...), ledger=...), or read a file that "
                "sordino privatize wrote."
            )
        if not isinstance(pairs, PrivatePairs):
            raise UsageError(f"pairs must come from privatize, got {type(pairs).__name__}.")
        if pairs.given is not None:
            raise UsageError(
                "These pairs were made by from_features and hold no texts that reward functions "
                "could read. Use pairs of texts, or fit_reward for a linear reward."
            )
        pairs.refuse_alone()
        given = {value is not None for value in (prompts, candidates)}
        if given != {drawn_from_reference} or (reference is not None and not drawn_from_reference):
            raise UsageError(
                "prompts, candidates and reference describe the reference policy: give the first "
                "two with drawn_from_reference=True, and none of them without."
            )
        design = Design.of(pairs, self)
        weights, likelihoods = likeliest(design)
        moments = design.differences.T @ design.differences / (2 * len(design))
        if prompts is not None and candidates is not None:
            options = Candidates.of(prompts, candidates, reference=reference, features=self)
            moments = np.zeros((self.dimension, self.dimension))
            for here, _, centered in options.centered(self):  # averaged over prompts
                moments += centered.T @ (options.reference[here, None] * centered)
            moments /= len(options.sizes)
        return RewardModel(
            weights=weights,
            features=self,
            ridge=0.0,
            ball=1.0,
            gradient_norm=0.0,
            atol=0.0,
            pairs=len(design),
            method=CLASS,
            ellipsoid=DisagreementSet(
                center=weights,
                spread=spread_of(moments),
                n=len(design),
                kappa=1 - 2 * pairs.flip_probability,
            ),
            **provenance(pairs),
            statistic=likelihoods,
        )


def likeliest(design: Design) -> tuple[Vector, Vector]:
    """Return the weights that pick the likeliest candidate of a class, and all log-likelihoods."""
    gaps, answers = design.differences, design.answers
    found = np.zeros(gaps.shape[1])
    size = max(1, _BLOCK // gaps.shape[1])
    for at in range(0, len(answers), size):
        # rewards in [0, 1] keep both probabilities above 0.26
        chances = answer_probability(gaps[at : at + size], design.flip_probability)
        preferred = answers[at : at + size, None] == 1
        found += np.log(np.where(preferred, chances, 1 - chances)).sum(axis=0)
    return (np.arange(len(found)) == np.argmax(found)).astype(np.float64), found


def describe_class(reward: RewardModel, confidence: float | None) -> dict[str, Any] | None:
    """Return what is known of a finite class, the best candidate first; None without a class."""
    names, scores, known = getattr(reward.features, "names", ()), reward.statistic, reward.ellipsoid
    if reward.method != CLASS or scores is None:
        return None
    order = np.lexsort((-scores, -reward.weights)).tolist()[:_LISTED]
    possible = None
    if confidence is not None and isinstance(known, DisagreementSet):
        possible = known.possible(confidence)
    return {
        "candidates": len(names),
        "likeliest": [[names[at], float(scores[at])] for at in order],
        "possible": possible,
    }


def read_weights(rows: Sequence[tuple[str, Any]]) -> dict[str, Float[np.ndarray, " d"]]:
    """Return the weights of each candidate by its name, all of one length and none too long."""
    found: dict[str, Float[np.ndarray, " d"]] = {}
    for where, row in rows:
        name, given = row.get("name"), row.get("weights")
        if isinstance(given, Mapping) and given.keys() <= SIGNALS.keys():
            given = [given.get(signal, 0.0) for signal in SIGNALS]
        if not isinstance(name, str) or not name or not isinstance(given, list) or name in found:
            raise DataError(f"{where}: a candidate is a new name and its weights: {_FORMS}.")
        found[name] = _validate.finite_array(f"{where}: weights", given, ndim=1)
        if len(found[name]) != len(next(iter(found.values()))):
            raise DataError(f"{where}: all candidates must have the same number of weights.")
        if not np.linalg.norm(found[name]) <= _HALF:
            raise DataError(
                f"{where}: the norm of the weights must be at most 0.5, so that rewards (weights · "
                "features + 0.5) are in [0, 1]. Nothing was done. Scale them down."
            )
    return found


def _linear(
    weights: Float[np.ndarray, " d"], prompts: Sequence[Text], answers: Sequence[Text]
) -> Float[np.ndarray, " n"]:
    signals = len(weights) == len(SIGNALS)
    features = HashedText(len(weights), word_norm=0.0 if signals else 0.15)
    rewards = features.transform(prompts, answers) @ weights + _HALF
    return np.asarray(np.clip(rewards, 0, 1))  # of rounding


def _key(prompt: object, answer: object) -> object:
    plain = isinstance(prompt, str) and isinstance(answer, str)
    return (prompt, answer) if plain else json.dumps([prompt, answer], sort_keys=True)


def _looked_up(
    places: Mapping[object, int],
    column: Float[np.ndarray, " n"],
    prompts: Sequence[Text],
    answers: Sequence[Text],
) -> Float[np.ndarray, " n"]:
    found = [places.get(_key(*texts), -1) for texts in zip(prompts, answers, strict=True)]
    if -1 in found:
        raise DataError(
            f"The class has no score of the answer in entry {found.index(-1)}: prompt and answer "
            "must stand in it word for word. Nothing was scored."
        )
    return column[found]
