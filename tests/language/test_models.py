"""Checkpoints, tokens, draws: nothing is fetched, no answer is cut, no batch changes anything."""

import json
import math
import shutil
from dataclasses import replace

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
)

import sordino
from sordino.errors import DataError, FileSystemError, PrivacyError, UsageError
from sordino.language.models.checkpoints import (
    checkpoint_folder,
    context_length,
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.generation import (
    Completions,
    answer_log_probabilities,
    generators_kept,
    sample_answers,
    sample_completions,
    stacked,
)
from sordino.language.models.loading import quiet
from sordino.language.models.promises import CheckpointPromise
from sordino.language.models.tokens import SEPARATOR, DialogueTokens
from sordino.privacy.guarantee import CAVEATS
from sordino.privatization.answers import use_unprotected

from ._training import ending_at_once


@pytest.fixture
def randomized(open_ledger):
    """Return what makes private pairs of (prompt, first, second)."""

    def make(*rows):
        names = ("prompt", "first", "second", "label")
        pairs = sordino.read_pairs([dict(zip(names, (*row, 1), strict=True)) for row in rows])
        coin = sordino.RandomizedResponse(epsilon=1.0)
        return sordino.privatize(pairs, coin, ledger=open_ledger(1.0), simulate_seed=1)

    return make


@pytest.fixture
def promise(private):
    """Return the promise of a reward trained on randomized answers."""
    return CheckpointPromise.of(private(20), kind="reward", loss="debiased", reward_bound=5.0)


@pytest.mark.parametrize(("length", "overlong"), [(1, "refuse"), (64, "cut"), (True, "drop")])
def test_tokens_that_cannot_be_made_are_refused(tiny_llama, length, overlong):
    with pytest.raises(UsageError):
        DialogueTokens(load_tokenizer(tiny_llama), length, overlong)


@pytest.fixture
def copied(tiny_llama, tmp_path):
    """Return a copy of the checkpoint that a test may damage."""
    return shutil.copytree(tiny_llama, tmp_path / "copy")


def changed(folder, name, **values):
    """Change a JSON file of a checkpoint; None takes a key away."""
    found = json.loads((folder / name).read_text()) | values
    kept = {key: value for key, value in found.items() if value is not None}
    (folder / name).write_text(json.dumps(kept))
    return folder


def test_a_causal_model_gets_a_head_that_says_nothing(tiny_llama, tiny_gpt2):
    for folder in (tiny_llama, tiny_gpt2):
        model = load_reward_checkpoint(folder, device="cpu").eval()
        assert model.config.num_labels == 1
        assert model.dtype == torch.float32
        assert not model.score.weight.any()
        model.config.pad_token_id = 0
        with torch.no_grad():
            assert not model(torch.arange(5, 15)[None]).logits.any()


def test_the_users_random_numbers_are_left_alone(tiny_llama):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load_reward_checkpoint(tiny_llama)
    assert torch.rand(1) == expected


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_the_generators_of_a_card_are_left_as_they_were(kind, monkeypatch):
    """How far units moved them would stand in checkpoints; a stand-in plays the card."""
    state, card = [1], torch.get_device_module(kind)
    monkeypatch.setattr(card, "get_rng_state", lambda device: list(state))
    monkeypatch.setattr(card, "set_rng_state", lambda found, device: state.__setitem__(0, *found))
    before = torch.get_rng_state()
    with generators_kept(torch.device(kind, 0)):
        state[0] += 1
        torch.rand(1)
    assert state == [1]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("load", [load_causal_model, load_reward_checkpoint])
def test_a_name_on_a_hub_is_refused_without_asking(load, no_network):
    with pytest.raises(FileSystemError, match="nothing is ever fetched"):
        load("gpt2/none-here")
    with pytest.raises(UsageError, match="must be the path"):
        load(7)


def test_another_architecture_is_refused(tmp_path):
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=1,
    )  # fmt: skip
    with quiet():
        BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    with pytest.raises(UsageError, match="no checkpoint that can be used here"):
        load_causal_model(tmp_path / "bert")
    with pytest.raises(UsageError, match="no reward model"):
        load_reward_checkpoint(tmp_path / "bert")


