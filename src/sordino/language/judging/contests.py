"""How often a judge prefers the answers of a policy to those of the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from sordino._validate import failure_probability, finite_array
from sordino.errors import DataError, UsageError
from sordino.language.judging.judges import CommandJudge, PreferenceJudge, ScoringJudge
from sordino.language.judging.win_intervals import length_matched_share, share_won
from sordino.language.judging.win_rates import WinRate
from sordino.preferences.records import Text, encoded
from sordino.privacy.guarantee import Guarantee

__all__ = ["CommandJudge", "Judge", "WinRate", "win_rate"]

Scorer: TypeAlias = Callable[[Sequence[Text], Sequence[Text]], Float[np.ndarray, " n"]]
Judge: TypeAlias = PreferenceJudge | ScoringJudge | Scorer


def win_rate(
    judge: Judge,
    prompts: Sequence[Text],
    answers: Sequence[Text],
    reference_answers: Sequence[Text],
    *,
    confidence: float = 0.95,
    guarantee: Guarantee | None = None,
) -> WinRate:
    """Return how often a judge prefers the answers to those of the reference.

    The same answer twice is a tie, whatever the judge says, and a tie counts one half. Answers to
    one prompt belong together, so prompts are the clusters of the interval: repeating a prompt
    does not make it narrower than its answers differ. A judge who prefers longer answers favors
    whoever writes them, so the share at matched lengths stands beside.

    Args:
        judge: A judge with ``score(prompts, answers)`` such as a ``TextRewardModel``, a function
            like it, or one with ``preferences(prompts, first, second)`` such as
            :class:`CommandJudge`. It must not have learned from what the policy did.
        prompts: One for each comparison; they may repeat.
        answers: The policy's.
        reference_answers: The reference's.
        confidence: How often the intervals should cover, in (0, 1).
        guarantee: What the judge's labels were promised, where the judge does not say it itself.

    Raises:
        DataError: The columns differ in length or are empty, or what the judge says cannot be
            used.
        UsageError: A setting cannot be used, or the judge carries another guarantee.

    Source:
        :func:`sordino.language.judging.win_intervals.share_won` and ``length_matched_share``.

    Example:
        >>> likes_long = lambda prompts, answers: np.array([float(len(a)) for a in answers])
        >>> found = win_rate(likes_long, ["p", "q", "q"], ["ab", "a", "abc"], ["a", "a", "b"])
        >>> round(found.mean, 3), found.ties, found.prompts, found.length_matched
        (0.833, 1, 2, None)
    """
    level = failure_probability("confidence", confidence, zero=False)
    promise = _promise(judge, guarantee)
    if not len(prompts) == len(answers) == len(reference_answers) > 0:
        raise DataError(
            "prompts, answers and reference_answers must be as many and at least one, got "
            f"{len(prompts)}, {len(answers)} and {len(reference_answers)}."
        )
    won = _won(judge, prompts, answers, reference_answers)
    clusters = _numbered(prompts)
    sizes, others = _lengths(answers), _lengths(reference_answers)
    ratios = np.log(np.maximum(sizes, 1)) - np.log(np.maximum(others, 1))
    share = share_won(won, clusters, confidence=level)
    return WinRate(
        **share.to_dict(),
        prompts=int(clusters.max()) + 1,
        ties=int(np.sum(won == 0.5)),  # noqa: PLR2004 (a tie is one half)
        length_matched=length_matched_share(won, ratios, clusters, confidence=level),
        mean_length=float(sizes.mean()),
        reference_length=float(others.mean()),
        confidence=level,
        guarantee=promise,
    )


def _promise(judge: Judge, given: Guarantee | None) -> Guarantee | None:
    """Return what a judge, or the model whose method it is, says of its labels."""
    own = getattr(getattr(judge, "__self__", judge), "guarantee", None)
    if own is not None and given not in {None, own}:
        raise UsageError("The judge carries another guarantee than the one given. Leave it out.")
    return given if own is None else own


def _won(
    judge: Judge, prompts: Sequence[Text], answers: Sequence[Text], others: Sequence[Text]
) -> Float[np.ndarray, " n"]:
    """Return what each comparison gave: 1, 0, or a number between."""
    if isinstance(judge, PreferenceJudge):
        found = judge.preferences(prompts, answers, others)
        won = finite_array("the judge's preferences", found, ndim=1)
        if ((won < 0) | (won > 1)).any():
            raise DataError("The judge's preferences must be in [0, 1].")
    else:
        score = judge.score if isinstance(judge, ScoringJudge) else judge
        one, other = (
            finite_array("the judge's scores", score(prompts, each), ndim=1)
            for each in (answers, others)
        )
        if one.shape != other.shape:
            raise DataError("The judge must give one score for each answer.")
        won = 0.5 + 0.5 * np.sign(one - other)
    if len(won) != len(prompts):
        raise DataError(f"The judge said {len(won)} things on {len(prompts)} comparisons.")
    same = [one == other for one, other in zip(answers, others, strict=True)]
    return np.where(same, 0.5, won)


def _numbered(prompts: Sequence[Text]) -> Int[np.ndarray, " n"]:
    """Return a number for each prompt, equal for equal ones."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(encoded(prompt), len(numbers)) for prompt in prompts])


def _lengths(answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
    """Return the number of characters of each answer."""
    return np.array(
        [len(one) if isinstance(one, str) else sum(len(turn["content"]) for turn in one)
         for one in answers], dtype=float,
    )  # fmt: skip
