"""Answers are draws from the model as it is, whatever shares their batch."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the extra 'language' is not installed")
pytest.importorskip("trl", reason="the extra 'language' is not installed")

from sordino.errors import DataError, UsageError  # noqa: E402
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer  # noqa: E402
from sordino.language.models.generation import (  # noqa: E402
    Completions,
    answer_log_probabilities,
    sample_answers,
    sample_completions,
    stacked,
)
from sordino.language.models.tokens import DialogueTokens  # noqa: E402

PROMPTS = ["bread", "tell me about music and water and paper", "tell me about the answer", "is"]


@pytest.fixture(params=["llama", "gpt2"])
def pair(request, tiny_models):
    """Return a model, whose dropout would act in training, and its tokenizer."""
    folder = tiny_models[request.param]
    return load_causal_model(folder, device="cpu"), load_tokenizer(folder)


@pytest.fixture
def small(tiny_llama):
    """Return the tiny Llama and its tokenizer."""
    return load_causal_model(tiny_llama, device="cpu"), load_tokenizer(tiny_llama)


def greedy(pair, prompts, **settings):
    return sample_answers(*pair, prompts, max_new_tokens=8, sampling_temperature=0, **settings)


def ending_at_once(model, eos):
    """Make a model say nothing, whatever it is asked."""
    model.lm_head.register_forward_hook(
        lambda _, __, logits: logits + 1e4 * (torch.arange(logits.shape[-1]) == eos)
    )


def test_an_answer_does_not_depend_on_what_shares_its_batch(pair):
    alone = [greedy(pair, [prompt])[0] for prompt in PROMPTS]
    assert len(set(alone)) > 1
    for size in (1, 2, 4):
        assert greedy(pair, PROMPTS, batch_size=size) == alone
    assert greedy(pair, PROMPTS[::-1]) == alone[::-1]


def test_the_likeliest_answer_is_the_one_that_the_model_finds_token_by_token(pair):
    model, tokenizer = pair
    ids = DialogueTokens(tokenizer, 64).prompt(PROMPTS[1])
    said = []
    while len(said) < 8 and tokenizer.eos_token_id not in said:
        said.append(int(model(torch.tensor([ids + said])).logits[0, -1].argmax()))
    wanted = tokenizer.decode(said, skip_special_tokens=True)
    assert greedy(pair, PROMPTS)[1] == wanted


def test_a_seed_decides_the_draws_and_leaves_the_generator_alone(small):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    draws = [sample_answers(*small, PROMPTS * 4, max_new_tokens=8, seed=seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert torch.equal(torch.get_rng_state(), before)
    sample_answers(*small, PROMPTS, max_new_tokens=8)
    assert not torch.equal(torch.get_rng_state(), before)


def test_model_and_tokenizer_are_left_as_they_were(pair):
    model, tokenizer = pair
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


def test_nothing_after_the_end_counts(pair):
    model, tokenizer = pair
    torch.manual_seed(1)
    drawn = sample_completions(model, tokenizer, PROMPTS * 8, max_new_tokens=12)
    eos = tokenizer.eos_token_id
    sizes = {len(row) for row in drawn.token_lists()}
    assert len(sizes) > 3
    for row in drawn.token_lists():
        assert eos not in row[:-1]
        assert row[-1] == eos or len(row) == 12
    assert not any(tokenizer.eos_token in text for text in drawn.texts(tokenizer))


def test_a_long_prompt_loses_its_beginning(small):
    prompt = "tell me about " + "bread music water paper " * 40 + "the answer"
    ids = DialogueTokens(small[1], 64).prompt(prompt, room=16)
    assert len(ids) == 48
    drawn = sample_completions(*small, [prompt, "bread"], max_new_tokens=16)
    assert drawn.prompt_ids.shape[1] == 48
    assert drawn.prompt_ids[0].tolist() == ids
    assert int(drawn.prompt_mask[1].sum()) < 48


def test_a_text_and_one_message_are_the_same_prompt(small):
    messages = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    assert greedy(small, messages) == greedy(small, PROMPTS)


def test_no_template_and_no_padding_token_will_do(small):
    tokenizer = small[1]
    tokenizer.chat_template, tokenizer.pad_token = None, None
    assert greedy(small, PROMPTS)[2] == greedy(small, PROMPTS[2:3])[0]
    assert tokenizer.pad_token is None


def test_no_prompts_have_no_answers(small):
    assert greedy(small, []) == []


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


def test_log_probabilities_are_those_of_one_token_at_a_time(pair):
    torch.manual_seed(2)
    drawn = sample_completions(*pair, PROMPTS * 3, max_new_tokens=10)
    with torch.no_grad():
        found = answer_log_probabilities(pair[0], drawn)
        assert found.shape == (12,)
        assert torch.allclose(found, naive(pair[0], drawn), atol=1e-5, rtol=0)


def test_log_probabilities_do_not_depend_on_padding(pair):
    model, tokenizer = pair
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


def test_gradients_reach_the_model_and_are_those_of_the_sum(small):
    model, _ = small
    drawn = sample_completions(*small, PROMPTS, max_new_tokens=6)
    answer_log_probabilities(model, drawn).sum().backward()
    found = model.lm_head.weight.grad.clone()
    model.zero_grad()
    for row in range(4):
        one = Completions(*(part[row : row + 1] for part in drawn))
        answer_log_probabilities(model, one).sum().backward()
    assert torch.allclose(found, model.lm_head.weight.grad, atol=1e-4)
