# ruff: noqa: S311 (the mistakes of others are what is imitated)
from __future__ import annotations

import hashlib
import hmac
import json
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import comb, exp

import numpy as np
import pytest
from tests.tiers import few

from sordino._random import SimulatedEntropy
from sordino.auditing.releases.reading import UNKNOWN, Released
from sordino.auditing.releases.recipes import (
    CoinRecipe,
    coin_recipes,
    hashed_coin,
    id_channels,
    id_recipes,
)
from sordino.auditing.releases.seed_attack import (
    Plan,
    _association,
    _CoinAttack,
    _manifest_integers,
    attack_coins,
    seed_finding,
)
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse

N, SEED, EPSILON = 300, 17, 1.0
Q = 1 / (1 + exp(EPSILON))
FEW = range(20)  # seeds that are tried as small ones; the planted one is among them
HASHED = tuple(recipe for recipe in coin_recipes() if recipe.name.startswith("sha256 of"))
CORE = tuple(one for one in coin_recipes() if one.core and one.kind != "unkeyed")
TEXTS = tuple(
    one
    for one in coin_recipes()
    if one.kind == "unkeyed" or (one.core and one.kind == "id" and "Random" not in one.name)
)
FAR = 10**12  # simulated honest coins are seeded out of the reach of every search


def texts(n: int = N) -> tuple[tuple[str, ...], ...]:
    generator = np.random.default_rng(3)
    words = generator.integers(10**12, size=(2, n)).tolist()
    prompts = tuple(f"Question {i}?" for i in range(n))
    return prompts, *(tuple(f"Answer {word}." for word in row) for row in words)


PROMPTS, FIRST, SECOND = texts()
ROWS = tuple(zip(PROMPTS, FIRST, SECOND, strict=True))
IDS = tuple(id_recipes()[0].of(*row).hex() for row in ROWS)
RANDOM_TRUTH = np.random.default_rng(FAR).integers(2, size=N).astype(np.int8)


def released(answers, *, n: int = N, **options) -> Released:
    prompts, first, second = texts(n)
    values = {"layout": "z", "epsilon": EPSILON, "columns": {}} | options
    answers = np.asarray(answers, dtype=np.int8)
    return Released(prompts=prompts, first=first, second=second, answers=answers, **values)


def share(digest: bytes) -> float:
    return int.from_bytes(digest[:8], "big") / 2**64


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def authenticated(one: str, text: str) -> bytes:
    return hmac.new(str(SEED).encode(), text.format(one).encode(), "sha256").digest()


def swapped_then_flipped() -> np.ndarray:
    generator = random.Random(SEED)
    return np.array([[generator.random() for _ in range(2)] for _ in range(N)])


def legacy() -> np.random.RandomState:
    return np.random.RandomState(SEED)


def modern() -> np.random.Generator:
    return np.random.default_rng(SEED)


def sequence() -> random.Random:
    return random.Random(SEED)


def drawn(draw: Callable[[], float]) -> np.ndarray:
    return np.array([draw() for _ in range(N)])


def of_ids(draw: Callable[[str], float]) -> np.ndarray:
    return np.array([draw(one) < Q for one in IDS])


def by_row(draw: Callable[[int], float]) -> np.ndarray:
    return np.array([draw(SEED + row) < Q for row in range(N)])


