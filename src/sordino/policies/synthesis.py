"""Preferences made of public prompts and answers by a released reward, for any trainer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import expit

from sordino import _validate
from sordino._withholding import Withholding
from sordino.errors import DataError, PrivacyError
from sordino.preferences.records import Text, alike, candidate_order, encoded
from sordino.rewards.candidates import Candidates

from .gibbs import ReleasedReward, drawn_indices

_Pairing = Literal["extremes", "all"]
_Labeling = Literal["drawn", "likely"]


def synthesize(
    reward: ReleasedReward,
    prompts: Sequence[Text],
    candidates: Sequence[Sequence[Text]],
    *,
    pairs: _Pairing = "extremes",
    labels: _Labeling = "drawn",
    declare_public: bool = False,
) -> list[dict[str, Any]]:
    """Return preferences between given answers, as a released reward has them; nothing is spent.

    Each is a row in trl's format: ``prompt``, ``chosen``, ``rejected``, and their rewards
    ``score_chosen`` and ``score_rejected``. Which answer stands where depends on texts and rewards
    alone, never on the order in which candidates were given.

    Args:
        reward: A reward that was paid for, linear or a language model.
        prompts: n public prompts.
        candidates: n lists of public answers, at least two different ones each.
        pairs: ``"extremes"``: the answer with the highest reward and that with the lowest, one row
            for a prompt; ``"all"``: every two.
        labels: ``"drawn"``: an answer is chosen with the reward's own probability
            σ(score − score of the other), so that what is trained on them has its scale;
            ``"likely"``: the answer with the higher reward is chosen.
        declare_public: Your word that no prompt and no answer is from the private data. Needed
            where the promise covers these too (records, and persons with all that they gave).

    Raises:
        PrivacyError: The reward is withheld, was not released, or promises nothing; or prompts and
            answers may be private.
        DataError: A prompt has fewer than two different answers, or a text cannot be read.
        UsageError: The reward was fitted on feature differences, or a setting is unknown.

    Guarantee:
        That of ``reward.guarantee``: this is post-processing of it and of public texts, which
        nothing here hides. Shown by tests/soundness/test_synthesis.py.

    Source:
        Bradley & Terry 1952: σ(r(chosen) − r(rejected)).
    """
    _refuse_unreleased(reward, declare_public=declare_public)
    _validate.one_of("pairs", pairs, get_args(_Pairing))
    _validate.one_of("labels", labels, get_args(_Labeling))
    if isinstance(prompts, str) or len(prompts) != len(candidates):
        raise DataError(f"{len(candidates)} candidate lists need a list of as many prompts.")
    ordered = [
        different_answers(at, *both)
        for at, both in enumerate(zip(prompts, candidates, strict=True))
    ]
    laid = Candidates.of(prompts, ordered, reference=None, features=reward.features)
    scored = laid.split(reward.score(laid.prompts, laid.answers))
    sides: list[tuple[int, int, int]] = []  # which prompt, and two of its answers
    for at, scores in enumerate(scored):
        least = len(scores) - 1 - int(scores[::-1].argmin())  # another one where all are alike
        ends = [(int(scores.argmax()), least)]
        both = combinations(range(len(scores)), 2) if pairs == "all" else ends
        sides += [(at, one, other) for one, other in both]
    chances = expit(np.array([scored[at][one] - scored[at][other] for at, one, other in sides]))
    kept = chances >= 0.5  # noqa: PLR2004 (neither is likelier)
    if labels == "drawn":
        kept = drawn_indices(list(np.stack([chances, 1 - chances], axis=1)), None) == 0
    picks = [
        (at, one, other) if k else (at, other, one)
        for (at, one, other), k in zip(sides, kept, strict=True)
    ]
    texts = alike(
        [prompts[at] for at, _, _ in picks],
        [ordered[at][chosen] for at, chosen, _ in picks],
        [ordered[at][rejected] for at, _, rejected in picks],
    )
    return [
        {
            **dict(zip(("prompt", "chosen", "rejected"), each, strict=True)),
            "score_chosen": float(scored[at][chosen]),
            "score_rejected": float(scored[at][rejected]),
        }
        for (at, chosen, rejected), *each in zip(picks, *texts, strict=True)
    ]


def different_answers(at: int, prompt: Text, options: Sequence[Text]) -> list[Text]:
    """Return the different answers among some, in an order that is made of their texts alone."""
    # That in which they were given may be the order of somebody's preference.
    problem = "at least two different answers"
    try:
        found = list({encoded(one): one for one in options}.values())
        if len(found) > 1:
            return [found[place] for place in candidate_order(prompt, found)[0]]
    except (UnicodeEncodeError, TypeError, ValueError):
        problem = "texts, or lists of messages, of valid Unicode"
    raise DataError(f"candidates: entry {at} must have {problem}. Nothing was made.")


def _refuse_unreleased(reward: object, *, declare_public: bool) -> None:
    """Refuse a reward that may not label, or not these texts."""
    if isinstance(reward, Withholding):
        raise PrivacyError(
            "This reward is withheld: every label that it gives is a release, and nobody would pay "
            "for it. Nothing was made. Draw answers with its policy (sordino choose), or release a "
            "reward: --noise labels or estimate."
        )
    if not isinstance(reward, ReleasedReward):
        raise PrivacyError(
            f"Preferences are made by a RewardModel from fit_reward or a TextRewardModel, got "
            f"{type(reward).__name__}. Nothing was made."
        )
    promise = reward.guarantee
    if math.isinf(promise.epsilon):
        raise PrivacyError(
            "This reward promises nothing: its epsilon is infinite. Nothing was made. Learn it "
            "with noise first."
        )
    hidden = promise.hides_texts
    if hidden and not declare_public:
        raise PrivacyError(
            f"The promise covers all of a {promise.unit}, prompts and answers too, and what is "
            "made here shows those that it is made of. Nothing was made. If none of them is from "
            "the private data, say so: declare_public=True (--declare-public). Else write or "
            "generate others."
        )
