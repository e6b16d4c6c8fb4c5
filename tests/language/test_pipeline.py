"""One call for each stage, on randomized answers and raw pairs; comparisons; their tables."""

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.language.judging import RewardJudge, compare_policies
from sordino.language.models.promises import CheckpointPromise, folder_promises
from sordino.language.references.tiny import TinyModel
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.language.studies.comparison_table import (
    ComparisonRun,
    learning_curves,
    markdown_table,
    split_by_prompt,
    summary_rows,
    unique_prompts,
)
from sordino.language.studies.pipeline import (
    FULL,
    QUICK,
    TRAINING_LOG,
    Contest,
    build_reference,
    checkpoint_tokens,
    improve_policy,
    refuse_unusable,
    train,
)
from sordino.language.training.private_training import PolicyTerms, TrainingTerms
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize, use_unprotected

from ._training import privacy
from .conftest import true_reward

BRIEF = TrainingTerms(learning_rate=5e-3, log_every=1)
FAST = TrainingTerms(epochs=3, learning_rate=5e-3, log_every=5)


@pytest.fixture(scope="module")
def answers(word_pairs, tmp_path_factory):
    """Return a maker of randomized answers to word pairs."""

    def make(n=240, *, epsilon=4.0, seed=0):
        budget = sordino.Guarantee(
            epsilon, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
        )
        path = tmp_path_factory.mktemp("ledger") / "spend.db"
        ledger = sordino.Ledger.open(path, data="words", budget=budget)
        coin = sordino.RandomizedResponse(epsilon)
        return privatize(word_pairs(n, seed=seed), coin, ledger=ledger, simulate_seed=seed)

    return make


@pytest.fixture(scope="module")
def trained(answers, tiny_llama, tmp_path_factory):
    """Return the folder of a reward, its log and the answers behind it."""
    folder, private = tmp_path_factory.mktemp("made") / "reward", answers()
    seen = []
    log = train("reward", private, tiny_llama, folder, FAST, progress=lambda *at: seen.append(at))
    assert seen[-1] == (45, 45)
    return folder, log, private


# --- parts ---


def test_parts_share_no_prompt_and_do_not_depend_on_labels(word_pairs):
    pairs = word_pairs(300)
    varied = replace(pairs, prompts=tuple(f"{p} {i % 90}" for i, p in enumerate(pairs.prompts)))
    parts = split_by_prompt(varied)
    assert sorted([row for part in parts for row in part]) == list(range(300))
    asked = [{varied.prompts[row] for row in part} for part in parts]
    assert sum(map(len, asked)) == len(set.union(*asked))
    assert 0.3 < len(parts.judge) / 300 < 0.7
    assert split_by_prompt(replace(varied, labels=1 - varied.labels)) == parts
    assert split_by_prompt(varied, judge=0.0).judge == []
    assert parts.learned == sorted([*parts.training, *parts.held_out])


def test_a_part_that_would_be_empty_is_refused(word_pairs):
    with pytest.raises(DataError, match="too few prompts"):
        split_by_prompt(word_pairs(2))
    with pytest.raises(UsageError, match="below 1"):
        split_by_prompt(word_pairs(50), judge=0.9, held_out=0.1)
    vectors = sordino.Pairs.from_features([[1.0], [2.0]], [1, 0])
    with pytest.raises(DataError, match="feature vectors"):
        split_by_prompt(vectors)


def test_a_part_of_released_answers_keeps_their_promise(answers):
    private = answers(40)
    part = private.part([3, 5, 39])
    assert part.answers.tolist() == private.answers[[3, 5, 39]].tolist()
    assert part.prompts == tuple(private.prompts[row] for row in (3, 5, 39))
    assert (part.guarantee, part.release_ids) == (private.guarantee, private.release_ids)
    assert part.artifact == private.artifact
    assert part.public_digest != private.public_digest


def test_prompts_are_used_once():
    chat = [{"role": "user", "content": "a"}]
    assert unique_prompts(["a", "b", "a", chat, list(chat)]) == ["a", "b", chat]


# --- the reference ---


def test_the_reference_is_a_function_of_texts_alone(word_pairs, tmp_path):
    pairs = word_pairs(60)
    size = TinyModel(vocabulary=300, width=16, layers=1, heads=2, context=48)
    losses = build_reference(pairs, size, tmp_path / "a", steps=20)
    turned = replace(pairs, labels=1 - pairs.labels)
    assert build_reference(turned, size, tmp_path / "b", steps=20) == losses
    assert losses[-1] < losses[0]
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