RELEASED_MESSAGE = f"{EPSILON:.2f}|{{}}|{SEED}"
COINS: dict[str, Callable[[], np.ndarray]] = {
    "HMAC, Random": lambda: of_ids(
        lambda one: random.Random(
            int.from_bytes(authenticated(one, RELEASED_MESSAGE)[:8], "big")
        ).random()
    ),
    "HMAC, share": lambda: of_ids(lambda one: share(authenticated(one, RELEASED_MESSAGE))),
    "HMAC of the id": lambda: of_ids(lambda one: share(authenticated(one, "{}"))),
    "sha256, bar": lambda: of_ids(lambda one: share(sha(f"{SEED}|{one}"))),
    "sha256, id first": lambda: of_ids(lambda one: share(sha(f"{one}|{SEED}"))),
    "sha256, nothing between": lambda: of_ids(lambda one: share(sha(f"{SEED}{one}"))),
    "sha256, colon": lambda: of_ids(lambda one: share(sha(f"{one}:{SEED}"))),
    "sha256, keeps above": lambda: of_ids(lambda one: 1 - share(sha(f"{SEED}:{one}"))),
    "Random of a text": lambda: of_ids(lambda one: random.Random(f"{SEED}{one}").random()),
    "Random, one after another": lambda: drawn(sequence().random) < Q,
    "Random, choices": lambda: np.array(sequence().choices([0, 1], [1 - Q, Q], k=N)) == 1,
    "Random, uniform": lambda: drawn(partial(sequence().uniform, 0, 1)) < Q,
    "Random by row": lambda: by_row(lambda seed: random.Random(seed).random()),
    "numpy rand": lambda: legacy().rand(N) < Q,
    "numpy binomial": lambda: legacy().binomial(1, Q, N) == 1,
    "numpy choice": lambda: legacy().choice([0, 1], size=N, p=[1 - Q, Q]) == 1,
    "RandomState by row": lambda: by_row(lambda seed: np.random.RandomState(seed).rand()),
    "default_rng random": lambda: modern().random(N) < Q,
    "default_rng binomial": lambda: modern().binomial(1, Q, N) == 1,
    "default_rng choice": lambda: modern().choice([0, 1], size=N, p=[1 - Q, Q]) == 1,
    "default_rng bits": lambda: modern().integers(2**64, size=N, dtype=np.uint64) / 2**64 < Q,
    "default_rng by row": lambda: by_row(lambda seed: np.random.default_rng(seed).random()),
    "simulated by this library": lambda: (
        SimulatedEntropy(SEED).words(N) < np.uint64(RandomizedResponse(EPSILON).threshold)
    ),
    "flip, then swap": lambda: swapped_then_flipped()[:, 0] < Q,
    "swap, then flip": lambda: swapped_then_flipped()[:, 1] < Q,
    "all swaps, then all flips": lambda: modern().random(2 * N)[N:] < Q,
}


WITH_RAW = ("sha256, bar", "numpy rand", "swap, then flip")  # one coin of each kind


@pytest.mark.parametrize(
    ("name", "raw"),
    few([*((name, False) for name in COINS), *((name, True) for name in WITH_RAW)], first=8),
)
def test_a_bad_coin_with_a_small_seed_is_refuted(name, raw):
    """Where labels are constant in the order written, and where the raw ones are known."""
    labels = RANDOM_TRUTH if raw else np.ones(N, dtype=np.int8)
    answers, truth = labels ^ COINS[name](), None
    if raw:
        assert attack_coins(released(answers), [], recipes=CORE, seeds=FEW).hits == ()
        truth = labels.copy()
        truth[::7] = UNKNOWN
    file = released(answers, truth=truth)
    attack = attack_coins(file, [], recipes=CORE, seeds=FEW)
    hit = attack.hits[0]
    judged = "raw truth" if raw else "order written"
    assert (hit.seed, hit.source, hit.judged) == (SEED, "small seed", judged)
    assert hit.constant_share == 1.0
    assert hit.p_value < 1e-9 / attack.recipes_tried
    np.testing.assert_array_equal(hit.guesses, labels)
    finding = seed_finding(attack, file)
    assert (finding.attack, finding.outcome, finding.recovered) == ("seed", "refutes", 1.0)
    assert "small seed 17" in finding.summary
    assert finding.details["rows"] == (int(np.sum(truth != UNKNOWN)) if raw else N)


def test_ninety_nine_percent_is_enough_and_less_is_not():
    flips = COINS["sha256, bar"]()
    for wrong, refuted in ((3, True), (4, False)):
        answers = 1 ^ flips
        answers[-wrong:] ^= True
        assert bool(attack_coins(released(answers), [], recipes=CORE, seeds=FEW).hits) is refuted


