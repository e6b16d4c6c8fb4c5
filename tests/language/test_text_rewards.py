"""Scores of texts: bounded, the same in every batch; how far to trust them; what they promise."""

import dataclasses

import numpy as np
import pytest
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch

import sordino
from sordino.errors import DataError, FileSystemError, PrivacyError, UsageError
from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.promises import PROMISED, CheckpointPromise
from sordino.language.rewards.text_rewards import (
    UNCERTAINTY_FILE,
    LastLayerUncertainty,
    TextRewardModel,
    read_uncertainty,
    reward_function,
    write_uncertainty,
)
from sordino.privacy.ledger_chain import digest_of_json
from sordino.rewards.confidence import confidence_ellipsoid
from sordino.rewards.solver import Solution


@pytest.fixture
def paid(word_pairs, open_ledger):
    """Return randomized answers, and the ledger that paid."""
    ledger = open_ledger(1.0)
    mechanism = sordino.RandomizedResponse(epsilon=1.0)
    return sordino.privatize(word_pairs(120), mechanism, ledger=ledger), ledger


@pytest.fixture
def reward(made, paid):
    """Return a reward whose head is random, with its uncertainty."""
    return made(reward_bound=4.0, max_length=48).with_uncertainty(paid[0])


@pytest.mark.parametrize("cut_at", [0, 7, 200, -8, "newer"])
def test_an_uncertainty_that_is_damaged_or_newer_is_refused(measured, tmp_path, cut_at):
    write_uncertainty(measured, tmp_path)
    path = tmp_path / UNCERTAINTY_FILE
    content = path.read_bytes()
    newer = content.replace(b'"version":"1"', b'"version":"2"')
    path.write_bytes(newer if cut_at == "newer" else content[:cut_at])
    with pytest.raises(DataError, match="damaged, or was written by a newer"):
        read_uncertainty(tmp_path)


PROMPT = "tell me about bread"
ANSWERS = [
    "kind",
    "the answer is about bread music water paper kind clear",
    "rude cold",
    "a",
    "useful warm clear kind the answer is about water and more of it and more",
]