# --- rewards ---


def test_a_reward_learns_and_carries_the_promise(trained):
    folder, log, private = trained
    reward = TextRewardModel.load(folder)
    assert reward.guarantee == private.guarantee
    assert reward.release_ids == private.release_ids
    assert reward.artifact == private.artifact
    texts = ["kind clear useful warm", "the answer is about bread", "rude vague wrong cold"]
    scores = reward.score(["tell me about bread"] * 3, texts)
    assert [true_reward(text) for text in texts] == [2.0, 0.0, -2.0]
    assert scores[0] > scores[1] > scores[2], scores
    assert json.loads((folder / TRAINING_LOG).read_text()) == log
    assert log[-1]["step"] == 45
    assert not any("runtime" in name or "second" in name for row in log for name in row)


def test_a_reward_says_how_far_it_may_be_trusted_if_asked(trained, answers, tiny_llama, tmp_path):
    assert TextRewardModel.load(trained[0]).uncertainty is not None
    short = replace(FAST, epochs=0.2)
    train("reward", answers(40), tiny_llama, tmp_path / "plain", short, uncertain=False)
    assert TextRewardModel.load(tmp_path / "plain").uncertainty is None


def test_held_out_answers_are_measured_as_training_goes(answers, tiny_gpt2, tmp_path):
    private = answers(120)
    rows = range(120)
    training = private.part([row for row in rows if row % 5])
    held_out = private.part([row for row in rows if not row % 5])
    log = train(
        "reward", training, tiny_gpt2, tmp_path / "r", replace(FAST, log_every=3), held_out=held_out
    )
    measured = [row for row in log if "eval_accuracy" in row]
    assert len(measured) >= 5
    assert all(np.isfinite(row["eval_loss"]) for row in measured)
    assert CheckpointPromise.read(tmp_path / "r").guarantee == private.guarantee  # counted once


# --- policies ---


def test_dpo_writes_a_policy_with_the_promise_of_its_answers(answers, tiny_llama, tmp_path):
    private = answers(32)
    log = train("policy", private, tiny_llama, tmp_path / "p", replace(FAST, epochs=1))
    promise = CheckpointPromise.read(tmp_path / "p")
    assert (promise.kind, promise.guarantee) == ("policy", private.guarantee)
    assert promise.release_ids == private.release_ids
    assert json.loads((tmp_path / "p" / TRAINING_LOG).read_text()) == log
    assert not list((tmp_path / "p").glob("*.bin"))  # pickled settings name folders


def test_dpo_on_answers_has_one_loss(answers, tiny_llama, tmp_path):
    with pytest.raises(UsageError, match="loss must be one of 'debiased'"):
        train("policy", answers(4), tiny_llama, tmp_path / "p", replace(FAST, loss="mixture"))
    assert not (tmp_path / "p").exists()


def test_improving_a_policy_adds_nothing_to_the_promise(trained, tiny_llama, tmp_path):
    folder, _, private = trained
    terms = PolicyTerms(steps=2, batch_size=8, max_new_tokens=6, pessimism=0.5, log_every=1)
    prompts = [f"tell me about {word}" for word in ("bread", "music", "water", "paper")]
    reward = TextRewardModel.load(folder)
    log = improve_policy(reward, tiny_llama, prompts, tmp_path / "p", terms)
    promise = CheckpointPromise.read(tmp_path / "p")
    assert (promise.kind, promise.guarantee) == ("policy", private.guarantee)
    assert promise.release_ids == private.release_ids
    assert promise.training["update"] == "rebel"
    assert any("reward" in row for row in log)


def test_a_start_that_another_release_taught_adds_its_own(trained, answers, tiny_llama, tmp_path):
    train("policy", answers(32, seed=5), tiny_llama, tmp_path / "p", replace(FAST, epochs=0.5))
    reward = TextRewardModel.load(trained[0])
    terms = PolicyTerms(steps=1, batch_size=8, max_new_tokens=4)
    improve_policy(reward, tmp_path / "p", ["hello", "bread"], tmp_path / "q", terms)
    promise = CheckpointPromise.read(tmp_path / "q")
    assert promise.guarantee.epsilon == 8.0
    assert len(promise.sources) == 2
    (tmp_path / "q" / "sordino.json").unlink()  # the weights say it by themselves as well
    assert {one.guarantee.epsilon for one in folder_promises(tmp_path / "q")} == {8.0}


