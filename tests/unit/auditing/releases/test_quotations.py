"""A column that quotes one answer and not the other, in whatever form."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from sordino.auditing.releases.channels import (
    _spoken,
    attack_channels,
    order_channels,
    quoting_channels,
)
from sordino.auditing.releases.reading import UNKNOWN, Released
from sordino.auditing.releases.recipes import id_channels

N = 300


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def file_of(column, *, chat: bool = False, n: int = N) -> Released:
    """Return a file with a column made of (prompt, chosen, rejected); labels are random."""
    r = np.random.default_rng(5)
    texts = [tuple(f"an answer of {x} words or so, {i}" for x in r.integers(10**9, size=2))
             for i in range(n)]  # fmt: skip
    truth = r.integers(2, size=n)
    prompts = [f"prompt {i}" for i in range(n)]
    rows = zip(prompts, texts, truth, strict=True)
    values = tuple(column(p, *pair[:: 1 if t else -1]) for p, pair, t in rows)

    def written(text: str) -> str:
        return json.dumps([message("assistant", text)]) if chat else text

    return Released(
        layout="answer",
        prompts=tuple(prompts),
        first=tuple(written(a) for a, _ in texts),
        second=tuple(written(b) for _, b in texts),
        answers=r.integers(2, size=n),
        epsilon=1.0,
        columns={"c": values},
        truth=truth,
    )


def refuting(file: Released) -> set[str]:
    channels = [*order_channels(file), *id_channels(file)]
    return {one.attack for one in attack_channels(file, channels) if one.p_value < 1e-6}


QUOTED = {
    "as it is": lambda p, x, y: x,
    "spaces": lambda p, x, y: f" {x}\n",
    "with the prompt": lambda p, x, y: f"Human: {p}\n\nAssistant: {x}",
    "a list of one": lambda p, x, y: [x],
    "a ranking": lambda p, x, y: [x, y],
    "a ranking from below": lambda p, x, y: [y, x],
    "a ranking as a text": lambda p, x, y: json.dumps([x, y]),
    "one behind the other": lambda p, x, y: f"{x} > {y}",
    "cut": lambda p, x, y: x[:25],
    "cut with dots": lambda p, x, y: x[:25] + "...",
    "a message": lambda p, x, y: message("assistant", x),
    "messages": lambda p, x, y: [message("user", p), message("assistant", x)],
    "the loser": lambda p, x, y: y + " ",
}


@pytest.mark.parametrize("column", QUOTED.values(), ids=QUOTED)
@pytest.mark.parametrize("chat", [False, True])
def test_a_quoted_winner_is_found(column, chat):
    assert "column" in refuting(file_of(column, chat=chat))


HASHED = {
    "sha256": lambda p, x, y: hashlib.sha256(x.encode()).hexdigest(),
    "sha1, cut": lambda p, x, y: hashlib.sha1(x.strip().encode()).hexdigest()[:10],  # noqa: S324
    "with the prompt": lambda p, x, y: hashlib.sha256(f"{p}\n{x}".encode()).hexdigest(),
    "of the loser": lambda p, x, y: hashlib.md5(y.encode()).hexdigest(),  # noqa: S324
}


@pytest.mark.parametrize("column", HASHED.values(), ids=HASHED)
def test_a_hash_of_the_winner_is_found(column):
    assert "id-hash" in refuting(file_of(column))


def longer(text: str, other: str) -> str:
    return max(text, other, key=lambda one: (len(one), one))


HONEST = {
    "both": lambda p, x, y: " / ".join(sorted((x, y))),
    "the prompt": lambda p, x, y: p,
    "what both have in common": lambda p, x, y: "an answer of",
    "nothing": lambda p, x, y: None,
    "empty": lambda p, x, y: "",
    "the longer": lambda p, x, y: longer(x, y),
    "a public order": lambda p, x, y: sorted((x, y)),
    "broken JSON": lambda p, x, y: "[{" * 2000,
    "deep JSON": lambda p, x, y: "[" * 400 + "]" * 400,
    "messages without contents": lambda p, x, y: [{"role": "user"}, 3, None],
}


@pytest.mark.parametrize("column", HONEST.values(), ids=HONEST)
def test_what_favors_no_answer_is_no_leak(column):
    assert not refuting(file_of(column))


@pytest.mark.parametrize("size", [len, lambda text: len(text.split())])
@pytest.mark.parametrize("as_text", [False, True])
def test_the_length_of_the_winner_is_found(size, as_text):
    r = np.random.default_rng(2)
    file = file_of(lambda p, x, y: None)
    first = tuple(" ".join(["word"] * k) + f" {i}" for i, k in enumerate(r.integers(2, 40, N)))
    sizes = [size(a if t else b) for a, b, t in zip(first, file.second, file.truth, strict=True)]
    column = tuple(map(str, sizes)) if as_text else tuple(sizes)
    fields = {name: getattr(file, name) for name in file.__dataclass_fields__}
    assert "column" in refuting(Released(**{**fields, "first": first, "columns": {"c": column}}))


def test_answers_that_are_the_same_say_nothing():
    file = file_of(lambda p, x, y: x, n=4)
    fields = {name: getattr(file, name) for name in file.__dataclass_fields__}
    same = Released(**{**fields, "second": tuple(f" {one}\n" for one in file.first),
                       "columns": {"c": tuple(f"{one} " for one in file.first)}})  # fmt: skip
    assert list(quoting_channels(same)) == []
    written = Released(**{**fields, "second": tuple(f" {one}\n" for one in file.first),
                          "columns": {"c": file.first}})  # fmt: skip
    [found] = quoting_channels(written)
    assert found.guesses.tolist() == [1] * 4
    assert UNKNOWN not in found.guesses


def test_what_a_value_says():
    assert _spoken([]) is None
    assert _spoken({"label": 1}) is None
    assert _spoken("{no json} ") == "{no json}"
    assert _spoken("[1, 2]") == "[1, 2]"
