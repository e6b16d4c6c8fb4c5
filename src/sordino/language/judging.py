"""How often a judge prefers the answers of a policy to those of its reference."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Int
from scipy.special import stdtrit

from sordino._random import entropy
from sordino._validate import Numbers, finite_array, integer, number, positive
from sordino.errors import DataError, UsageError
from sordino.language.models.tokens import numbered
from sordino.preferences.records import Text
from sordino.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel

_EDGES = np.log([1.1, 1.25, 1.5, 2.0])
_FEWEST = 5  # comparisons on each side of a stratum
_CONFIDENCE = 0.95  # of intervals, everywhere


@dataclass(frozen=True)
class Share:
    """A share of comparisons won, with an interval."""

    mean: float  # the share; a tie counts one half
    low: float
    high: float
    n: int  # comparisons behind it

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def _length_matched_share(
    won: Numbers, log_ratios: Numbers, clusters: Int[np.ndarray, " n"]
) -> Share | None:
    """Return the share won if answers were as often longer than the other one as shorter."""
    # Comparisons whose lengths differ by more than a factor of two are left out. The others fall
    # into strata by the factor (up to 1.1, 1.25, 1.5, 2, and exactly equal). In each, the share won
    # by longer answers and the share won by shorter ones count one half each, so that a judge who
    # looks at length alone gives 1/2. Strata are averaged by the precision of their share, which
    # gives no weight where only one side was seen; sides of fewer than five comparisons are left
    # out. It is no more than a weighting: nothing is assumed on how a judge values length.
    # Source: Weights ab/(a + b) of a stratum with a longer and b shorter answers: Mantel & Haenszel
    # 1959. Interval as in `_share`, around the mean of each side of each stratum.
    strata = np.searchsorted(_EDGES, np.abs(log_ratios) - 1e-12)
    cells = np.where(log_ratios == 0, -1, 2 * strata + (log_ratios > 0))
    weights = np.zeros(len(cells))  # that give both sides of a stratum the same, up to a factor
    equal = cells == -1
    if equal.sum() >= _FEWEST:
        weights[equal] = 0.25  # n/4 in all: what n/2 longer and n/2 shorter ones would have
    for stratum in range(0, 2 * len(_EDGES), 2):
        sides = [cells == stratum, cells == stratum + 1]
        a, b = (int(side.sum()) for side in sides)
        if min(a, b) >= _FEWEST:
            for side, count in zip(sides, (a, b), strict=True):
                weights[side] = a * b / (a + b) / (2 * count)
    used = weights > 0
    if not used.any():
        return None
    kept = weights[used] / weights.sum()
    return _share(won[used], kept, cells[used], clusters[used])


def _share(won: np.ndarray, weights: np.ndarray, cells: np.ndarray, clusters: np.ndarray) -> Share:
    """Return a weighted mean, the weights adding up to 1, with an interval by clusters."""
    # Source: Wilson 1927, with an effective number of comparisons n* = p(1 − p)/V, at most n, in
    # place of n (as survey samplers do; Korn & Graubard 1998), V the variance of the mean between
    # clusters, and Student's quantile on clusters − 1 degrees of freedom. Where V is 0, n* is the
    # number of clusters (of equal size).
    mean = float(np.clip(weights @ won, 0, 1))
    _, group = np.unique(clusters, return_inverse=True)
    count = int(group.max()) + 1
    if count == 1:
        return Share(mean, 0.0, 1.0, len(won))
    # What each comparison is away from the mean of its cell, as independent ones vary.
    _, cell = np.unique(cells, return_inverse=True)
    sizes = np.bincount(cell)
    away = won - (np.bincount(cell, won) / sizes)[cell]
    residuals = away * np.sqrt(sizes / np.maximum(sizes - 1, 1))[cell]
    between = np.bincount(group, weights * residuals)
    variance = count / (count - 1) * float(between @ between)
    if variance > np.finfo(float).eps ** 2:
        most = 1 / float(weights @ weights)
        effective = min(mean * (1 - mean) / variance, most)
    else:
        effective = 1 / float(np.sum(np.bincount(group, weights) ** 2))
    quantile = float(stdtrit(count - 1, 0.5 + _CONFIDENCE / 2))
    shrink = quantile**2 / effective
    middle = (mean + shrink / 2) / (1 + shrink)
    reach = math.sqrt(shrink * (mean * (1 - mean) + shrink / 4)) / (1 + shrink)
    return Share(mean, max(middle - reach, 0.0), min(middle + reach, 1.0), len(won))


@dataclass(frozen=True)
class CommandJudge:
    """A program of the user's that compares answers: texts on its input, chances on its output."""

    # The program is started once a call, without a shell. It reads one JSON object a line,
    # `{"prompt": …, "first": …, "second": …}`, and writes one for each in the same order,
    # `{"preference": p}`: the chance in [0, 1] that the first is better. What it writes to standard
    # error is shown. Prompts and answers go to the program, and wherever it sends them: they are
    # public.
    # Which answer stands first is drawn for each row and undone afterwards, for judges favor a
    # position.

    command: Sequence[str]  # the program and its arguments
    timeout: float = 600.0  # seconds that one call may take
    # Of the order; None takes it from the operating system. It hides nothing.
    seed: int | None = None

    def __post_init__(self) -> None:
        parts = () if isinstance(self.command, str) else tuple(self.command)
        if not parts or not all(isinstance(part, str) for part in parts):
            raise UsageError(
                "command must be a list of texts, the program first: nothing is given to a shell."
            )
        object.__setattr__(self, "command", parts)
        object.__setattr__(self, "timeout", positive("timeout", self.timeout))
        if self.seed is not None:
            integer("seed", self.seed, at_least=0)

    def preferences(
        self, prompts: Sequence[Text], first: Sequence[Text], second: Sequence[Text]
    ) -> Numbers:
        """Return the chance that each first answer is better, as the program says.

        Guarantee:
            None is added: texts are public, and the coins only order them. The program does not
            say what its labels were promised.
        """
        turned = (entropy(self.seed).words(len(prompts)) & np.uint64(1)).astype(bool)
        rows = zip(prompts, first, second, turned, strict=True)
        questions = [
            {"prompt": prompt, "first": other if back else one, "second": one if back else other}
            for prompt, one, other, back in rows
        ]
        lines = self._run("".join(f"{json.dumps(row)}\n" for row in questions)).splitlines()
        if len(lines) != len(questions):
            raise DataError(
                f"The judge wrote {len(lines)} lines for {len(questions)} rows. Nothing was judged."
            )
        chances = np.array([_chance(line, index) for index, line in enumerate(lines, start=1)])
        return np.where(turned, 1 - chances, chances)

    def _run(self, questions: str) -> bytes:
        program = repr(self.command[0])
        try:
            done = subprocess.run(  # noqa: S603 (the user's own program, without a shell)
                self.command, input=questions.encode(), stdout=subprocess.PIPE,
                timeout=self.timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            problem = f"did not finish in {self.timeout:g} seconds"
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "no such name can be run"
            problem = f"cannot be run ({reason})"
        else:
            if not done.returncode:
                return done.stdout
            problem = f"ended with status {done.returncode}"
        raise UsageError(f"The judge {program} {problem}. Nothing was judged.")


def _chance(line: bytes, index: int) -> float:
    """Return the chance on one line; the message does not say what stood there instead."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        chance = number("preference", json.loads(line)["preference"])
        if 0 <= chance <= 1:
            return chance
    raise DataError(
        f"The judge's line {index} is not an object whose 'preference' is a number in [0, 1]. "
        "Nothing was judged."
    )


_NESTED = {"length_matched", "guarantee"}


@dataclass(frozen=True, kw_only=True)
class WinRate(Share):
    """How often a judge prefers a policy's answers to those of the reference."""

    prompts: int  # different prompts among them
    ties: int  # comparisons that nobody won
    # The share where answers are as often longer as shorter, or None where that cannot be said.
    length_matched: Share | None
    mean_length: float  # mean number of characters of the policy's answers
    reference_length: float  # the same of the reference's
    confidence: float = _CONFIDENCE  # how often the intervals should cover
    # What the labels that the judge learned from were promised, if it says so.
    guarantee: Guarantee | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and the judge's promise as JSON holds them."""
        promise, matched = self.guarantee, self.length_matched
        return {
            **{name: value for name, value in vars(self).items() if name not in _NESTED},
            "length_matched": matched and asdict(matched),
            "judge_guarantee": promise and {**promise.to_dict(), "caveats": list(promise.caveats)},
        }

    def __str__(self) -> str:
        matched = self.length_matched
        at_length = f"{matched} over {matched.n}" if matched else "not known"
        line = (
            f"win rate {super().__str__()} over {self.n} comparisons of {self.prompts} prompts, "
            f"{self.ties} ties; length-matched {at_length}; mean length {self.mean_length:.0f} "
            f"against {self.reference_length:.0f} characters"
        )
        if self.guarantee is None:
            return line
        if math.isinf(self.guarantee.epsilon):
            return (
                f"{line}\nThe judge learned from unprotected labels (epsilon=inf): publish it "
                "only if the judge's labels are public."
            )
        return f"{line}\nThe judge's labels: {self.guarantee}"


Judge: TypeAlias = CommandJudge | Callable[[Sequence[Text], Sequence[Text]], Numbers]
"""Who compares two answers; or who scores one at a time, where more is better."""


def win_rate(
    judge: Judge,
    prompts: Sequence[Text],
    answers: Sequence[Text],
    reference_answers: Sequence[Text],
) -> WinRate:
    """Return how often a judge prefers the answers to those of the reference."""
    # The same answer twice is a tie, whatever the judge says, and a tie counts one half. Answers to
    # one prompt belong together, so prompts are the clusters of the interval: repeating a prompt
    # does not make it narrower than its answers differ. A judge who prefers longer answers favors
    # whoever writes them, so the share at matched lengths stands beside.
    # Source: `_share` and `_length_matched_share`.
    if not len(prompts) == len(answers) == len(reference_answers) > 0:
        raise DataError(
            "prompts, answers and reference_answers must be as many and at least one, got "
            f"{len(prompts)}, {len(answers)} and {len(reference_answers)}."
        )
    if isinstance(judge, CommandJudge):
        won = judge.preferences(prompts, answers, reference_answers)
    else:
        one, other = (
            finite_array("the judge's scores", judge(prompts, each), ndim=1)
            for each in (answers, reference_answers)
        )
        if one.shape != other.shape:
            raise DataError("The judge must give one score for each answer.")
        won = 0.5 + 0.5 * np.sign(one - other)
    if len(won) != len(prompts):
        raise DataError(f"The judge said {len(won)} things on {len(prompts)} comparisons.")
    same = [a == b for a, b in zip(answers, reference_answers, strict=True)]
    won = np.where(same, 0.5, won)
    clusters = numbered(prompts)
    sizes, others = _lengths(answers), _lengths(reference_answers)
    ratios = np.log(np.maximum(sizes, 1)) - np.log(np.maximum(others, 1))
    even = np.full(len(won), 1 / len(won))
    share = _share(won, even, np.zeros(len(won), int), clusters)
    return WinRate(
        **asdict(share),
        prompts=int(clusters.max()) + 1,
        ties=int(np.sum(won == 0.5)),  # noqa: PLR2004 (a tie is one half)
        length_matched=_length_matched_share(won, ratios, clusters),
        mean_length=float(sizes.mean()),
        reference_length=float(others.mean()),
        guarantee=getattr(getattr(judge, "__self__", judge), "guarantee", None),
    )


def _lengths(answers: Sequence[Text]) -> Numbers:
    return np.array(
        [len(one) if isinstance(one, str) else sum(len(turn["content"]) for turn in one)
         for one in answers], dtype=float,
    )  # fmt: skip


@dataclass(frozen=True)
class RewardJudge:
    """A reward as a judge of what a model wrote: an answer that cannot be read loses."""

    # A model may end before it has said anything. A reward gives no score to an empty answer; here
    # it stands below every other.

    reward: TextRewardModel  # it must not have learned from what the policy did

    @property
    def guarantee(self) -> Guarantee:
        """Return what the labels that the judge learned from were promised."""
        return self.reward.guarantee

    def __call__(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Numbers:
        """Return a score for each answer, the least for those that cannot be read."""
        found = self.reward.scores_of_readable(prompts, answers)
        return np.where(np.isnan(found), -self.reward.reward_bound - 1.0, found)


def draw_answers(
    folder: Path, prompts: Sequence[Text], *, max_new_tokens: int, seed: int
) -> list[str]:
    """Return one answer of a checkpoint to each prompt."""
    from sordino.language.models import checkpoints, generation  # noqa: PLC0415 (loads torch)

    model, tokenizer = checkpoints.load_causal_model(folder), checkpoints.load_tokenizer(folder)
    return generation.sample_answers(
        model, tokenizer, prompts, max_new_tokens=max_new_tokens, seed=seed
    )


def compare_policies(
    policy: Path,
    reference: Path,
    prompts: Sequence[Text],
    judge: Judge,
    *,
    max_new_tokens: int = 64,
    seed: int = 0,
) -> WinRate:
    """Return how often a judge prefers what a policy answers to what its reference does."""
    drawn, others = (
        draw_answers(folder, prompts, max_new_tokens=max_new_tokens, seed=2 * seed + side)
        for side, folder in enumerate((policy, reference))
    )
    return win_rate(judge, prompts, drawn, others)