# --- refusals ---


def test_what_does_not_fit_is_known_before_training(word_pairs, tiny_llama):
    def fitting(**terms):
        tokens = checkpoint_tokens(tiny_llama, replace(FAST, **terms))
        return len(tokens.pairs(word_pairs(30))[2])

    assert fitting() == fitting(max_length=64) == 30
    with pytest.raises(DataError, match="answers are never cut"):
        fitting(max_length=6)
    assert 0 < fitting(max_length=6, overlong="drop") < 30
    with pytest.raises(UsageError, match="at most the 64 tokens"):
        fitting(max_length=65)


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": "plain"}, {"epochs": 0}, {"batch_size": 0}, {"learning_rate": -1.0},
        {"overlong": "cut"}, {"lora": -1}, {"head_epochs": -1.0}, {"temperature": 0.0},
    ],
)  # fmt: skip
def test_settings_that_train_nothing_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TrainingTerms(**wrong)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"pessimism": -1.0}])
def test_settings_that_improve_nothing_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        PolicyTerms(**wrong)


# --- all of it ---


@pytest.mark.deep
def test_a_policy_at_epsilon_2_beats_its_reference_before_another_judge(
    answers, tiny_llama, word_pairs, open_ledger, tmp_path
):
    """The judge learned from other judgments, unprotected, and its interval leaves .5 out."""
    private = answers(4000, epsilon=2.0, seed=1)
    terms = replace(FAST, learning_rate=3e-3)
    train("reward", private, tiny_llama, tmp_path / "reward", terms, uncertain=False)
    public = use_unprotected(
        word_pairs(3000, seed=50), sordino.NonPrivate(), ledger=open_ledger(math.inf)
    )
    train("reward", public, tiny_llama, tmp_path / "judge", terms, uncertain=False)
    words = ("the", "answer", "is", "about", "bread", "music", "water", "paper")
    prompts = [f"tell me about {word}" for word in words]
    improve_policy(
        TextRewardModel.load(tmp_path / "reward"), tiny_llama, prompts, tmp_path / "policy",
        PolicyTerms(steps=100, learning_rate=3e-3, max_new_tokens=8),
    )  # fmt: skip
    found = compare_policies(
        tmp_path / "policy", tiny_llama, 25 * prompts,
        RewardJudge(TextRewardModel.load(tmp_path / "judge")), max_new_tokens=8, seed=3,
    )  # fmt: skip
    assert found.low > 0.5, found
    assert found.guarantee.epsilon == math.inf, "the judge's labels are in the number"
    assert CheckpointPromise.read(tmp_path / "policy").guarantee == private.guarantee


STAGES = {kind: partial(train, kind) for kind in ("reward", "policy")}


@pytest.mark.parametrize("kind", few(STAGES, first=1))
def test_a_checkpoint_carries_what_its_entries_promise(
    kind, word_pairs, tiny_llama, ledger_of, tmp_path
):
    ledger, seen, terms = ledger_of(), [], replace(BRIEF, lora=2)
    log = STAGES[kind](
        word_pairs(16), tiny_llama, tmp_path / "m", terms, privacy=privacy(steps=4), ledger=ledger,
        progress=lambda *at: seen.append(at),
    )  # fmt: skip
    assert seen[-1] == (4, 4)
    promise = CheckpointPromise.read(tmp_path / "m")
    assert promise.kind == kind
    assert promise.release_ids == tuple(row.release_id for row in ledger.spends)
    told = promise.guarantee
    assert (told.unit, told.neighbors, told.trust) == ("record", ADD_OR_REMOVE_ONE, "central")
    assert 3.99 < told.epsilon <= 4.0
    assert folder_promises(tmp_path / "m")[0].guarantee == told  # the weights say it as well
    assert json.loads((tmp_path / "m" / TRAINING_LOG).read_text()) == log
    assert {name for row in log for name in row} == {"learning_rate", "epsilon", "epoch", "step"}
    assert not list((tmp_path / "m").rglob("training_args.bin"))
    assert not list((tmp_path / "m").rglob("adapter*"))  # they are merged


