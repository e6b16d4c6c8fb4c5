"""Files of randomized choices: what a person loses in all files together, and what is refused."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("sqlalchemy")
from sqlalchemy import insert

import sordino
from sordino._files import sha256_of
from sordino._random import entropy
from sordino.collection.answers import export_answers
from sordino.collection.database import ANSWERS, PERSONS, frozen, open_database
from sordino.collection.study import Study, make_question
from sordino.errors import DataError, PrivacyError
from sordino.mechanisms.randomized_response import KaryRandomizedResponse
from sordino.preferences.pairs import (
    digest_of_answers,
    label_loss,
    manifest_path,
    read_manifest,
    read_pairs,
)
from sordino.preferences.rankings import PrivateChoices, read_rankings
from sordino.preferences.records import Levels
from sordino.privacy.conversions import flip_probability, randomized_response_epsilon
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privatization.randomization import memo_keys

NAMES = ["ale", "beer", "tea", "milk"]


def asked(k=3, *, choices=2, ask="choice", named=True):
    rows = [{"prompt": "p", "first": "a", "second": "b"}]
    rows += [
        {"prompt": "t", "completion": "c"},
        {"prompt": "r", "completion": "c", "ask": "rating"},
    ]
    rows[1]["ask"] = "thumb"
    rows += [
        {"prompt": f"q{n}", "candidates": [f"{name} {n}" for name in NAMES[:k]], "ask": ask}
        | ({"names": NAMES[:k]} if named else {})
        for n in range(choices)
    ]
    return tuple(make_question(row, "here", Levels.of("1..5")) for row in rows)


def study_of(folder, *, epsilon=1.0, cap=4, **more):
    return Study(
        id="5" * 16, title="t", epsilon=epsilon, cap=cap, database="s.db", levels="1..5",
        accept_weak=True, questions=asked(**more), folder=folder,
    )  # fmt: skip


def fill(study, persons, *, best=0):
    """Store what coins and dice answer for people who all prefer the same, up to the cap."""
    engine = frozen(open_database(study.database_url), study, create=True)
    people, rows, source = [], [], entropy(None)
    for person in range(persons):
        own = [study.questions[(person + turn) % len(study.questions)] for turn in range(study.cap)]
        name = f"{person * 2654435761 % 2**32:032x}"
        ids = json.dumps([question.id for question in own])
        people.append({"id": name, "device": None, "questions": ids})
        for turn, question in enumerate(own):
            few = question.ask in {"choice", "ranking"}
            truth = question.names.index(NAMES[best]) if few and question.names else 0
            drawn = (study.die if few else study.coin).release([truth], entropy=source)
            key = f"{person:08x}-0000-4000-8000-{turn:012x}"
            rows.append({"person": name, "question": question.id, "revision": 1, "id": key,
                         "answer": int(drawn[0])})  # fmt: skip
    with engine.begin() as connection:
        connection.execute(insert(PERSONS), people)
        connection.execute(insert(ANSWERS), rows)
    return engine


@pytest.fixture
def export(tmp_path):
    """Returns a function that fills a study and exports it: files by kind, with manifests."""
    engines = []

    def exported(study, *, unit="person", persons=12, **more):
        engines.append(fill(study, persons, **more))
        made = export_answers(engines[-1], study, tmp_path / "out.jsonl", unit=unit)
        return {path.name.split(".")[1]: path for path in made}

    yield exported
    for engine in engines:
        engine.dispose()


@pytest.mark.parametrize(("k", "epsilon"), [(3, 1.0), (4, 0.3), (3, 40.0), (4, 44.0)])
def test_all_answers_of_a_person_show_by_no_more_than_each_file_says(tmp_path, export, k, epsilon):
    """The largest log-ratio over outputs and people who give a bit and two choices."""
    study = study_of(tmp_path, epsilon=epsilon, cap=3, k=k)
    paths = export(study)
    assert paths.keys() == {"pair", "thumb", "rating", "choice"}
    manifests = {kind: read_manifest(path) for kind, path in paths.items()}
    worst = 0.0
    for number in range(4):  # of three answers so many are choices
        parts = [study.coin] * (3 - min(number, 3)) + [study.die] * min(number, 3)
        losses = []
        for mechanism in parts:
            values = np.arange(mechanism.categories)
            logs = [mechanism._log_chances(values[None], np.full((1, 1), v)) for v in values]
            losses.append(max(float(np.max(a - b)) for a, b in itertools.product(logs, logs)))
        worst = max(worst, math.fsum(losses))
    for manifest in manifests.values():
        assert manifest.release_id == study.id
        assert (manifest.unit, manifest.trust) == ("person", "local")
        assert worst <= manifest.epsilon * (1 + 1e-12)
        assert manifest.epsilon == pytest.approx(worst, rel=1e-9)
    die = manifests["choice"]
    assert (die.mechanism, die.categories) == ("randomized-choice", k)
    assert manifests["pair"].categories == 2
    choices = read_rankings(paths["choice"])
    assert isinstance(choices, PrivateChoices)
    assert choices.guarantee == study.guarantee("person")


def test_of_a_label_each_file_says_what_its_own_coin_or_die_loses(tmp_path, export):
    study = study_of(tmp_path, epsilon=40.0, k=3)
    for kind, path in export(study, unit="label").items():
        kept, manifest = study.mechanisms[kind == "choice"], read_manifest(path)
        assert manifest.epsilon == kept.realized_epsilon
        assert manifest.flip_probability == kept.flip_probability


@pytest.mark.parametrize("unit", ["person", "label"])
def test_a_ledger_counts_a_person_once_for_all_files_and_every_label_by_itself(
    tmp_path, export, unit
):
    study = study_of(tmp_path, epsilon=0.5, cap=4)
    paths = export(study, unit=unit, persons=15)
    terms = {"delta": 0.0, "unit": "person", "neighbors": REPLACE_ONE, "trust": "local"}
    ledger = sordino.Ledger.open(tmp_path / "l.db", data="x", budget=Guarantee(99.0, **terms))
    totals, given = [], {}
    for path in [*paths.values(), paths["choice"]]:
        data = read_rankings(path) if "choice" in path.name else read_pairs(path)
        keys = list(memo_keys(data.keys, data.persons))
        ledger.receive(path, read_manifest(path), answers=keys)
        given |= dict.fromkeys(zip(data.persons, data.keys, strict=True))
        totals.append(ledger.total().epsilon)
    person = study.guarantee("person").epsilon
    assert totals[-1] == totals[-2]  # the same file a second time
    assert totals[-1] == pytest.approx(person, rel=1e-9)  # whoever gave four answers
    assert totals[-1] >= person * (1 - 1e-12)
    first = person if unit == "person" else study.epsilon
    assert totals[0] == pytest.approx(first, rel=1e-9)
    assert max(sum(p == one for p, _ in given) for one, _ in given) == study.cap


def edited(path, **values):
    note = json.loads(manifest_path(path).read_text())
    manifest_path(path).write_text(json.dumps(note | {"sha256": sha256_of(path)} | values))


def test_a_manifest_that_promises_more_than_the_die_keeps_is_refused(tmp_path, export):
    study = study_of(tmp_path, k=4)
    path, die = export(study)["choice"], study.die
    read_rankings(path)
    total, flips = study.guarantee("person").epsilon, die.flip_probability
    small = 4 * label_loss(flips, 3)  # of a die with a side less, which would lose less
    for lie, error, said in (
        ({"categories": 3, "epsilon": small}, DataError, "4 candidates"),
        ({"categories": 2, "epsilon": 4 * label_loss(flips, 2)}, DataError, "wrong|contradicts"),
        ({"categories": 5}, DataError, "contradicts"),
        ({"categories": 4.0}, DataError, "wrong type"),
        ({"mechanism": "randomized-response"}, DataError, "two sides"),
        ({"epsilon": total * 0.9}, DataError, "contradicts"),
        ({"epsilon": total / 4}, PrivacyError, "does not cover"),
        ({"flip_probability": study.coin.flip_probability}, DataError, "contradicts"),
        ({"unit": "label"}, DataError, "contradicts"),
        ({"unit": "label", "epsilon": 1.0, "flip_probability": study.coin.flip_probability},
         DataError, "contradicts"),
        ({"caveats": []}, DataError, "labels-only"),
        ({"version": 4}, DataError, "newer"),
        ({"sha256": "0" * 64}, DataError, "another file"),
    ):  # fmt: skip
        before = manifest_path(path).read_text()
        edited(path, **lie)
        with pytest.raises(error, match=said):
            read_rankings(path)
        manifest_path(path).write_text(before)


def test_a_file_that_is_no_list_of_choices_is_refused(tmp_path, export):
    path = export(study_of(tmp_path))["choice"]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for change, said in (
        ({"candidates": rows[0]["candidates"][::-1]}, "canonical order"),
        ({"candidates": rows[0]["candidates"][:2], "names": NAMES[:2], "answer": 0},
         "canonical|as many"),
        ({"answer": 3}, "0 to 2"),
        ({"answer": -1}, "0 to 2"),
        ({"answer": True}, "0 to 2"),
        ({"names": NAMES[:2]}, "one name for each"),
        ({"names": None}, "some records"),
        ({"ranking": [0]}, "exclude"),
    ):  # fmt: skip
        changed = [rows[0] | change, *rows[1:]]
        path.write_text("".join(json.dumps(row) + "\n" for row in changed))
        edited(path)
        with pytest.raises(DataError, match=said):
            read_rankings(path)
    with pytest.raises(DataError, match="manifest"):
        read_rankings(rows)
    manifest_path(path).unlink()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="manifest"):
        read_rankings(path)


def test_choices_cannot_take_the_manifest_of_pairs_nor_pairs_that_of_choices(tmp_path, export):
    paths = export(study_of(tmp_path, k=2))  # a die with two sides flips as a coin does
    notes = {kind: json.loads(manifest_path(path).read_text()) for kind, path in paths.items()}
    for mine, other, read in (("choice", "pair", read_rankings), ("pair", "choice", read_pairs)):
        edited(paths[mine], **{name: notes[other][name] for name in ("mechanism", "categories")})
        with pytest.raises(DataError, match="such answers are made by"):
            read(paths[mine])


def test_choices_in_memory_keep_the_promise_they_came_with(tmp_path, export):
    made = read_rankings(export(study_of(tmp_path, cap=5))["choice"])
    for change in (
        {"answers": (made.answers + 1) % 3},
        {"answers": made.answers[:-1], "seal": None},
        {"answers": made.answers + 1, "seal": None},
        {"guarantee": replace(made.guarantee, epsilon=1.0)},
        {"flip_probability": made.flip_probability / 10},
        {"flip_probability": 0.9},
        {"names": made.names[::-1]},
        {"persons": None, "seal": None},
        {"persons": made.persons[::-1]},
    ):
        with pytest.raises((DataError, PrivacyError)):
            replace(made, **change)


def test_nothing_tells_a_ranking_from_a_choice(tmp_path, export):
    files = []
    for ask in ("choice", "ranking"):
        study = study_of(tmp_path, ask=ask, epsilon=40.0)  # nothing is flipped
        study = replace(study, database=f"{ask}.db")
        engine = fill(study, 12)
        out = tmp_path / f"{ask}.jsonl"
        made = export_answers(engine, study, out, unit="person")
        engine.dispose()
        files.append([path.read_bytes() for path in made])
        files[-1] += [manifest_path(path).read_bytes() for path in made]
    assert files[0] == files[1]


def test_the_loss_of_a_die_is_that_of_its_threshold():
    for k, epsilon in itertools.product((2, 3, 7), (0.01, 1.0, 9.0)):
        flips = flip_probability(epsilon, k)
        exact = randomized_response_epsilon(epsilon, k)
        assert label_loss(flips, k) == pytest.approx(exact, rel=1e-9)
    assert label_loss(0.0, 5) == math.inf
    assert digest_of_answers("a", np.array([1])) != digest_of_answers("b", np.array([1]))


def test_what_a_board_takes_from_answers_varies_as_it_says():
    """By enumeration of all answers: mean and covariance of the sum of two sets of items."""
    from sordino.rewards.leaderboard import _Fit
    from sordino.rewards.vote_release import votes_of_choices

    k, die, theta = 3, KaryRandomizedResponse(1.2, 3), np.array([0.7, -0.2, 0.4, -0.9])
    sets = [["ale", "beer", "tea"], ["milk", "tea", "beer"]]

    def choices(answers):
        rows = range(len(answers))
        return PrivateChoices(
            keys=tuple(bytes([i]) * 32 for i in rows),
            public_digest="0",
            starts=np.arange(len(answers) + 1) * k,
            prompts=tuple(f"p{i}" for i in rows),
            candidates=tuple(f"c{i}" for i in range(k * len(answers))),
            names=tuple(name for i in rows for name in sets[i % 2]),
            answers=np.array(answers),
            flip_probability=die.flip_probability,
            guarantee=die.guarantee(unit="label", neighbors=REPLACE_ONE, trust="local"),
            artifact="0",
        )

    items = tuple(NAMES)
    mean, square = np.zeros(4), np.zeros((4, 4))
    for answers in itertools.product(range(k), repeat=2):
        chance = 1.0
        for at, answer in enumerate(answers):
            places = [items.index(name) for name in sets[at]]
            pi = np.exp(theta[places]) / np.exp(theta[places]).sum()
            logs = [die._log_chances(np.array([answer]), np.array([v]))[0] for v in range(k)]
            chance *= float(pi @ np.exp(logs))
        vector = votes_of_choices(choices(answers), items).value[""].statistic
        mean += chance * vector
        square += chance * np.outer(vector, vector)
    votes = votes_of_choices(choices((0, 0)), items).value[""]
    fit = _Fit(votes)
    model = fit.model(theta)
    np.testing.assert_allclose(votes.rows.T @ (votes.counts * model.mean), mean, atol=1e-9)
    wanted = square - np.outer(mean, mean)
    np.testing.assert_allclose(fit.weighed(votes.counts * model.drawn), wanted, atol=1e-9)
    # the height that is climbed has just this slope, and the curvature that is inverted
    step = 1e-6

    def slope(at):
        held = fit.model(at)
        return votes.rows.T @ (votes.counts * held.mean)

    for one in np.eye(4):
        rise = votes.counts @ (
            fit.model(theta + step * one).log_sum - fit.model(theta - step * one).log_sum
        )
        assert rise / (2 * step) == pytest.approx(slope(theta) @ one, abs=1e-6)
        bend = (slope(theta + step * one) - slope(theta - step * one)) / (2 * step)
        curved = fit.weighed(votes.counts * model.variance) @ one
        np.testing.assert_allclose(bend, curved, atol=1e-6)