@pytest.fixture
def made(paid, tiny_models):
    """Return a maker of rewards whose heads are random."""

    def make(architecture="llama", *, spread=1.0, **settings):
        folder = tiny_models[architecture]
        model, tokenizer = load_reward_checkpoint(folder, device="cpu"), load_tokenizer(folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            model.score.weight.data.normal_(0, spread)
        promise = CheckpointPromise.of(paid[0], kind="reward", loss="debiased", pairs=120)
        known = {"reward_bound": 10.0, "max_length": 64} | settings
        return TextRewardModel(model, tokenizer, promise=promise, **known)

    return make


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_scores_do_not_depend_on_the_batch_or_the_order(made, architecture):
    reward = made(architecture, spread=0.1)
    prompts = [PROMPT, "p", PROMPT, "tell me about water", PROMPT]
    alone = [reward.score([p], [a])[0] for p, a in zip(prompts, ANSWERS, strict=True)]
    assert np.ptp(alone) > 0.05
    for size in (1, 2, 16):
        together = dataclasses.replace(reward, batch_size=size).score(prompts, ANSWERS)
        np.testing.assert_allclose(together, alone, atol=1e-5)
    backwards = reward.score(prompts[::-1], ANSWERS[::-1])
    np.testing.assert_allclose(backwards[::-1], alone, atol=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_features_are_what_the_head_reads(made, architecture):
    """Head times feature is the reward, also of padded rows."""
    reward = dataclasses.replace(made(architecture), batch_size=3)
    dialogues = [reward.tokens.dialogue(PROMPT, answer) for answer in ANSWERS]
    head = reward.model.score.weight.detach().double().numpy()[0]
    for reading in reward.readings(dialogues):
        np.testing.assert_allclose(reading.features @ head, reading.rewards, atol=1e-5)


def test_scores_are_clipped(made):
    free, bound = made(spread=50.0, reward_bound=1e6), made(spread=50.0, reward_bound=3.0)
    raw = free.score([PROMPT] * 5, ANSWERS)
    assert abs(raw).max() > 3
    np.testing.assert_allclose(bound.score([PROMPT] * 5, ANSWERS), np.clip(raw, -3, 3))


def test_dropout_is_off_and_training_goes_on(made):
    reward = made("gpt2")  # which has dropout
    reward.model.train()
    first, second = (reward.score([PROMPT], ["kind words"]) for _ in range(2))
    assert first == second
    assert reward.model.training
    assert all(p.grad is None for p in reward.model.parameters())


def test_a_long_prompt_loses_its_beginning(made):
    reward = made(max_length=32, reward_bound=1e6)
    long = "water " * 80 + "tell me about paper"
    [score] = reward.score([long], ["kind"])
    dialogue = reward.tokens.dialogue(long, "kind")
    assert len(dialogue.prompt) + len(dialogue.answer) == 32
    [reading] = reward.readings([dialogue])
    assert score == pytest.approx(reading.rewards[0], abs=1e-6)


@pytest.mark.parametrize(
    ("answers", "index"),
    [(["kind", "clear " * 80], 1), (["", "kind"], 0), (["kind", 3], 1), (["kind"], None)],
)
def test_bad_texts_are_named_by_index_and_never_quoted(made, answers, index):
    with pytest.raises(DataError) as caught:
        made().score([PROMPT] * 2, answers)
    assert index is None or f"answers[{index}]" in str(caught.value)
    assert "clear" not in str(caught.value)
    assert PROMPT not in str(caught.value)


def test_no_number_is_no_score(made):
    reward = made()
    reward.model.score.weight.data[:] = float("nan")
    with pytest.raises(UsageError, match="not finite"):
        reward.score([PROMPT], ["kind"])


def test_the_tokenizer_says_what_pads(made):
    """A model that knows no padding token, or another one, would read the wrong token."""
    reward = made()
    expected = reward.score([PROMPT] * 5, ANSWERS)
    for other in (None, 5):
        reward.model.config.pad_token_id = other
        again = dataclasses.replace(reward)
        np.testing.assert_allclose(again.score([PROMPT] * 5, ANSWERS), expected, atol=1e-6)


# What is saved, and what of it is believed.


def test_a_saved_reward_is_the_same_reward(made, paid, tmp_path, no_network):
    reward = made().with_uncertainty(paid[0])
    reward.save(tmp_path / "reward")
    back = TextRewardModel.load(tmp_path / "reward", device="cpu")
    prompts = [PROMPT] * 5
    np.testing.assert_allclose(
        back.score(prompts, ANSWERS), reward.score(prompts, ANSWERS), atol=1e-6
    )
    np.testing.assert_allclose(
        back.pessimistic_score(prompts, ANSWERS),
        reward.pessimistic_score(prompts, ANSWERS),
        rtol=1e-6,
    )
    assert back.to_dict() == reward.to_dict()
    assert (back.guarantee, back.release_ids, back.artifact, back.pairs) == (
        *(reward.guarantee, reward.release_ids, reward.artifact),
        120,
    )


def test_nothing_is_overwritten_unasked(made, paid, tmp_path):
    reward = made()
    reward.with_uncertainty(paid[0]).save(tmp_path / "reward")
    with pytest.raises(UsageError, match="exists already"):
        reward.save(tmp_path / "reward")
    reward.save(tmp_path / "reward", force=True)
    assert TextRewardModel.load(tmp_path / "reward").uncertainty is None
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileSystemError):
        reward.save(tmp_path / "file", force=True)


def test_half_a_reward_is_not_taken_for_one(made, tmp_path, monkeypatch):
    reward = made()
    reward.save(tmp_path / "reward")

    def fails(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reward.model, "save_pretrained", fails)
    with pytest.raises(FileSystemError, match="No space left"):
        reward.save(tmp_path / "reward", force=True)
    with pytest.raises(UsageError, match="holds no sordino"):
        TextRewardModel.load(tmp_path / "reward")


def damage(folder, name, change):
    path = folder / name
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(bytes(content))


def flip_last_byte(content):
    content[-2] ^= 0x40


def cut(content):
    del content[len(content) // 2 :]


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("model.safetensors", flip_last_byte, DataError),
        ("model.safetensors", cut, UsageError),
        ("sordino.json", cut, DataError),
        ("config.json", cut, UsageError),
        ("tokenizer.json", cut, UsageError),
        (UNCERTAINTY_FILE, cut, DataError),
    ],
)
def test_a_damaged_file_is_refused(made, paid, tmp_path, name, change, error):
    made().with_uncertainty(paid[0]).save(tmp_path / "reward")
    damage(tmp_path / "reward", name, change)
    with pytest.raises(error):
        TextRewardModel.load(tmp_path / "reward", device="cpu")


