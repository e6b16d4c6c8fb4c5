# ruff: noqa: S324 (the mistakes of others are what is imitated)
from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sordino.auditing.releases.reading import UNKNOWN, Released, read_released
from sordino.auditing.releases.recipes import IdRecipe, id_channels

N = 60


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip())


def released(column, *, n: int = N, **options) -> Released:
    """A file whose texts have stray spaces and capitals; truth is 1 for about half of the rows."""
    generator = np.random.default_rng(11)
    prompts = tuple(f" What about\r\n thing  {i}? " for i in range(n))
    first = tuple(f"Yes,  {word}\n" for word in generator.integers(10**9, size=n))
    second = tuple(f"No, {word}" for word in generator.integers(10**9, size=n))
    columns = {"pair_id": tuple(column(prompts, first, second))}
    return Released(
        layout="z",
        prompts=prompts,
        first=first,
        second=second,
        answers=generator.integers(2, size=n).astype(np.int8),
        epsilon=1.0,
        columns=columns,
        **options,
    )


TRUTH = np.random.default_rng(12).integers(2, size=N).astype(np.int8)


def by_truth(make: Callable[[str, str, str], object], truth=TRUTH):
    """A column that is made of the prompt and both answers, the preferred one first."""

    def column(prompts, first, second):
        rows = zip(prompts, first, second, truth, strict=True)
        return (make(p, a, b) if t else make(p, b, a) for p, a, b, t in rows)

    return column


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


