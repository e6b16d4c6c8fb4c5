"""Who says which of two answers is better: a reward that scores, or a command of the user's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from sordino._random import entropy
from sordino._validate import integer, number, positive
from sordino.errors import DataError, UsageError
from sordino.preferences.records import Text

__all__ = ["CommandJudge", "PreferenceJudge", "ScoringJudge"]


@runtime_checkable
class PreferenceJudge(Protocol):
    """A judge who compares two answers."""

    def preferences(
        self, prompts: Sequence[Text], first: Sequence[Text], second: Sequence[Text]
    ) -> Float[np.ndarray, " n"]:
        """Return the chance, in [0, 1], that each first answer is better than the second."""
        ...


@runtime_checkable
class ScoringJudge(Protocol):
    """A judge who scores one answer at a time, such as a ``TextRewardModel``."""

    def score(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return a score for each answer; more is better."""
        ...


@dataclass(frozen=True)
class CommandJudge:
    """A program of the user's that compares answers: texts on its input, chances on its output.

    The program is started once a call, without a shell. It reads one JSON object a line,
    ``{"prompt": …, "first": …, "second": …}``, and writes one for each in the same order,
    ``{"preference": p}``: the chance in [0, 1] that the first is better. What it writes to
    standard error is shown. Prompts and answers go to the program, and wherever it sends them:
    they are public.

    Which answer stands first is drawn for each row and undone afterwards, for judges favor a
    position.

    Args:
        command: The program and its arguments.
        timeout: Seconds that one call may take.
        seed: Of the order; None takes it from the operating system. It hides nothing.

    Raises:
        UsageError: The command is not a list of texts, or a number cannot be used.

    Example:
        >>> CommandJudge(["my-judge", "--model", "large"]).timeout
        600.0
    """

    command: Sequence[str]
    timeout: float = 600.0
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no command."""
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
    ) -> Float[np.ndarray, " n"]:
        """Return the chance that each first answer is better, as the program says.

        Guarantee:
            None is added: texts are public, and the coins only order them. The program does not
            say what its labels were promised; ``win_rate(guarantee=...)`` takes it.

        Raises:
            UsageError: The program is missing, takes too long, or ends with an error.
            DataError: What it wrote is not one chance for each row; the line is named.
        """
        turned = (entropy(self.seed).words(len(prompts)) & np.uint64(1)).astype(bool)
        rows = zip(prompts, first, second, turned, strict=True)
        lines = [json.dumps(_question(*row)) for row in rows]
        chances = _chances(self._run("".join(f"{line}\n" for line in lines)), len(lines))
        return np.where(turned, 1 - chances, chances)

    def _run(self, questions: str) -> bytes:
        """Return what the program writes; what it reads is never part of a message."""
        program = repr(self.command[0])
        problem = ""
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


def _question(
    prompt: Text, first: Text, second: Text, turned: Bool[np.ndarray, ""]
) -> dict[str, Any]:
    """Return a row as the program reads it."""
    both = (second, first) if turned else (first, second)
    return {"prompt": prompt, "first": both[0], "second": both[1]}


def _chances(output: bytes, n: int) -> Float[np.ndarray, " n"]:
    """Return the n chances that a program wrote."""
    lines = output.splitlines()
    if len(lines) != n:
        raise DataError(f"The judge wrote {len(lines)} lines for {n} rows. Nothing was judged.")
    return np.array([_chance(line, index) for index, line in enumerate(lines, start=1)])


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