def test_what_is_no_reward_of_ours_is_refused(made, paid, tmp_path, tiny_llama):
    with pytest.raises(UsageError, match="holds no sordino"):
        TextRewardModel.load(tiny_llama)
    with pytest.raises(FileSystemError, match="no folder"):
        TextRewardModel.load("somebody/reward")
    made().save(tmp_path / "reward")
    CheckpointPromise.of(paid[0], kind="policy").write(tmp_path / "reward", title="x")
    with pytest.raises(UsageError, match="holds a policy"):
        TextRewardModel.load(tmp_path / "reward")
    CheckpointPromise.of(paid[0], kind="reward").write(tmp_path / "reward", title="x")
    with pytest.raises(DataError, match="reward_bound"):
        TextRewardModel.load(tmp_path / "reward")


def test_what_makes_no_reward_is_refused(made, tiny_llama):
    reward = made()
    for wrong in (
        {"model": load_causal_model(tiny_llama, device="cpu")},
        {"reward_bound": 0.0},
        {"max_length": 65},
        {"batch_size": 0},
        {"promise": dataclasses.replace(reward.promise, kind="policy")},
    ):
        with pytest.raises(UsageError):
            dataclasses.replace(reward, **wrong)
    with pytest.raises(PrivacyError, match="promise"):
        dataclasses.replace(reward, promise=None)
    with pytest.raises(UsageError, match="reads texts"):
        reward.score_features(np.zeros((1, 1)))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's
def test_unmerged_adapters_are_refused(made):
    peft = pytest.importorskip("peft")
    reward = made()
    adapted = peft.get_peft_model(reward.model, peft.LoraConfig(task_type="SEQ_CLS", r=2))
    with pytest.raises(UsageError, match="merge_and_unload"):
        dataclasses.replace(reward, model=adapted)


# What the stages before it make of it.


def test_the_ledger_that_paid_is_certified(made, paid, open_ledger):
    reward, (_, ledger) = made(), paid
    certificate = sordino.certify(reward, ledger)
    assert certificate.artifact == "reward"
    assert certificate.guarantee == reward.guarantee
    assert certificate.digest == digest_of_json(reward.to_dict())
    with pytest.raises(PrivacyError, match="lacks an entry"):
        sordino.certify(reward, open_ledger(1.0))


def forged(reward, **changed):
    """Return a reward whose promise was written by hand, in the config of the model as well."""
    (source,) = reward.promise.sources
    delattr(reward.model.config, PROMISED)
    promise = dataclasses.replace(reward.promise, sources=(dataclasses.replace(source, **changed),))
    return dataclasses.replace(reward, promise=promise)