def test_a_classifier_with_several_outputs_is_refused(tiny_llama, tmp_path):
    with quiet():
        AutoModelForSequenceClassification.from_pretrained(
            tiny_llama, num_labels=3
        ).save_pretrained(tmp_path / "three")
    with pytest.raises(UsageError, match=r"this .* has 3"):
        load_reward_checkpoint(tmp_path / "three")


@pytest.mark.parametrize("content", [None, "", "[]", "7", "\xff", "{}"])
def test_a_folder_without_a_checkpoint_is_refused(copied, content):
    (copied / "config.json").unlink()
    if content is not None:
        (copied / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(UsageError, match="and it names none"):
        checkpoint_folder(copied)


def test_code_that_comes_with_a_model_is_not_run(copied):
    mark = copied / "it-ran"
    (copied / "own.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Own: pass\n")
    changed(copied, "config.json", auto_map={"AutoModelForCausalLM": "own.Own"})
    with pytest.raises(UsageError, match="code of its own"):
        load_causal_model(copied)
    assert not mark.exists()


def test_pickled_weights_are_refused(copied):
    torch.save(load_file(copied / "model.safetensors"), copied / "pytorch_model.bin")
    load_causal_model(copied)  # the others are there, and are the ones that are read
    (copied / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="are pickled"):
        load_causal_model(copied)


def test_damaged_weights_are_refused_in_one_line(copied):
    (copied / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UsageError, match="cannot be loaded") as caught:
        load_causal_model(copied)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_padding_pads_with_the_end(copied):
    tokenizer = load_tokenizer(changed(copied, "tokenizer_config.json", pad_token=None))
    assert tokenizer.pad_token == tokenizer.eos_token == "<|end|>"  # noqa: S105 (no password)
    assert tokenizer.padding_side == "right"


def test_a_tokenizer_that_ends_nothing_and_a_missing_one_are_refused(copied):
    changed(copied, "tokenizer_config.json", eos_token=None)
    with pytest.raises(UsageError, match="lacks a token"):
        load_tokenizer(copied)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copied / name).unlink()
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_tokenizer(copied)


def test_the_shorter_of_two_contexts_counts(tiny_llama):
    model, tokenizer = load_causal_model(tiny_llama), load_tokenizer(tiny_llama)
    assert context_length(model, tokenizer) == 64
    tokenizer.model_max_length = 10**30
    assert context_length(model, tokenizer) == 64
    tokenizer.model_max_length = 32
    assert context_length(model, tokenizer) == 32


ASKED = "tell me about bread and water and paper and music"


@pytest.fixture(params=[True, False], ids=["template", "plain"])
def tokenizer(request, tiny_llama):
    """Return a tokenizer with its chat template, or without one."""
    found = load_tokenizer(tiny_llama)
    if not request.param:
        found.chat_template = None
    return found


def test_prompt_and_answer_are_what_was_said(tokenizer):
    prompt, answer = DialogueTokens(tokenizer, 64).dialogue(ASKED, "kind words")
    asked = f"<|user|>\n{ASKED}<|end|><|assistant|>\n" if tokenizer.chat_template else ASKED + SEPARATOR  # fmt: skip  # noqa: E501
    assert tokenizer.decode(prompt) == asked
    assert tokenizer.decode(answer) == "kind words<|end|>"
    assert answer.count(tokenizer.eos_token_id) == 1


def test_no_token_straddles_the_border(tiny_llama):
    """Tokenized in one piece, the space would be part of the first word of the answer."""
    tokenizer = load_tokenizer(tiny_llama)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    prompt, answer = DialogueTokens(tokenizer, 64).dialogue("tell me ", "about bread")
    assert tokenizer.decode(prompt) == "tell me "
    assert tokenizer.decode(answer) == "about bread<|end|>"
    whole = tokenizer("tell me about bread", add_special_tokens=False)["input_ids"]
    assert [*prompt, *answer[:-1]] != whole


