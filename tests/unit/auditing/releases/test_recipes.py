# ruff: noqa: S311, S324 (the mistakes of others are what is imitated)
from __future__ import annotations

import hashlib
import hmac
import json
import math
import random
import unicodedata
import uuid

import numpy as np
import pytest
from tests.tiers import few

from sordino.auditing.releases.recipes import (
    HASHES,
    JOINS,
    NORMALIZATIONS,
    READINGS,
    CoinRecipe,
    _hmac_coin,
    coin_recipes,
    hashed_coin,
    id_recipes,
)
from sordino.errors import UsageError

IDS = ["5f0c", "a1", "0"]


def named(name: str) -> CoinRecipe:
    (found,) = [recipe for recipe in coin_recipes() if recipe.name == name]
    return found


def test_the_first_id_recipe_is_that_of_the_released_example():
    prompt, one, other = " Caf\u0065\u0301\r\n now ", "a\t b", "c"
    texts = [
        " ".join(unicodedata.normalize("NFC", text).replace("\r\n", "\n").split())
        for text in (prompt, one, other)
    ]
    expected = hashlib.sha256("\u241e".join(texts).encode()).digest()
    assert id_recipes()[0].of(prompt, one, other) == expected


def test_the_first_coin_recipe_is_that_of_the_released_example():
    seeds = [1234, 0]
    expected = [
        [
            random.Random(
                int.from_bytes(
                    hmac.new(
                        str(seed).encode(), f"{0.1:.2f}|{one}|{seed}".encode(), "sha256"
                    ).digest()[:8],
                    "big",
                )
            ).random()
            for one in IDS
        ]
        for seed in seeds
    ]
    np.testing.assert_array_equal(coin_recipes()[0].uniforms(seeds, IDS, 0.1), expected)


def test_every_name_in_the_registry_is_its_own():
    for registry in (coin_recipes(), id_recipes()):
        assert len({recipe.name for recipe in registry}) == len(registry)
    assert len(id_recipes()) == len(NORMALIZATIONS) * len(JOINS) * len(HASHES)


def test_every_coin_of_the_registry_makes_a_number_in_the_unit_interval_for_each_key():
    keys = {"stream": [0, 3, 4], "row": [0, 5, 9], "id": IDS, "unkeyed": IDS}
    for recipe in coin_recipes():
        seeds = [0] if recipe.kind == "unkeyed" else [3, 11]
        made = np.asarray(recipe.uniforms(seeds, keys[recipe.kind], 0.5))
        assert made.shape == (len(seeds), 3), recipe.name
        assert ((made >= 0) & (made <= 1)).all(), recipe.name
        again = recipe.uniforms(seeds[-1:], keys[recipe.kind][1:], 0.5)
        np.testing.assert_array_equal(again, made[-1:, 1:], err_msg=recipe.name)


@pytest.mark.parametrize("seed", [0, 1, 2**31 + 5, 2**32, 2**70 + 3, -7])
def test_pythons_generator_is_imitated_for_every_size_of_seed(seed):
    generator = random.Random(seed)
    expected = [generator.random() for _ in range(1500)]
    recipe = named("random.Random(seed).random()")
    assert recipe.least <= seed <= recipe.most
    np.testing.assert_array_equal(recipe.uniforms([seed], list(range(1500)), 1.0), [expected])


def test_numpys_other_draws_are_imitated():
    """Those that test_coins.py does not make."""
    halves = np.random.default_rng(42).integers(2**32, size=700) / 2**32
    found = named("default_rng(seed).integers(2**32)").uniforms([42], range(700), 1.0)
    np.testing.assert_array_equal(found, [halves])
    pairs = [[np.random.default_rng([5, row]).random() for row in (3, 0, 17)]]
    found = named("default_rng([seed, row]).random()").uniforms([5], [3, 0, 17], 1.0)
    np.testing.assert_array_equal(found, pairs)


def test_readings_agree_with_the_numbers_that_people_write():
    digest = hashlib.sha256(b"x").digest()
    text = digest.hex()
    expected = {
        "first 8 bytes": int(text[:16], 16) / 2**64,
        "first 8 bytes, little-endian": int.from_bytes(digest[:8], "little") / 2**64,
        "last 4 bytes": (int(text, 16) % 2**32) / 2**32,
        "last 8 bytes": int(text[-16:], 16) / 2**64,
        "modulo 10^6": int(text, 16) % 1_000_000 / 1_000_000,
        "random.Random of 4 bytes": random.Random(int(text[:8], 16)).random(),
        "random.Random of all bytes": random.Random(int(text, 16)).random(),
        "default_rng of 4 bytes": np.random.default_rng(int(text[:8], 16)).random(),
        "RandomState of 4 bytes": np.random.RandomState(int(text[:8], 16)).rand(),
    }
    for name, value in expected.items():
        assert next(iter(READINGS[name]([digest]))) == pytest.approx(value, abs=1e-12), name


def test_joins_and_name_based_identifiers_are_those_of_the_standard_library():
    assert JOINS["JSON list"]("p", "ä", "b") == json.dumps(["p", "ä", "b"])
    assert JOINS["x, y by '|'"]("p", "a", "b") == "a|b"
    assert JOINS["Python tuple"]("p", "a", "b") == str(("p", "a", "b"))
    assert HASHES["uuid5 (dns)"](b"name") == uuid.uuid5(uuid.NAMESPACE_DNS, "name").bytes
    assert HASHES["uuid5 (url)"](b"name") == uuid.uuid5(uuid.NAMESPACE_URL, "name").bytes


def test_a_coin_of_ones_own_fills_in_its_template():
    mine = hashed_coin("{seed}#{id}#{epsilon:.1f}", algorithm="md5", reading="last 8 bytes")
    digest = hashlib.md5(b"7#a1#0.5").digest()
    assert mine.uniforms([7], ["a1"], 0.5)[0, 0] == int.from_bytes(digest[-8:], "big") * 2.0**-64
    assert mine.kind == "id"
    assert hashed_coin("{id}/salt").kind == "unkeyed"


def test_unusable_settings_are_refused():
    for make in (
        lambda: hashed_coin("{seed}"),
        lambda: hashed_coin("{id}{id}"),
        lambda: hashed_coin("{id}", algorithm="sha0"),
        lambda: _hmac_coin("{id}", reading="the middle"),
        lambda: _hmac_coin("{seed}"),
        lambda: CoinRecipe(name="x", kind="file", uniforms=lambda *_: np.zeros((1, 1))),
    ):
        with pytest.raises(UsageError):
            make()


def test_a_generator_is_not_given_a_seed_that_it_refuses():
    old, new = named("RandomState(seed).random_sample()"), named("default_rng(seed).random()")
    assert (old.least, old.most) == (0, 2**32 - 1)
    assert (new.least, new.most) == (0, math.inf)


@pytest.mark.parametrize("seed", few([0, 7, 2**40 + 5], first=1))
def test_the_coins_of_torch_are_those_of_torch(seed):
    torch = pytest.importorskip("torch")
    made = {recipe.name: recipe for recipe in coin_recipes() if recipe.name.startswith("torch")}
    for name, kind in (("rand()", torch.float32), ("rand() of doubles", torch.float64)):
        recipe = made[f"torch.manual_seed(seed), {name}"]
        for n in (3, 100):
            drawn = torch.rand(n, dtype=kind, generator=torch.Generator().manual_seed(seed))
            np.testing.assert_array_equal(recipe.uniforms([seed], range(n), 1.0)[0], drawn.numpy())