def test_a_forged_promise_is_not_certified(made, paid):
    _, ledger = paid
    with pytest.raises(PrivacyError, match="other answers"):
        sordino.certify(forged(made(), artifact="0" * 64), ledger)
    smaller = dataclasses.replace(made().guarantee, epsilon=0.5)
    with pytest.raises(PrivacyError, match="claims"):
        sordino.certify(forged(made(), guarantee=smaller), ledger)


def test_a_reward_promises_what_its_model_does(made):
    """Whoever passes a smaller promise by hand is not believed."""
    reward = made()
    (source,) = reward.promise.sources
    smaller = dataclasses.replace(
        source, guarantee=dataclasses.replace(source.guarantee, epsilon=0.5)
    )
    promise = dataclasses.replace(reward.promise, sources=(smaller,))
    assert dataclasses.replace(reward, promise=promise).guarantee.epsilon == pytest.approx(
        reward.guarantee.epsilon + 0.5
    )


def test_answers_that_no_ledger_knows_are_not_certified(made, paid):
    reward, (_, ledger) = made(), paid
    (source,) = reward.promise.sources
    unknown = dataclasses.replace(source, release_ids=(), artifact="1" * 64)
    both = dataclasses.replace(reward.promise, sources=(source, unknown))
    found = dataclasses.replace(reward, promise=both)
    assert found.guarantee.epsilon == pytest.approx(2 * reward.guarantee.epsilon)
    with pytest.raises(PrivacyError, match="lacks an entry"):
        sordino.certify(found, ledger)


def test_nothing_is_fitted_on_what_was_learned_from_judgments(made, paid):
    pairs, _ = paid
    reward = made()
    with pytest.raises(PrivacyError, match="learned from judgments"):
        sordino.fit_reward(pairs, features=reward.features, ridge=0.1)
    assert sordino.gibbs_policy(reward, temperature=1.0) is not None


def test_the_digest_tells_what_scores_depend_on(made):
    reward = made()
    before = digest_of_json(reward.to_dict())
    assert digest_of_json(made().to_dict()) == before
    assert digest_of_json(dataclasses.replace(reward, reward_bound=9.0).to_dict()) != before
    assert digest_of_json(dataclasses.replace(reward, max_length=32).to_dict()) != before
    assert digest_of_json(dataclasses.replace(reward, batch_size=3).to_dict()) == before
    with torch.no_grad():
        next(reward.model.parameters()).view(-1)[0].add_(1e-3)
    assert digest_of_json(reward.to_dict()) != before
    changed = made()
    changed.tokenizer.chat_template = "{{ messages }}"
    assert digest_of_json(changed.to_dict()) != before


def test_a_gibbs_policy_follows_it(made):
    reward = made()
    policy = sordino.gibbs_policy(reward, temperature=0.5)
    [chances] = policy.probabilities([PROMPT], [ANSWERS])
    weights = np.exp(reward.score([PROMPT] * 5, ANSWERS) / 0.5)
    np.testing.assert_allclose(chances, weights / weights.sum(), rtol=1e-4)
    np.testing.assert_allclose(
        reward.features.transform([PROMPT] * 5, ANSWERS)[:, 0], reward.score([PROMPT] * 5, ANSWERS)
    )
    with pytest.raises(UsageError, match="reads texts"):
        policy.probabilities(None, [np.zeros((2, 1))])
    with pytest.raises(UsageError, match="no confidence set"):
        sordino.pessimistic_policy(reward, temperature=0.5)


# How far it is trusted.


def test_an_answer_far_out_gets_less(made, paid):
    reward = made().with_uncertainty(paid[0])
    answers = ["the answer is kind", "the answer is clear", "the answer is warm", "()?!"]
    prompts = [PROMPT] * 4
    scores = reward.score(prompts, answers)
    bonus = scores - reward.pessimistic_score(prompts, answers)
    assert bonus.argmax() == 3
    assert (bonus > 0).all()
    np.testing.assert_array_equal(reward.pessimistic_score(prompts, answers, scale=0), scores)
    half = scores - reward.pessimistic_score(prompts, answers, scale=0.5)
    np.testing.assert_allclose(half, bonus / 2, rtol=1e-6)