PLANTED = {
    "record separator": lambda p, a, b: sha("\u241e".join(map(plain, (p, a, b)))),
    "bars, as it is": lambda p, a, b: sha(f"{p}|{a}|{b}"),
    "md5, stripped, new lines": lambda p, a, b: hashlib.md5(
        "\n".join(t.strip() for t in (p, a, b)).encode()
    ).hexdigest(),
    "sha1, no separator": lambda p, a, b: hashlib.sha1((p + a + b).encode()).hexdigest(),
    "cut to 12": lambda p, a, b: sha(p + "\t" + a + "\t" + b)[:12],
    "last 16": lambda p, a, b: sha(p + "::" + a + "::" + b)[-16:],
    "capitals": lambda p, a, b: sha(p + ":" + a + ":" + b)[:20].upper(),
    "prefix": lambda p, a, b: "sha256:" + sha(p + "||" + a + "||" + b),
    "lower case": lambda p, a, b: sha("|||".join(plain(t).lower() for t in (p, a, b))),
    "answers only": lambda _, a, b: sha(a + "###" + b),
    "JSON": lambda p, a, b: sha(json.dumps([p, a, b])),
    "base 64": lambda p, a, b: (
        base64.b64encode(hashlib.sha256((p + a + b).encode()).digest()).decode().rstrip("=")
    ),
    "base 64 of 9 bytes, for addresses": lambda p, a, b: base64.urlsafe_b64encode(
        hashlib.sha512((p + "|" + a + "|" + b).encode()).digest()[:9]
    ).decode(),
    "blake2b of 16 bytes": lambda p, a, b: hashlib.blake2b(
        f"{p}\x1f{a}\x1f{b}".encode(), digest_size=16
    ).hexdigest(),
    "number of 8 bytes": lambda p, a, b: int(sha(p + " " + a + " " + b)[:16], 16),
    "number, modulo": lambda p, a, b: int(sha(p + "-" + a + "-" + b), 16) % 10**12,
    "number in a text": lambda p, a, b: str(int(sha(p + "_" + a + "_" + b)[:15], 16)),
    "signed number": lambda p, a, b: int.from_bytes(
        hashlib.sha256(f"{p}{a}{b}".encode()).digest()[:8], "little", signed=True
    ),
    "uuid of md5": lambda p, a, b: str(uuid.UUID(hashlib.md5((p + a + b).encode()).hexdigest())),
    "uuid5": lambda p, a, b: str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{p}|{a}|{b}")),
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_id_that_hashes_the_preferred_answer_first_reads_out_every_label(name):
    (channel,) = id_channels(released(by_truth(PLANTED[name])))
    np.testing.assert_array_equal(channel.guesses, TRUTH)
    assert channel.name == "id-hash"
    assert channel.details["column"] == "pair_id"
    assert channel.details["matched"] == 1.0
    assert channel.details["file_order"] is None


@pytest.mark.parametrize(("value", "order"), [(1, "written"), (0, "reversed")])
def test_one_order_in_all_rows_is_named(value, order):
    column = by_truth(PLANTED["record separator"], np.full(N, value))
    (channel,) = id_channels(released(column))
    assert channel.details["file_order"] == order


@pytest.mark.parametrize(
    "make",
    [
        lambda p, a, b: sha("\u241e".join((p, *sorted((a, b)), "salt"))),
        lambda p, a, b: sha("\u241e".join(map(plain, (p,)))),  # the prompt alone tells no order
        lambda p, a, b: uuid.uuid5(uuid.NAMESPACE_DNS, str(len(a)) + p).hex,
        lambda p, a, b: "pair-" + p.split()[-1],
        lambda p, a, b: 10**7 + len(p),
        lambda p, a, b: None,
        lambda p, a, b: 0.5,
    ],
)
def test_an_id_that_hashes_no_order_is_no_channel(make):
    assert id_channels(released(by_truth(make))) == []


def test_rows_with_equal_answers_say_nothing():
    file = released(lambda *_: [None] * N)
    alike = [f"  {text}" for text in file.first[:3]]
    second = (*alike, *file.second[3:])
    made = by_truth(PLANTED["record separator"])(file.prompts, file.first, second)
    same = replace(file, second=second, columns={"pair_id": tuple(made)})
    (channel,) = id_channels(same)
    assert (channel.guesses[:3] == UNKNOWN).all()
    np.testing.assert_array_equal(channel.guesses[3:], TRUTH[3:])
    np.testing.assert_array_equal(channel.speaks, np.arange(N) >= 3)


def test_a_recipe_must_reproduce_ninety_nine_percent():
    n = 1000
    truth = np.random.default_rng(1).integers(2, size=n)

    def damaged(share):
        def column(*texts):
            made = list(by_truth(PLANTED["bars, as it is"], truth)(*texts))
            step = round(1 / share)
            return [sha(str(i)) if i % step == step - 1 else one for i, one in enumerate(made)]

        return column

    (channel,) = id_channels(released(damaged(0.01), n=n))
    assert channel.details["matched"] == pytest.approx(0.99)
    assert (channel.guesses == UNKNOWN).sum() == 10
    assert id_channels(released(damaged(0.02), n=n)) == []


def test_a_recipe_of_ones_own_is_tried():
    column = by_truth(lambda p, a, b: hashlib.sha384(f"{b}/{a}/{p}".encode()).hexdigest())
    assert id_channels(released(column)) == []
    mine = IdRecipe(
        name="mine",
        normalize=str,
        join=lambda p, x, y: f"{y}/{x}/{p}",
        digest=lambda data: hashlib.sha384(data).digest(),
    )
    (channel,) = id_channels(released(column), (mine,))
    np.testing.assert_array_equal(channel.guesses, TRUTH)
    assert channel.details["recipe"] == "mine"


def test_every_column_is_looked_at_and_only_those_that_speak_are_named():
    file = released(by_truth(PLANTED["cut to 12"]))
    extra = {"row": tuple(range(N)), "random": tuple(sha(str(i)) for i in range(N))}
    more = replace(file, columns={**extra, **file.columns})
    assert [channel.column for channel in id_channels(more)] == ["pair_id"]


@pytest.mark.parametrize("digit", ["7", "a", "/"])
def test_a_field_longer_than_any_digest_is_none(digit):
    """Python refuses to read whole numbers of 5,000 digits, and the audit ended there."""
    assert not id_channels(released(lambda p, *_: [digit * 5000 for _ in p]))


def test_the_ids_of_the_released_example_follow_the_order_of_the_file(shared_data):
    path = shared_data / "published_local_dp_eps0.10_val.jsonl.gz"
    (channel,) = id_channels(read_released(path, epsilon=0.1))
    assert channel.details == {
        "recipe": "sha256 of prompt, x, y by '\\u241e'; NFC, single spaces",
        "column": "pair_id",
        "matched": 1.0,
        "file_order": "written",
    }
    assert (channel.guesses == 1).all()