@pytest.mark.deep
@pytest.mark.parametrize("kind", STAGES)
def test_a_run_goes_on_from_its_last_checkpoint(kind, word_pairs, tiny_llama, ledger_of, tmp_path):
    """Killed after three steps of four, it has two in a checkpoint and goes on for nothing."""
    ledger, place = ledger_of(), tmp_path / "m"
    given = {"privacy": privacy(steps=4), "ledger": ledger, "simulate_seed": 1, "save_every": 2}

    def stop(step, _):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ledger.attempt("one run"):
        STAGES[kind](word_pairs(40), tiny_llama, place, BRIEF, progress=stop, **given)
    paid = [row.release_id for row in Ledger.read(ledger.path).spends]
    with ledger.attempt("one run"):
        log = STAGES[kind](word_pairs(40), tiny_llama, place, BRIEF, **given)
    assert [row["step"] for row in log] == [1, 2, 3, 4]
    assert [row.release_id for row in Ledger.read(ledger.path).spends] == paid
    promise = CheckpointPromise.read(place)
    assert set(promise.release_ids) == set(paid)
    assert 3.99 < promise.guarantee.epsilon <= 4.0
    whole = {**given, "ledger": ledger_of(), "save_every": None}
    STAGES[kind](word_pairs(40), tiny_llama, tmp_path / "w", BRIEF, **whole)
    ours, theirs = (load_file(at / "model.safetensors") for at in (place, tmp_path / "w"))
    assert all(np.allclose(ours[name], theirs[name], atol=1e-5) for name in theirs)


@pytest.mark.deep
def test_a_reward_learns_what_people_like(word_pairs, tiny_llama, ledger_of, tmp_path):
    """Of other pairs too. Noise is small at this epsilon, and the seed is fixed."""
    terms = privacy(1000.0, sampling_probability=0.2, steps=30, expected_batch=60)
    STAGES["reward"](
        word_pairs(300), tiny_llama, tmp_path / "r", BRIEF, privacy=terms,
        ledger=ledger_of(2000.0), simulate_seed=3,
    )  # fmt: skip
    others, reward = word_pairs(200, seed=5), TextRewardModel.load(tmp_path / "r")
    scores = [reward.score(others.prompts, texts) for texts in (others.first, others.second)]
    true = [[true_reward(text) for text in texts] for texts in (others.first, others.second)]
    found, right = np.sign(np.subtract(*scores)), np.sign(np.subtract(*true))
    assert (found == right)[right != 0].mean() > 0.7  # 143 pairs; of coins, .5 ± .042
    assert "simulated" in reward.guarantee.caveats


def test_what_training_would_refuse_is_refused_beforehand(word_pairs, tiny_llama, tmp_path):
    pairs = word_pairs(20)
    refuse_unusable(pairs, tiny_llama, BRIEF, privacy(), writes=True)
    with pytest.raises(DataError, match="which one is not said"):
        refuse_unusable(pairs, tiny_llama, replace(BRIEF, max_length=6), privacy())
    people = CentralPrivacy(
        4.0, 1e-5, unit="person", neighbors=ADD_OR_REMOVE_ONE, cap=2, sampling_probability=0.5,
        steps=2, expected_batch=2,
    )  # fmt: skip
    with pytest.raises(PrivacyError, match="person ids"):
        refuse_unusable(pairs, tiny_llama, BRIEF, people)
    budget = sordino.Guarantee(
        2.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="words", budget=budget)
    private = privatize(pairs, sordino.RandomizedResponse(2.0), ledger=ledger)
    with pytest.raises(UsageError, match="randomized already"):
        refuse_unusable(private, tiny_llama, BRIEF, privacy())


def test_sizes_of_central_rows_are_public_and_whole():
    for sizes in (QUICK, FULL):
        central = sizes.central
        assert central.terms.overlong == sizes.dpo.overlong == "drop"  # one check for both
        assert sizes.to_dict()["central"]["steps"] == central.steps
        given = sizes.for_checkpoint().central
        assert given.terms.learning_rate < central.terms.learning_rate
        assert given.steps == central.steps


class Lengths:
    """A reward that likes long answers and cannot read empty ones."""

    guarantee = None

    def __init__(self, bound=5.0):
        self.reward_bound = bound

    def scores_of_readable(self, prompts, answers):
        return np.array([min(len(one), self.reward_bound) if one else np.nan for one in answers])


def compared(mean, *, method="dpo", labels="epsilon=1", seed=0, curve=(), matched=None):
    win = {
        "mean": mean, "low": mean - 0.2, "high": mean + 0.2, "n": 10, "mean_length": 8.0,
        "reference_length": 9.0, "length_matched": matched,
    }  # fmt: skip
    return ComparisonRun(method=method, labels=labels, seed=seed, win=win, curve=curve)


