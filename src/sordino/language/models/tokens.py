"""Prompts and answers as tokens: a prompt gives way on the left, an answer never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Int
from jinja2 import TemplateError

from sordino._validate import integer, one_of
from sordino.errors import DataError, UsageError
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.records import Text, encoded, messages_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEPARATOR = "\n\n"
"""What stands between a prompt and its answer where the tokenizer has no chat template."""

Overlong = Literal["refuse", "drop"]
_KNOWN_ROLES = {"system", "user", "assistant", "tool"}  # others are text of the user's


class Dialogue(NamedTuple):
    """One prompt with one answer, as tokens; the answer ends with the end-of-text token."""

    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True)
class DialogueTokens:
    """Turns prompts and answers into tokens that fit a model."""

    # Texts are wrapped by the tokenizer's chat template if it has one, as one turn of the user and
    # one of the assistant; without a template, prompt and answer stand one below the other. The two
    # are tokenized apart, so no token straddles the border and both answers of a pair see the same
    # prompt. What is too long loses the beginning of its *prompt*; an answer is never cut.

    tokenizer: PreTrainedTokenizerBase  # as `load_tokenizer` returns it
    max_length: int  # most tokens of prompt and answer together
    # What happens to a pair of which an answer alone is longer: `"refuse"` or `"drop"`, a rule that
    # looks at texts only.
    overlong: Overlong = "refuse"

    def __post_init__(self) -> None:
        integer("max_length", self.max_length, at_least=2)
        one_of("overlong", self.overlong, get_args(Overlong))

    def prompt(self, prompt: Text, *, room: int = 0) -> list[int]:
        """Return the tokens of a prompt, its end if it is too long, with room for an answer."""
        return _end(self._ids(self._asked(prompt)), self.max_length - room)

    def dialogue(self, prompt: Text, answer: Text, *, where: str = "the answer") -> Dialogue:
        """Return a prompt and an answer that fit together."""
        if not _content(answer).strip():
            raise DataError(
                f"{where} is empty, so there is nothing to judge. Nothing was trained. Leave "
                "such pairs out: drop=('empty',) (--drop empty)."
            )
        asked = self._asked(prompt)
        said = self._answer(prompt, answer, asked)
        if len(said) >= self.max_length:
            raise DataError(
                f"{where} has {len(said)} tokens and the model reads {self.max_length}: nothing of "
                "the prompt would be left, and answers are never cut. Choose a model with a longer "
                "context or a larger max_length, or leave such pairs out with overlong='drop' "
                "(--drop overlong)."
            )
        return Dialogue(_end(self._ids(asked), self.max_length - len(said)), said)

    def pairs(
        self, pairs: Comparisons, *, least: int = 1
    ) -> tuple[list[Dialogue], list[Dialogue], list[int]]:
        """Return both answers of each pair, first and second, and the rows that they are of."""
        if pairs.given is not None:
            raise DataError("A language model reads texts, and these pairs hold feature vectors.")
        pairs.refuse_alone()
        kept: list[tuple[Dialogue, Dialogue, int]] = []
        for row, both in enumerate(zip(pairs.prompts, pairs.first, pairs.second, strict=True)):
            try:
                # both answers after one and the same end of the prompt
                prompt, *answers = both
                where = f"pair {row}: an answer"
                said = [self.dialogue(prompt, answer, where=where) for answer in answers]
                room = min(len(one.prompt) for one in said)
                one, other = (Dialogue(_end(each.prompt, room), each.answer) for each in said)
                kept.append((one, other, row))
            except DataError:
                asked = self._asked(prompt)
                longest = max(len(self._answer(prompt, one, asked)) for one in answers)
                empty = not all(_content(one).strip() for one in answers)
                if self.overlong == "refuse" or empty or longest < self.max_length:
                    raise
        if len(kept) < least:
            raise DataError("No pair is left whose answers fit the model.")
        return (
            [first for first, _, _ in kept],
            [other for _, other, _ in kept],
            [r for *_, r in kept],
        )

    def _answer(self, prompt: Text, answer: Text, asked: str) -> list[int]:
        said = self._ids(self._said(prompt, answer, asked), special=False)
        end = int(self.tokenizer.eos_token_id)
        return said if said and said[-1] == end else [*said, end]

    def _asked(self, prompt: Text) -> str:
        """Return the prompt as the model reads it, up to where the answer starts."""
        if self.tokenizer.chat_template is None:
            return _content(prompt) + SEPARATOR
        return self._templated(messages_of(prompt, "user"), add_generation_prompt=True)

    def _templated(self, turns: list[dict[str, Any]], **settings: bool) -> str:
        """A dialogue as the chat template writes it; what it says of a text is not quoted."""
        try:
            return str(self.tokenizer.apply_chat_template(turns, tokenize=False, **settings))
        except TemplateError as error:
            problem = type(error).__name__
        roles = ", ".join(sorted({str(turn["role"]) for turn in turns} & _KNOWN_ROLES))
        raise UsageError(
            f"The chat template of the tokenizer refuses a dialogue ({problem}; roles: {roles}). "
            "Nothing was done. Use another template, or prompts of the form that it was made for."
        )

    def _said(self, prompt: Text, answer: Text, asked: str) -> str:
        if self.tokenizer.chat_template is None:
            return _content(answer)
        both = [*messages_of(prompt, "user"), *messages_of(answer, "assistant")]
        whole = self._templated(both)
        if not whole.startswith(asked):
            raise UsageError(
                "The chat template writes a prompt differently once an answer follows, so prompt "
                "and answer cannot be told apart. Use another template."
            )
        return whole[len(asked) :].rstrip("\n")

    def _ids(self, text: str, *, special: bool | None = None) -> list[int]:
        """Return tokens; a template writes the special ones itself."""
        wanted = self.tokenizer.chat_template is None if special is None else special
        return list(self.tokenizer(text, add_special_tokens=wanted, verbose=False)["input_ids"])


def _content(text: Text) -> str:
    """Return what was said, without who said it."""
    return text if isinstance(text, str) else SEPARATOR.join(turn["content"] for turn in text)


def _end(ids: list[int], most: int) -> list[int]:
    return ids[len(ids) - most :] if 0 <= most < len(ids) else ids


def numbered(texts: Sequence[Text]) -> Int[np.ndarray, " n"]:
    """Return a number for each text, from 0 and the same for equal ones."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(encoded(text), len(numbers)) for text in texts], np.int64)
