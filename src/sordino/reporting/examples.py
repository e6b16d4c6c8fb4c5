"""Before and after: a few pairs of texts that may be shown, picked by a fixed rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._markup import harmless
from sordino.errors import DataError
from sordino.preferences.records import Text

__all__ = ["choose_examples"]

_LONGEST = 400  # characters of a text that are shown
_ADDRESS = "://"


def choose_examples(
    prompts: Sequence[Text],
    first: Sequence[Text],
    second: Sequence[Text],
    *,
    probabilities: Float[np.ndarray, " n"],
    most: int = 3,
) -> list[dict[str, Any]]:
    """Return pairs of answers with their probability before and after, in plain text.

    The rule is public and reads no label: of the questions without an address in any text, each
    once, those at evenly spaced ranks of the policy's shift, from the largest to the smallest.
    Three are the largest, the median and the smallest.

    Args:
        prompts: n prompts that are public, or were released before.
        first: An answer to each.
        second: Another answer to each.
        probabilities: Of the first answer under the policy; the reference gives each 1/2.
        most: Largest number of pairs, at least 1.

    Returns:
        For each pair its ``prompt`` and two ``answers`` of ``text``, ``reference`` and
        ``policy``. Chats are flattened, control characters replaced, long texts cut: a prompt
        keeps its end, an answer its beginning.

    Raises:
        DataError: Lengths differ, or a probability is outside [0, 1].

    Example:
        >>> choose_examples(["Hi."], ["Hello."], ["Go."], probabilities=[0.75])[0]["answers"][0]
        {'text': 'Hello.', 'reference': 0.5, 'policy': 0.75}
    """
    _validate.integer("most", most, at_least=1)
    chances = _checked(probabilities, prompts, first, second)
    usable = _distinct(prompts, first, second)
    order = sorted(usable, key=lambda index: -abs(chances[index] - 0.5))
    ranks = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    chosen = [order[rank] for rank in ranks]
    return [
        _example(prompts[index], (first[index], second[index]), float(chances[index]))
        for index in chosen
    ]


def _checked(probabilities: Any, *columns: Sequence[Text]) -> Float[np.ndarray, " n"]:
    """Return the probabilities; refuse other numbers and other lengths."""
    chances = _validate.finite_array("probabilities", probabilities, ndim=1)
    if any(len(column) != len(chances) for column in columns):
        raise DataError(f"Texts and probabilities must be as many: got {len(chances)} of these.")
    if not ((chances >= 0) & (chances <= 1)).all():
        raise DataError("probabilities must be in [0, 1].")
    return chances


def _distinct(*columns: Sequence[Text]) -> list[int]:
    """Return the rows that may be shown, each question once."""
    seen: dict[tuple[str, ...], int] = {}
    for index, texts in enumerate(zip(*columns, strict=True)):
        plain = tuple(_flat(text).strip() for text in texts)
        if all(plain) and not any(_ADDRESS in text for text in plain):
            seen.setdefault((plain[0], *sorted(plain[1:])), index)
    return list(seen.values())


def _flat(text: Text) -> str:
    """Return a text or a chat as one string in which it shows who speaks."""
    if isinstance(text, str):
        return text
    return "\n".join(f"{turn.get('role')}: {turn.get('content')}" for turn in text)


def _example(prompt: Text, answers: tuple[Text, Text], chance: float) -> dict[str, Any]:
    """Return one pair as the page shows it."""
    shown = [_beginning(_clean(answer)) for answer in answers]
    return {
        "prompt": _end(_clean(prompt)),
        "answers": [
            {"text": text, "reference": 0.5, "policy": policy}
            for text, policy in zip(shown, (chance, 1 - chance), strict=True)
        ],
    }


def _clean(text: Text) -> str:
    """Return a text in which no character changes how others read."""
    lines = harmless(_flat(text).replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def _beginning(text: str) -> str:
    """Return a text, cut at its end if it is long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()}…"


def _end(text: str) -> str:
    """Return a text, cut at its beginning if it is long: a chat ends with what was asked."""
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:].lstrip()}"