def test_a_long_prompt_loses_its_beginning_and_no_answer_its_end(tokenizer):
    whole = DialogueTokens(tokenizer, 1000).dialogue(ASKED, "kind words")
    short = DialogueTokens(tokenizer, len(whole.answer) + 5).dialogue(ASKED, "kind words")
    assert short.answer == whole.answer
    assert short.prompt == whole.prompt[-5:]
    assert DialogueTokens(tokenizer, 20).prompt(ASKED, room=14) == whole.prompt[-6:]


def test_an_answer_that_leaves_no_prompt_is_refused(tokenizer):
    size = len(DialogueTokens(tokenizer, 1000).dialogue(ASKED, "kind words").answer)
    with pytest.raises(DataError, match=f"the answer has {size} tokens and the model reads {size}"):
        DialogueTokens(tokenizer, size).dialogue(ASKED, "kind words")


@pytest.mark.parametrize("empty", ["", "  \n", [{"role": "assistant", "content": " "}]])
def test_an_empty_answer_is_refused(tokenizer, empty):
    with pytest.raises(DataError, match="empty") as caught:
        DialogueTokens(tokenizer, 64).dialogue(ASKED, empty)
    assert ASKED not in str(caught.value)


def test_both_answers_follow_the_same_end_of_the_prompt(tokenizer, randomized):
    """Each alone would leave another part of it, and the length would tell which is which."""
    pairs = randomized((ASKED, "kind", "rude vague wrong cold rude vague"))
    first, second, rows = DialogueTokens(tokenizer, 24).pairs(pairs)
    assert rows == [0]
    assert first[0].prompt == second[0].prompt
    lengths = {len(one.answer) for one in (first[0], second[0])}
    assert len(lengths) == 2
    assert max(lengths) + len(first[0].prompt) == 24


def test_an_overlong_pair_is_refused_or_left_out_and_an_empty_one_never_left_out(
    tokenizer, randomized
):
    long = ("tell me", "kind " * 60, "rude")
    pairs = randomized((ASKED, "kind", "rude"), long, ("tell", "warm", "cold"))
    with pytest.raises(DataError, match="pair 1: an answer has") as caught:
        DialogueTokens(tokenizer, 64).pairs(pairs)
    assert "kind kind" not in str(caught.value)
    first, _, rows = DialogueTokens(tokenizer, 64, overlong="drop").pairs(pairs)
    assert (len(first), rows) == (2, [0, 2])
    with pytest.raises(DataError, match="No pair is left"):
        DialogueTokens(tokenizer, 64, overlong="drop").pairs(randomized(long))
    with pytest.raises(DataError, match="empty"):
        DialogueTokens(tokenizer, 64, overlong="drop").pairs(
            randomized(("tell", " ", "kind " * 60))
        )


def test_messages_are_taken_as_they_are(tokenizer):
    messages = [
        {"role": "system", "content": "you are kind"},
        {"role": "user", "content": "tell me"},
    ]
    prompt, answer = DialogueTokens(tokenizer, 64).dialogue(
        messages, [{"role": "assistant", "content": "about bread"}]
    )
    texts = [tokenizer.decode(ids) for ids in (prompt, answer)]
    assert texts[1] == "about bread<|end|>"
    assert all(message["content"] in texts[0] for message in messages)
    assert ("<|system|>" in texts[0]) == (tokenizer.chat_template is not None)


def test_a_template_that_rewrites_the_prompt_is_refused(tiny_llama):
    tokenizer = load_tokenizer(tiny_llama)
    tokenizer.chat_template = "{{ messages | length }}{{ messages[-1]['content'] }}"
    with pytest.raises(UsageError, match="writes a prompt differently"):
        DialogueTokens(tokenizer, 64).dialogue("tell me", "about bread")


PROMPTS = ["bread", "tell me about music and water and paper", "tell me about the answer", "is"]