@pytest.mark.parametrize(
    ("layout", "draws"),
    few(
        [
            ("swap then flip", lambda: swapped_then_flipped().T),
            ("flip then swap", lambda: swapped_then_flipped().T[::-1]),
            ("all swaps then all flips", lambda: modern().random(2 * N).reshape(2, N)),
            ("all flips then all swaps", lambda: modern().random(2 * N).reshape(2, N)[::-1]),
        ],
        first=1,
    ),
)
def test_swaps_drawn_beside_the_flips_are_undone_first(layout, draws):
    swaps, flips = draws()
    truth = swaps >= 0.5
    file = released(truth ^ (flips < Q))
    hit = attack_coins(file, [], recipes=CORE, seeds=FEW).hits[0]
    assert hit.judged == "order written, swaps undone"
    assert layout in hit.recipe
    np.testing.assert_array_equal(hit.guesses, truth)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_swap_that_anybody_can_repeat_is_no_refutation_of_an_honest_coin(epsilon):
    """One answer always wins, and a seed says which is written first: public, and no leak."""
    n = 4000
    swaps = np.random.default_rng(SEED).random(2 * n).reshape(n, 2)[:, 0]
    coin = RandomizedResponse(epsilon)
    answers = coin.release((swaps >= 0.5).astype(np.int8), entropy=SimulatedEntropy(FAR))
    attack = attack_coins(released(answers, n=n, epsilon=epsilon), [], recipes=CORE, seeds=FEW)
    assert attack.hits == ()


def keyed(template: str, ids) -> np.ndarray:
    return np.array([share(sha(template.format(id=one, seed=SEED))) < Q for one in ids])


def orders(name: str) -> list[str]:
    recipe, file = id_recipes()[0], released(np.zeros(N))
    turned = {"written": [False] * N, "reversed": [True] * N, "canonical": file.swapped}[name]
    return [
        recipe.of(p, *((b, a) if turn else (a, b))).hex()
        for (p, a, b), turn in zip(ROWS, turned, strict=True)
    ]


@pytest.mark.deep
@pytest.mark.parametrize("order", few(["written", "reversed", "canonical"], first=1))
def test_a_coin_may_be_keyed_by_the_texts_in_any_order(order):
    answers = 1 ^ keyed("{id}_{seed}", orders(order))
    file = released(answers, manifest={"settings": {"rng_seed": SEED}})
    attack = attack_coins(file, [], recipes=HASHED, seeds=())
    assert attack.hits[0].source == "manifest.settings.rng_seed"
    assert f"id, {order}" in attack.hits[0].recipe


@pytest.mark.deep
@pytest.mark.parametrize(
    "template", few(["{epsilon:.2f}|{id}|{seed}", "{seed}:{id}:{epsilon:g}"], first=1)
)
@pytest.mark.parametrize(
    "ids",
    few(
        [
            lambda: [sha(f"row {i}").hex()[:12] for i in range(N)],
            lambda: [1000 + i for i in range(N)],
        ],
        first=1,
    ),
)
def test_a_coin_may_be_keyed_by_a_column_as_it_is(template, ids):
    column = ids()
    flips = [share(sha(template.format(id=one, seed=5, epsilon=EPSILON))) < Q for one in column]
    file = released(1 ^ np.array(flips), columns={"uid": tuple(column)}, manifest={"salt": "5"})
    hit = attack_coins(file, [], recipes=HASHED, seeds=()).hits[0]
    assert hit.source == "manifest.salt"
    assert "column 'uid'" in hit.recipe


@pytest.mark.deep
@pytest.mark.parametrize(
    ("template", "keys"),
    few(
        [
            ("{seed}|{id}", PROMPTS),
            ("{seed}|{id}", ["|".join(row) for row in ROWS]),
            ("{seed}-{id}", [str(i) for i in range(N)]),
            ("{id},{seed}", [str(i + 1) for i in range(N)]),
        ],
        first=1,
    ),
)
def test_a_coin_may_be_keyed_by_prompts_texts_and_row_numbers(template, keys):
    file = released(1 ^ keyed(template, keys), manifest={"seed": SEED})
    assert attack_coins(file, [], recipes=HASHED, seeds=()).hits[0].source == "manifest.seed"


def short(key: bytes, text: str) -> float:
    return share(hmac.digest(key, text.encode(), "sha256"))