def test_an_answer_that_cannot_be_read_loses():
    scores = RewardJudge(Lengths())(["p"] * 3, ["", "a", "long answer"])
    assert scores.tolist() == [-6.0, 1.0, 5.0]
    assert RewardJudge(Lengths())(["p"], [""]).tolist() == [-6.0]


@pytest.mark.deep
def test_draws_of_both_are_independent(tiny_llama):
    prompts = [f"tell me about {word} {i}" for i in range(12) for word in ("bread", "music")]
    judge = RewardJudge(Lengths(100.0))
    found = compare_policies(tiny_llama, tiny_llama, prompts, judge, max_new_tokens=8)
    assert found.n == 24
    assert found.ties < 24  # else the same answers were drawn for both
    assert compare_policies(
        tiny_llama, tiny_llama, prompts, judge, max_new_tokens=8
    ).to_dict() == found.to_dict()  # fmt: skip


def test_a_contest_compares_the_reference_with_itself(tiny_llama):
    contest = Contest(
        reference=tiny_llama, judge=RewardJudge(Lengths()), prompts=["tell me", "about bread"],
        trained_prompts=[], sizes=QUICK,
    )  # fmt: skip
    found = contest.fared(tiny_llama, 3)
    assert found["n"] == 2
    assert found == contest.fared(tiny_llama, 3)


def test_intervals_are_over_seeds():
    values = [0.4, 0.5, 0.6]
    (row,) = summary_rows(compared(mean, seed=at) for at, mean in enumerate(values))
    reach = 4.302653 * 0.1 / math.sqrt(3)  # Student's quantile on two degrees of freedom
    assert row["win_rate"]["mean"] == pytest.approx(0.5)
    assert row["win_rate"]["low"] == pytest.approx(0.5 - reach)
    assert row["win_rate"]["high"] == pytest.approx(0.5 + reach)
    assert (row["seeds"], row["comparisons"]) == (3, 30)
    (alone,) = summary_rows([compared(0.4)])
    assert (alone["win_rate"]["low"], alone["win_rate"]["high"]) == pytest.approx((0.2, 0.6))


def test_rows_keep_their_order_and_what_is_not_known():
    matched = {"mean": 0.5, "low": 0.4, "high": 0.6}
    rows = summary_rows(
        [
            compared(0.5, method="reference", labels="label-free"),
            compared(0.6, curve=[{"step": 1, "held_out_accuracy": 0.7}], matched=matched),
            compared(0.7, labels="non-private"),
        ],
        {"epsilon=1": [1.0, 1.0, 1.0], "non-private": [math.inf]},
    )  # fmt: skip
    assert [row["labels"] for row in rows] == ["label-free", "epsilon=1", "non-private"]
    assert [row["held_out_accuracy"] for row in rows] == [None, 0.7, None]
    text = markdown_table(rows, ["a note"])
    lines = text.splitlines()
    assert lines[2] == "| reference | label-free | 0.500 [0.300, 0.700] | not known |  | 1 | 0 |"
    assert lines[3].startswith("| DPO | epsilon=1 | 0.600 [0.400, 0.800] | 0.500 [0.400, 0.600] |")
    assert lines[3].endswith("| 1 | 3 |")  # three releases of the same labels add up
    assert lines[4].endswith("| 1 | inf |")
    assert lines[-1] == "- a note"
    assert [row["epsilon_of_one_release"] for row in rows] == [0.0, 1.0, "inf"]
    assert [row["epsilon_of_all_releases"] for row in rows] == [0.0, 3.0, "inf"]
    assert [row["releases"] for row in rows] == [0, 3, 1]


def test_curves_are_means_at_the_steps_that_all_seeds_have():
    curves = learning_curves(
        [
            compared(0.5, seed=0, curve=[{"step": 2, "loss": 1.0}, {"step": 4, "loss": 3.0}]),
            compared(0.5, seed=1, curve=[{"step": 2, "loss": 2.0}]),
            compared(0.5, method="reference", labels="label-free"),
        ]
    )
    (curve,) = curves
    assert curve["loss"] == {"steps": [2], "mean": [1.5], "seeds": [[1.0], [2.0]]}
    assert curve["held_out_accuracy"]["mean"] == []