@pytest.fixture(params=["llama", "gpt2"])
def drawing(request, tiny_models):
    """Return a model, whose dropout would act in training, and its tokenizer."""
    folder = tiny_models[request.param]
    return load_causal_model(folder, device="cpu"), load_tokenizer(folder)


@pytest.fixture
def small(tiny_llama):
    """Return the tiny Llama and its tokenizer."""
    return load_causal_model(tiny_llama, device="cpu"), load_tokenizer(tiny_llama)


def greedy(drawing, prompts, **settings):
    return sample_answers(*drawing, prompts, max_new_tokens=8, sampling_temperature=0, **settings)


def test_an_answer_does_not_depend_on_what_shares_its_batch(drawing):
    alone = [greedy(drawing, [prompt])[0] for prompt in PROMPTS]
    assert len(set(alone)) > 1
    for size in (1, 2, 4):
        assert greedy(drawing, PROMPTS, batch_size=size) == alone
    assert greedy(drawing, PROMPTS[::-1]) == alone[::-1]


def test_the_likeliest_answer_is_the_one_that_the_model_finds_token_by_token(drawing):
    model, tokenizer = drawing
    ids = DialogueTokens(tokenizer, 64).prompt(PROMPTS[1])
    said = []
    while len(said) < 8 and tokenizer.eos_token_id not in said:
        said.append(int(model(torch.tensor([ids + said])).logits[0, -1].argmax()))
    wanted = tokenizer.decode(said, skip_special_tokens=True)
    assert greedy(drawing, PROMPTS)[1] == wanted