JOINED: dict[str, Callable[[str, str, str], float]] = {
    "sha256 of texts without anything between": lambda p, x, y: share(sha(p + x + y)),
    "md5 of lines, modulo a million": lambda p, x, y: (
        int.from_bytes(hashlib.md5(f"{p}\n{x}\n{y}".encode()).digest(), "big") % 10**6 / 10**6  # noqa: S324
    ),
    "sha256 of JSON": lambda *row: share(sha(json.dumps(row))),
    "sha256 of the other answer in front": lambda p, x, y: share(sha(f"{p}|{y}|{x}")),
    "sha256 of the answers": lambda _, x, y: share(sha(f"{x}\t{y}")),
    "HMAC of the prompt, a digit": lambda p, *_: short(b"7", p),
    "HMAC of the prompt, a character": lambda p, *_: short(b"k", p),
    "HMAC of the prompt, no key": lambda p, *_: short(b"", p),
    "HMAC of joined texts, digits": lambda p, x, y: short(b"17", f"{p}\n{x}\n{y}"),
    "HMAC of the prompt, a word": lambda p, *_: short(b"secret", p),
    "sha256 of seed and joined texts": lambda p, x, y: share(sha(f"12:{p} {x} {y}")),
}


@pytest.mark.parametrize("name", few(JOINED, first=1))
def test_a_coin_may_be_a_digest_of_public_texts_joined_or_under_a_short_key(name):
    truth = None if name in {"sha256 of JSON", "HMAC of the prompt, a digit"} else RANDOM_TRUTH
    flips = np.array([JOINED[name](*row) < Q for row in ROWS])
    file = released((1 if truth is None else truth) ^ flips, truth=truth)
    seeds = range(128) if "character" in name else FEW
    hit = attack_coins(file, [], recipes=TEXTS, seeds=seeds).hits[0]
    assert hit.constant_share == 1
    guesses = np.ones(N) if truth is None else truth
    assert np.mean(hit.guesses == guesses) in (0, 1)


def test_ways_to_join_texts_are_tried_with_a_bounded_number_of_seeds():
    """Their number times that of the small seeds would let an audit run for minutes."""
    plan = Plan(released(np.zeros(N)), [], coin_recipes(), range(10_001))
    joins = {keys.name for keys in plan._joins}
    made = [len(case.seeds) for stage in plan.stages() for case in stage if case.keyed in joins]
    assert sum(made) <= 100_000
    assert len(made) <= 10_000


@pytest.mark.parametrize("text", few(["{}", "0.0|{}", "{}:1"], first=1))
def test_a_hash_without_any_seed_is_no_coin(text):
    shown = text.replace("0.0", f"{EPSILON:.2f}").replace("1", f"{EPSILON:g}")
    flips = np.array([share(sha(shown.format(one))) < Q for one in IDS])
    file = released(1 ^ flips)
    attack = attack_coins(file, [], recipes=HASHED, seeds=())
    assert (attack.hits[0].seed, attack.hits[0].source) == (None, "no seed")
    assert "without any seed" in seed_finding(attack, file).summary


def test_one_generator_may_serve_the_rows_in_the_order_of_their_ids():
    order = np.argsort(IDS)
    flips = np.empty(N, dtype=bool)
    flips[order] = modern().random(N) < Q
    file = released(1 ^ flips, columns={"uid": IDS})
    hit = attack_coins(file, [], recipes=CORE, seeds=FEW).hits[0]
    assert "rows sorted by column 'uid'" in hit.recipe
    np.testing.assert_array_equal(hit.guesses, np.ones(N))


@pytest.mark.parametrize("layout", ["answer", "chosen-rejected"])
def test_labels_that_are_constant_in_the_order_that_an_id_hashes_are_read_out(layout):
    """The id hashes the preferred answer first; what is written first says nothing."""
    flips = keyed("{id}|{seed}", IDS)
    turned = (flips if layout == "chosen-rejected" else RANDOM_TRUTH == 0).astype(bool)
    first, second = np.where(turned, SECOND, FIRST), np.where(turned, FIRST, SECOND)
    truth = (~turned).astype(np.int8)
    file = replace(
        released(truth ^ flips, layout=layout, columns={"pair_id": IDS}, manifest={"seed": SEED}),
        first=tuple(map(str, first)),
        second=tuple(map(str, second)),
    )
    assert file.answers.all() == (layout == "chosen-rejected")
    (channel,) = id_channels(file)
    np.testing.assert_array_equal(channel.guesses, truth)
    attack = attack_coins(file, [channel], recipes=CORE, seeds=())
    hit = next(hit for hit in attack.hits if hit.judged == "order of column 'pair_id'")
    np.testing.assert_array_equal(hit.guesses, truth)
    assert "order written" not in attack.judged or layout == "answer"


