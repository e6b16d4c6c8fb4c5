"""What one person adds to an update: the gradient of a loss that knows of nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import torch

from sordino.language.central._invented import invented_units
from sordino.language.central.answer_losses import log_ratio_gaps
from sordino.language.central.unit_rows import TokenPair
from sordino.language.models.tokens import DialogueTokens

__all__ = ["UPDATES", "PersonAnswers", "PolicyUpdate", "invented_people", "person_losses"]

PolicyUpdate = Literal["pg", "rebel"]
UPDATES: Final = ("pg", "rebel")


class PersonAnswers(NamedTuple):
    """Two answers that one person was shown, and what they were worth.

    Attributes:
        pair: The answers y and y′ after the prompt; ``reference`` is log π_t(y) − log π_t(y′)
            under the policy π_t that the batch began with.
        advantage: r(y) − r(y′), each reward clipped.
    """

    pair: TokenPair
    advantage: float


def person_losses(
    model: Any,
    units: Sequence[tuple[PersonAnswers]],
    *,
    update: PolicyUpdate,
    step: float,
    padding: int,
) -> Any:
    """Return the loss of every person, shape (units,), whose gradients are clipped one by one.

    With Δ = log π(y) − log π(y′):

    - ``"pg"``: −Â·Δ/2. Its gradient is minus an unbiased one of the mean reward where both
      answers are of the policy itself: each is the other's baseline.
    - ``"rebel"``: ((Δ − Δ_t)/step − Â)², with Δ_t = Δ under the policy that the batch began with.

    Args:
        model: The policy.
        units: Each with one person.
        update: Which loss.
        step: That of REBEL, in log odds per unit of reward.
        padding: The token that pads.

    Source:
        docs/policy_optimization.md, "Updates", before a log-linear policy makes them linear.
    """
    people = [one for (one,) in units]
    gaps = log_ratio_gaps(model, [one.pair for one in people], padding=padding)
    kind = {"dtype": gaps.dtype, "device": gaps.device}
    advantages = torch.tensor([one.advantage for one in people], **kind)
    if update == "pg":
        return -advantages * gaps / 2
    grown = gaps - torch.tensor([one.pair.reference for one in people], **kind)
    return (grown / step - advantages).square()


def invented_people(people: int, tokens: DialogueTokens) -> list[tuple[PersonAnswers]]:
    """Return people who are nobody, for the test of a model before its first update.

    Args:
        people: How many.
        tokens: Says which tokens there are, and how many are read.
    """
    units = invented_units(people, tokens)
    return [(PersonAnswers(unit[0], 1.0 - 2.0 * (at % 2)),) for at, unit in enumerate(units)]
