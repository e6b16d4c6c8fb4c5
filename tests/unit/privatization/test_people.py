"""Which questions of a person a cap leaves in, and what answering takes."""

from collections import Counter

import numpy as np
import pytest

from sordino.engines.engine import InProcess
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.memo import AnswerMemo
from sordino.privatization.people import LEFT_OUT, AskedPeople, PersonQuestions
from sordino.privatization.randomization import Counts

COIN = RandomizedResponse(1.0)


class Words:
    """Words that are decided beforehand; then those that keep every label."""

    randomness = "system"

    def __init__(self, *words):
        self.left = list(words)

    def words(self, n):
        taken, self.left = self.left[:n], self.left[n:]
        return np.array(taken + [2**64 - 1] * (n - len(taken)), dtype=np.uint64)


def questions(n, person="a"):
    return [person[:1].encode() * 16 + b"q%015d" % index for index in range(n)]


def people(folder, keys, cap=None):
    memo = AnswerMemo.bound(folder, {}, {}, 1)
    if memo.folder is None:
        AnswerMemo.make(folder, {})
        memo = AnswerMemo.bound(folder, {}, {}, 1)
    labels = np.ones(len(keys), np.int8)
    asked = PersonQuestions.of(np.array(keys, "S32"), labels, np.arange(len(keys)))
    return AskedPeople(memo, cap, lambda _: asked)


def used(asked, answers):
    return set(asked.keys[answers != LEFT_OUT].tolist())


def test_the_smallest_words_of_every_person_stay(tmp_path):
    keys = [*questions(3), *questions(3, "b"), *questions(1, "c")]
    entropy = Words(1, 2, 0, 5, 2**63 - 1, 2**64 - 1)  # the last one is negative when signed
    asked, answers, paid = people(tmp_path, keys, 1).answers(0, COIN, "a1", entropy)
    assert used(asked, answers) == {keys[2], keys[5], keys[6]}
    assert paid == {"a1"}


def test_no_word_is_drawn_where_nobody_has_more(tmp_path):
    entropy = Words(0, 0, 0)  # which flip every label
    asked, answers, _ = people(tmp_path, questions(3), 3).answers(0, COIN, "a1", entropy)
    assert used(asked, answers) == set(questions(3))
    assert answers.tolist() == [0, 0, 0]


@pytest.mark.parametrize("cap", [1, 2, 3, 4])
def test_stored_questions_come_first_whatever_is_drawn(tmp_path, cap):
    stored = {questions(5)[1], questions(5)[3]}
    people(tmp_path, sorted(stored)).answers(0, COIN, "a1", Words())
    asking = people(tmp_path, questions(5), cap)
    fresh = asking.tally(InProcess()).fresh
    asked, answers, _ = asking.answers(0, COIN, "b2", Words(0, 9, 1, 8, 2))
    left = used(asked, answers)
    assert len(left) == cap
    assert len(left & stored) == min(cap, 2)
    assert len(left - stored) == fresh == max(0, cap - 2)


@pytest.mark.parametrize("cap", [None, 20, 7, 3, 1])
def test_counts_are_of_what_is_chosen(tmp_path, cap):
    generator = np.random.default_rng(11)
    draws = zip(generator.integers(9, size=150), generator.integers(30, size=150), strict=True)
    keys = [b"%016d" % person + b"%016d" % question for person, question in draws]
    people(tmp_path, [*keys[:40], b"x" * 32]).answers(0, COIN, "a1", Words())
    asking = people(tmp_path, keys, cap)
    tally = asking.tally(InProcess())
    asked, answers, paid = asking.answers(0, COIN, "b2", Words(*generator.permutation(150)))
    chosen = used(asked, answers)
    sizes = Counter(key[:16] for key in chosen)
    fresh = Counter(key[:16] for key in chosen - set(keys[:40]))
    assert tally == Counts(
        persons=len(sizes),
        labels=max(sizes.values()),
        fresh=max(fresh.values(), default=0),
        ever=max((Counter(key[:16] for key in {*keys[:40], *chosen})).values()),
        left_out=len(set(keys)) - len(chosen),
        payers=frozenset({"a1"}),
        people=tally.people,
    )
    coins = zip(np.frombuffer(tally.people.keys, "S16"), tally.people.counts, strict=True)
    assert dict(coins) == fresh
    assert paid == ({"a1", "b2"} if fresh else {"a1"})


def test_repeats_have_the_answer_to_the_label_that_was_given_first(tmp_path):
    keys = np.array([questions(2)[at] for at in (1, 0, 1)], "S32")
    asked = PersonQuestions.of(keys, np.array([0, 1, 1], np.int8), np.arange(3))
    AnswerMemo.make(tmp_path, {})
    asking = AskedPeople(AnswerMemo.bound(tmp_path, {}, {}, 1), None, lambda _: asked)
    _, answers, _ = asking.answers(0, COIN, "a1", Words())
    assert answers[asked.which].tolist() == [0, 1, 0]