def test_labels_that_are_constant_in_canonical_order_are_read_out():
    truth = 1 ^ released(np.zeros(N)).swapped
    file = released(truth ^ COINS["default_rng random"]())
    hit = attack_coins(file, [], recipes=CORE, seeds=FEW).hits[0]
    assert hit.judged == "canonical order"
    np.testing.assert_array_equal(hit.guesses, truth)


def test_a_coin_keyed_by_few_texts_is_no_evidence_for_each_of_its_rows():
    """Six prompts, each of one truth: one seed in 32 flips just the right ones."""
    n = 600
    answers = np.array([i % 6 < 3 for i in range(n)])
    recipes = [
        hashed_coin(template, algorithm=algorithm)
        for template in ("{seed}|{id}", "{id}|{seed}", "{seed}{id}", "{id}{seed}", "{id} {seed}")
        for algorithm in ("sha256", "md5", "sha1", "sha512")
    ]
    prompts = tuple(f"Question {i % 6}?" for i in range(n))
    file = replace(
        released(answers, n=n, epsilon=0.1, manifest={"seeds": [*range(8)]}), prompts=prompts
    )
    assert attack_coins(file, [], recipes=recipes, seeds=()).hits == ()


def honest(case: int) -> tuple[Released, list]:
    """A file with honest coins, in one of the ways in which honest files differ."""
    n = (60, 250, 800)[case % 3]
    epsilon = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)[case % 6]
    generator = np.random.default_rng(FAR + case)
    truth = (
        np.ones(n, dtype=np.int8)  # a leak by position, but the coin is honest
        if case % 4 == 0
        else (generator.random(n) < (0.5, 0.9, 0.97)[case % 3]).astype(np.int8)
    )
    answers = RandomizedResponse(epsilon).release(truth, entropy=SimulatedEntropy(2 * FAR + case))
    ids = [id_recipes()[0].of(*row).hex() for row in zip(*texts(n), strict=True)]
    columns = [{}, {"id": tuple(ids)}, {"row": tuple(range(n))}][case // 6 % 3]
    file = released(
        answers,
        n=n,
        epsilon=epsilon,
        columns=columns,
        manifest={"seed": case, "n": n, "notes": [{"random_state": 42}]},
        truth=truth if case % 5 == 0 else None,
    )
    return file, id_channels(file) if case % 2 else []


SOME = (*CORE, *[recipe for recipe in coin_recipes() if not recipe.core][::300])


@pytest.mark.deep
@pytest.mark.parametrize(
    "cases", few([range(6), *(range(start, start + 20) for start in range(0, 200, 20))], first=1)
)
def test_no_honest_file_is_refuted(cases):
    """False alarms: below 1e-9 for each of 200 files, by the rule; the seeds are fixed."""
    for case in cases:
        file, channels = honest(case)
        attack = attack_coins(file, channels, recipes=SOME, seeds=range(10))
        assert attack.hits == (), case
        finding = seed_finding(attack, file)
        assert finding.outcome == ("clear" if attack.judged else "skipped"), case


def test_where_nothing_could_be_told_from_chance_nothing_is_tried_and_it_says_so():
    for n in (0, 1, 30):
        file = released(COINS["sha256, bar"]()[:n], n=n)
        attack = attack_coins(file, [], recipes=CORE, seeds=FEW)
        assert (attack.recipes_tried, attack.judged, attack.hits) == (0, (), ())
        finding = seed_finding(attack, file)
        assert finding.outcome == "skipped"


def test_answers_that_are_all_the_same_are_judged_in_other_orders_only():
    attack = attack_coins(released(np.ones(N), epsilon=8.0), [], recipes=CORE, seeds=FEW)
    assert attack.judged == ("canonical order", "order written, swaps undone")
    assert attack.hits == ()


def test_fishers_test_is_exact():
    flips, bits = np.arange(12) < 5, (np.arange(12) < 4) | (np.arange(12) == 11)
    tail = sum(Fraction(comb(5, k) * comb(7, 5 - k), comb(12, 5)) for k in (4, 5))
    assert _association(flips, bits) == pytest.approx(float(2 * tail), rel=1e-12)
    assert _association(flips, ~bits) == pytest.approx(float(2 * tail), rel=1e-12)
    assert _association(flips, np.ones(12, dtype=bool)) == 1.0
    half = np.arange(400) < 200
    exact = 2 / comb(400, 200)
    assert _association(half, half) == pytest.approx(exact, rel=1e-6)
    assert _association(half, ~half) == pytest.approx(exact, rel=1e-6)


def test_every_whole_number_of_a_manifest_is_a_seed():
    manifest = {
        "n": 5,
        "made": {"at": "2025", "by": [7, {"random_state": "-3"}, True, None, 0.5, 8.0]},
        "seed": 5,
        "hash": "12ab",
        "huge": 1e300,
    }
    assert _manifest_integers(manifest) == {
        -3: "manifest.made.by[1].random_state",
        5: "manifest.seed",
        2025: "manifest.made.at",
        7: "manifest.made.by[0]",
        8: "manifest.made.by[5]",
    }
    many = _manifest_integers({"values": list(range(1000)), "seed": 10**6})
    assert len(many) == 200
    assert next(iter(many)) == 10**6
    assert _manifest_integers(None) == {}


@pytest.mark.parametrize("seed", [-4, 2**40, 2**90, 123456])
def test_a_seed_of_any_size_is_taken_from_the_manifest(seed):
    generator = random.Random(seed)
    flips = np.array([generator.random() < Q for _ in range(N)])
    file = released(1 ^ flips, manifest={"counts": [3, {"x": seed}]})
    attack = attack_coins(file, [], recipes=CORE, seeds=())
    assert attack.hits[0].source == "manifest.counts[1].x"
    summary = seed_finding(attack, file).summary
    assert summary.startswith("The published seed in the manifest (counts[1].x) predicts")


def test_a_recipe_of_ones_own_is_tried():
    mine = hashed_coin("{id}#{seed}", algorithm="sha3_256", core=True)
    flips = np.array([share(hashlib.sha3_256(f"{i}#9".encode()).digest()) < Q for i in IDS])
    file = released(1 ^ flips)
    assert attack_coins(file, [], recipes=CORE, seeds=FEW).hits == ()
    (hit,) = attack_coins(file, [], recipes=[mine], seeds=FEW).hits
    assert hit.recipe.startswith("sha3_256 of {id}#{seed}")


def test_a_recipe_of_a_wrong_shape_is_refused():
    mine = CoinRecipe(
        name="mine", kind="row", uniforms=lambda seeds, rows, _: np.zeros(len(rows)), core=True
    )
    with pytest.raises(UsageError, match=r"'mine'.*one row for each seed"):
        attack_coins(released(RANDOM_TRUTH), [], recipes=[mine], seeds=FEW)


def test_progress_counts_up_to_what_was_planned():
    seen = []
    file = released(RANDOM_TRUTH)
    attack = attack_coins(
        file, [], recipes=CORE, seeds=FEW, progress=lambda *counts: seen.append(counts)
    )
    done, planned = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert done[-1] == planned[-1] == attack.recipes_tried
    assert len(set(planned)) == 1


def test_what_is_printed_holds_no_data():
    flips = COINS["HMAC, Random"]()
    file = released(1 ^ flips, columns={"pair_id": IDS}, manifest={"seed": SEED})
    attack = attack_coins(file, id_channels(file), recipes=CORE, seeds=())
    shown = repr(attack) + repr(attack.hits[0]) + str(seed_finding(attack, file).to_dict())
    assert isinstance(attack, _CoinAttack)
    for row in (0, 1, N - 1):
        assert not any(text in shown for text in (*ROWS[row], IDS[row]))


def test_a_manifest_of_any_depth_is_searched_to_a_hundred_levels_in_its_order():
    value = {"seed": 7}
    for _ in range(5000):
        value = {"a": value}
    assert _manifest_integers(value) == {}
    value = {"seed": 7}
    for _ in range(90):
        value = [value, 3]
    assert set(_manifest_integers(value)) == {3, 7}
    assert _manifest_integers({"a": [3, {"b": 1}], "c": {"d": 2}, "e": 4}) == {
        3: "manifest.a[0]", 1: "manifest.a[1].b", 2: "manifest.c.d", 4: "manifest.e",
    }  # fmt: skip