def test_a_seed_decides_the_draws_and_leaves_the_generator_alone(small):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    draws = [sample_answers(*small, PROMPTS * 4, max_new_tokens=8, seed=seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert torch.equal(torch.get_rng_state(), before)
    sample_answers(*small, PROMPTS, max_new_tokens=8)
    assert not torch.equal(torch.get_rng_state(), before)


def test_model_and_tokenizer_are_left_as_they_were(drawing):
    model, tokenizer = drawing
    model.train()
    model.lm_head.eval()
    settings, sides = model.generation_config, (tokenizer.padding_side, tokenizer.pad_token)
    sample_answers(model, tokenizer, PROMPTS, max_new_tokens=4)
    assert model.training
    assert not model.lm_head.training
    assert model.generation_config is settings
    assert (tokenizer.padding_side, tokenizer.pad_token) == sides


def test_draws_are_of_the_model_whatever_came_with_its_checkpoint(small):
    model, tokenizer = small
    model.generation_config.update(top_k=1, temperature=0.2, min_p=0.9, no_repeat_ngram_size=1)
    n = 4000
    torch.manual_seed(0)
    drawn = sample_completions(model, tokenizer, ["tell me about bread"] * n, max_new_tokens=1)
    first = torch.tensor(DialogueTokens(tokenizer, 64).prompt("tell me about bread"))[None]
    chances = model(first).logits[0, -1].softmax(-1).detach()
    counts = torch.bincount(drawn.completion_ids[:, 0], minlength=len(chances))
    common = chances > 0.01
    z = (counts - n * chances)[common] / (n * chances * (1 - chances))[common].sqrt()
    assert int(common.sum()) > 5
    assert float(z.abs().max()) < 5
    hot = sample_completions(
        model, tokenizer, ["bread"] * n, max_new_tokens=1, sampling_temperature=1e4
    )
    assert len(set(hot.completion_ids[:, 0].tolist())) > 300  # of 320, nearly uniform


def test_an_answer_stops_at_its_end_and_may_be_empty(small):
    model, tokenizer = small
    ending_at_once(model, tokenizer.eos_token_id)
    assert sample_answers(model, tokenizer, PROMPTS, max_new_tokens=8, seed=0) == [""] * 4
    drawn = sample_completions(model, tokenizer, PROMPTS, max_new_tokens=8)
    assert drawn.token_lists() == [[tokenizer.eos_token_id]] * 4
    assert torch.equal(answer_log_probabilities(model, drawn), torch.zeros(4))


def test_nothing_after_the_end_counts(drawing):
    model, tokenizer = drawing
    torch.manual_seed(1)
    drawn = sample_completions(model, tokenizer, PROMPTS * 8, max_new_tokens=12)
    eos = tokenizer.eos_token_id
    sizes = {len(row) for row in drawn.token_lists()}
    assert len(sizes) > 3
    for row in drawn.token_lists():
        assert eos not in row[:-1]
        assert row[-1] == eos or len(row) == 12
    assert not any(tokenizer.eos_token in text for text in drawn.texts(tokenizer))


def test_a_long_prompt_that_is_answered_loses_its_beginning(small):
    prompt = "tell me about " + "bread music water paper " * 40 + "the answer"
    ids = DialogueTokens(small[1], 64).prompt(prompt, room=16)
    assert len(ids) == 48
    drawn = sample_completions(*small, [prompt, "bread"], max_new_tokens=16)
    assert drawn.prompt_ids.shape[1] == 48
    assert drawn.prompt_ids[0].tolist() == ids
    assert int(drawn.prompt_mask[1].sum()) < 48


def test_no_template_and_no_padding_token_will_do(small):
    tokenizer = small[1]
    tokenizer.chat_template, tokenizer.pad_token = None, None
    assert greedy(small, PROMPTS)[2] == greedy(small, PROMPTS[2:3])[0]
    assert tokenizer.pad_token is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_new_tokens": 0}, "length of an answer"),
        ({"max_new_tokens": 64}, "length of an answer"),
        ({"max_new_tokens": 4, "sampling_temperature": -1.0}, "sampling_temperature"),
        ({"max_new_tokens": 4, "batch_size": 0}, "batch_size"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(small, settings, named):
    with pytest.raises(UsageError, match=named):
        sample_answers(*small, PROMPTS, **settings)


def test_prompts_that_are_no_texts_are_refused_by_index(small):
    with pytest.raises(DataError, match="prompt 1") as error:
        greedy(small, ["bread", {"secret": "water"}])
    assert "water" not in str(error.value)
    with pytest.raises(UsageError, match="list"):
        greedy(small, "bread")
    small[1].eos_token = None
    with pytest.raises(UsageError, match="ends a text"):
        greedy(small, PROMPTS)


def naive(model, drawn):
    """Return the log-probability of each answer: one answer and one token at a time."""
    found = []
    for row, said in enumerate(drawn.token_lists()):
        ids = drawn.prompt_ids[row][drawn.prompt_mask[row].bool()].tolist()
        total = 0.0
        for token in said:
            logits = model(torch.tensor([ids])).logits[0, -1].double()
            total += float(logits.log_softmax(-1)[token])
            ids.append(token)
        found.append(total)
    return torch.tensor(found)


def test_log_probabilities_are_those_of_one_token_at_a_time(drawing):
    torch.manual_seed(2)
    drawn = sample_completions(*drawing, PROMPTS * 3, max_new_tokens=10)
    with torch.no_grad():
        found = answer_log_probabilities(drawing[0], drawn)
        assert found.shape == (12,)
        assert torch.allclose(found, naive(drawing[0], drawn), atol=1e-5, rtol=0)


def test_log_probabilities_do_not_depend_on_padding(drawing):
    model, tokenizer = drawing
    torch.manual_seed(2)
    drawn = sample_completions(model, tokenizer, PROMPTS, max_new_tokens=10)
    pad = torch.nn.functional.pad
    wider = Completions(
        pad(drawn.prompt_ids, (5, 0), value=7),
        pad(drawn.prompt_mask, (5, 0)),
        pad(drawn.completion_ids, (0, 6), value=9),
        pad(drawn.completion_mask, (0, 6)),
    )
    longest = sample_completions(model, tokenizer, ["bread " * 9], max_new_tokens=3)
    with torch.no_grad():
        alone = answer_log_probabilities(model, drawn)
        assert torch.allclose(answer_log_probabilities(model, wider), alone, atol=1e-5, rtol=0)
        both = answer_log_probabilities(model, stacked(longest, drawn))
        assert torch.allclose(both[1:], alone, atol=1e-5, rtol=0)
        assert math.isclose(both[0], answer_log_probabilities(model, longest), abs_tol=1e-5)


def test_the_card_carries_promise_and_caveats(promise):
    yaml = pytest.importorskip("yaml")
    card = promise.card("A reward")
    front = yaml.safe_load(card.split("---")[1])
    assert front["privacy"]["epsilon"] == "inf"  # a seed was used
    assert "differential-privacy" not in front["tags"]
    assert front["privacy"]["unit"] == "label"
    assert front["privacy"]["caveats"] == list(promise.guarantee.caveats)
    assert front["training"] == {"loss": "debiased", "reward_bound": 5.0}
    for name in promise.guarantee.caveats:
        assert f"- `{name}`: {CAVEATS[name]}" in card
    assert "**SIMULATED" in card


def test_the_card_of_a_real_release_has_no_banner_and_of_none_an_infinity(word_pairs, open_ledger):
    pairs = word_pairs(20)
    coin = sordino.RandomizedResponse(epsilon=1.0)
    real = sordino.privatize(pairs, coin, ledger=open_ledger(1.0))
    assert "SIMULATED" not in CheckpointPromise.of(real, kind="policy").card("A policy")
    raw = use_unprotected(pairs, sordino.NonPrivate(), ledger=open_ledger(math.inf))
    found = CheckpointPromise.of(raw, kind="policy")
    assert math.isinf(found.guarantee.epsilon)
    assert '"epsilon": "inf"' in found.card("A policy")


def test_a_promise_of_nothing_known_is_refused(promise):
    with pytest.raises(UsageError, match="kind"):
        CheckpointPromise(kind="judge", sources=promise.sources)


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 99}, {"format": "sordino.reward"}, {"kind": "judge"}, {"caveats": ["fine"]},
        {"guarantee": {"epsilon": -1}}, {"training": 7}, {"sources": None}, {"sources": []},
        {"guarantee": {
            "epsilon": 0.01, "delta": 0.0, "unit": "label", "neighbors": "REPLACE_ONE",
            "trust": "central", "randomness": "simulated",
        }},
    ],
)  # fmt: skip
def test_a_damaged_promise_is_refused(promise, tmp_path, damage):
    promise.write(tmp_path, title="A reward")
    path = tmp_path / "sordino.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(DataError, match="promise cannot be used"):
        CheckpointPromise.read(tmp_path)