def test_prompts_have_centers_of_their_own(made, paid):
    """Answers to other prompts in the same call change nothing."""
    reward = made().with_uncertainty(paid[0])
    prompts, answers = [PROMPT] * 3, ANSWERS[:3]
    alone = reward.pessimistic_score(prompts, answers)
    mixed = reward.pessimistic_score(
        ["other", PROMPT, "other", PROMPT, "third", PROMPT],
        ["kind", answers[0], "rude", answers[1], "cold", answers[2]],
    )
    np.testing.assert_allclose(mixed[1::2], alone, rtol=1e-4)


def test_a_repeat_tells_nothing_new(made, word_pairs, open_ledger):
    """One person's stored answer, read twice, leaves the uncertainty of the answer read once."""
    from sordino.preferences.pairs import PrivatePairs

    pairs = word_pairs(40)
    paid = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=open_ledger(1.0))

    def measured(index):
        fields = {
            name: tuple(getattr(paid, name)[i] for i in index)
            for name in ("prompts", "first", "second", "keys")
        }
        named = PrivatePairs(
            **fields,
            persons=("p",) * len(index),
            answers=paid.answers[index],
            flip_probability=paid.flip_probability,
            guarantee=paid.guarantee,
            public_digest=paid.public_digest,
            artifact=reward.artifact,
        )
        return reward.with_uncertainty(named).uncertainty

    reward = made()
    once, twice = measured(np.arange(40)), measured(np.arange(80) // 2)
    np.testing.assert_allclose(once.ellipsoid.metric, twice.ellipsoid.metric, rtol=1e-5, atol=1e-7)


def test_uncertainty_is_of_the_pairs_behind_the_reward(made, word_pairs, open_ledger):
    reward = made()
    with pytest.raises(UsageError, match="with_uncertainty"):
        reward.pessimistic_score([PROMPT], ["kind"])
    with pytest.raises(PrivacyError, match="randomized"):
        reward.with_uncertainty(word_pairs(10))
    other = sordino.privatize(
        word_pairs(20, seed=4), sordino.RandomizedResponse(1.0), ledger=open_ledger(1.0)
    )
    with pytest.raises(UsageError, match="not the answers"):
        reward.with_uncertainty(other)
    for wrong in (-1.0, float("inf")):
        with pytest.raises(UsageError, match="scale"):
            reward.pessimistic_score([PROMPT], ["kind"], scale=wrong)


D, N, FLIP = 6, 200, 0.3


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    return rng.normal(size=(N, D)) + 1, rng.normal(size=(N, D)) + 1, rng.normal(size=D)


def in_batches(first, second, size=32):
    for start in range(0, len(first), size):
        yield first[start : start + size], second[start : start + size]


@pytest.fixture
def measured(rows):
    first, second, head = rows
    return LastLayerUncertainty.of(in_batches(first, second), head, flip_probability=FLIP)


def test_it_is_the_ellipsoid_of_a_linear_reward_on_the_same_features(rows):
    """An independent path through rewards.confidence: all rows at once."""
    first, second, head = rows
    ball = np.linalg.norm(head)
    expected = confidence_ellipsoid(
        first - second,
        Solution(theta=head, gradient_norm=0.0, multiplier=0.0, passes=1),
        candidates=1,
        flip_probability=FLIP,
        ball=ball,
        ridge=ball**-2,
    )
    found = LastLayerUncertainty.of(in_batches(first, second), head, flip_probability=FLIP)
    assert np.allclose(found.ellipsoid.metric, expected.metric, rtol=1e-12)
    assert found.radius == pytest.approx(expected.radius(0.95), rel=1e-12)
    np.testing.assert_allclose(found.mean, np.vstack([first, second]).mean(axis=0), rtol=1e-12)


def test_the_bonus_is_the_formula(measured, rows):
    """Against one dense inverse, prompt by prompt."""
    first, _, _ = rows
    prompts = np.array([0, 1, 0, 2, 0, 1, 3, 3, 3, 3])
    some = first[: len(prompts)]
    inverse = np.linalg.inv(measured.ellipsoid.metric)
    for index, prompt in enumerate(prompts):
        beside = some[prompts == prompt]
        gap = some[index] - (beside.mean(axis=0) if len(beside) >= 3 else measured.mean)
        expected = measured.radius * np.sqrt(gap @ inverse @ gap)
        assert measured.bonus(some, prompts)[index] == pytest.approx(expected, rel=1e-9)


def test_two_answers_are_not_equally_far(measured):
    """Around their own mean they would be, and pessimism would change nothing between them."""
    near, far = measured.mean + 0.01, measured.mean + 5
    bonus = measured.bonus(np.array([near, far]), np.array([0, 0]))
    assert bonus[1] > 10 * bonus[0]


def test_what_was_not_trained_has_no_uncertainty(rows):
    first, second, head = rows
    pairs = [(first, second)]
    with pytest.raises(UsageError, match="are all 0"):
        LastLayerUncertainty.of(pairs, np.zeros(D), flip_probability=FLIP)
    with pytest.raises(DataError, match="no pairs"):
        LastLayerUncertainty.of([], head, flip_probability=FLIP)


@pytest.mark.parametrize("pessimism", [0.0, 0.1])
def test_it_is_the_score_less_the_pessimism(reward, pessimism):
    function = reward_function(reward, pessimism=pessimism)
    prompts, answers = [PROMPT] * 3, ["kind", "rude and cold", "the answer is about bread"]
    found = function(prompts=prompts, completions=answers, completion_ids=[], source=["x"] * 3)
    assert found == reward.pessimistic_score(prompts, answers, scale=pessimism).tolist()
    assert all(type(value) is float for value in found)


def test_messages_are_read_as_texts_are(reward):
    function = reward_function(reward)
    asked = [{"role": "user", "content": PROMPT}]
    said = [{"role": "assistant", "content": "kind words"}]
    assert function([asked], [said]) == pytest.approx(function([PROMPT], ["kind words"]), abs=1e-6)


@pytest.mark.parametrize(
    "silent", few(["", "  \n", [{"role": "assistant", "content": None}], []], first=1)
)
@pytest.mark.parametrize("pessimism", [0.0, 3.0])
def test_saying_nothing_or_too_much_never_pays(reward, silent, pessimism):
    function = reward_function(reward, pessimism=pessimism)
    prompts = [PROMPT] * 5
    found = function(prompts, ["kind", silent, "rude", "clear " * 90, "()?!"])
    assert found[1] == found[3] == min(found) <= -reward.reward_bound
    if not pessimism:
        assert found[1] == -reward.reward_bound
    assert function([PROMPT], [silent]) == [-reward.reward_bound]


def test_it_carries_name_and_promise(reward):
    from trl.trainer.utils import get_callable_name, is_async_callable

    function = reward_function(reward)
    assert get_callable_name(function) == "private_reward"
    assert get_callable_name(reward_function(reward, pessimism=1.0)) == "pessimistic_reward"
    assert not is_async_callable(function)
    assert function.promise == reward.promise


def test_what_is_no_reward_is_refused(reward, word_pairs):
    import dataclasses

    for wrong in (reward.model, reward.score, word_pairs(3), None):
        with pytest.raises(PrivacyError, match="TextRewardModel"):
            reward_function(wrong)
    for wrong in (-1.0, float("inf"), "much"):
        with pytest.raises(UsageError, match="pessimism"):
            reward_function(reward, pessimism=wrong)
    with pytest.raises(UsageError, match="with_uncertainty"):
        reward_function(dataclasses.replace(reward, uncertainty=None), pessimism=1.0)