def test_releases_add_up_and_each_counts_once(promise):
    """Three answers of one person to one question at ε = 1 each are worth ε = 3, not 1."""
    (source,) = promise.sources
    others = [replace(source, release_ids=(), artifact=letter * 64) for letter in "ab"]
    three = replace(promise, sources=(source, *others, source))
    assert len(three.sources) == 3
    assert three.guarantee.epsilon == pytest.approx(3 * promise.guarantee.epsilon)
    assert three.with_those_of(promise, three) == three
    assert promise.with_those_of(three).guarantee == three.guarantee
    assert set(source.release_ids) < set(three.release_ids), "and two that no ledger knows"
    assert len(three.release_ids) == len(source.release_ids) + 2


def test_what_no_one_promise_covers_is_refused(promise):
    (source,) = promise.sources
    person = replace(source.guarantee, unit="person", caveats=("labels-only",))
    with pytest.raises(PrivacyError, match="cannot be composed"):
        replace(promise, sources=(source, replace(source, guarantee=person)))


def test_a_missing_promise_is_told_from_a_damaged_one(tmp_path):
    with pytest.raises(FileSystemError):
        CheckpointPromise.read(tmp_path)
    (tmp_path / "sordino.json").write_text("{")
    with pytest.raises(DataError):
        CheckpointPromise.read(tmp_path)
