"""Prompts give way on the left, answers never, and both answers follow the same prompt."""

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import sordino
from sordino.errors import DataError, UsageError
from sordino.language.models.checkpoints import load_tokenizer
from sordino.language.models.tokens import SEPARATOR, DialogueTokens

ASKED = "tell me about bread and water and paper and music"


@pytest.fixture(params=[True, False], ids=["template", "plain"])
def tokenizer(request, tiny_llama):
    """Return a tokenizer with its chat template, or without one."""
    found = load_tokenizer(tiny_llama)
    if not request.param:
        found.chat_template = None
    return found


@pytest.fixture
def private(open_ledger):
    """Return what makes private pairs of (prompt, first, second)."""

    def make(*rows):
        records = [
            {"prompt": prompt, "first": first, "second": second, "label": 1}
            for prompt, first, second in rows
        ]
        coin = sordino.RandomizedResponse(epsilon=1.0)
        pairs = sordino.read_pairs(records)
        return sordino.privatize(pairs, coin, ledger=open_ledger(1.0), simulate_seed=1)

    return make


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


def test_both_answers_follow_the_same_end_of_the_prompt(tokenizer, private):
    """Each alone would leave another part of it, and the length would tell which is which."""
    pairs = private((ASKED, "kind", "rude vague wrong cold rude vague"))
    first, second, rows = DialogueTokens(tokenizer, 24).pairs(pairs)
    assert rows == [0]
    assert first[0].prompt == second[0].prompt
    lengths = {len(one.answer) for one in (first[0], second[0])}
    assert len(lengths) == 2
    assert max(lengths) + len(first[0].prompt) == 24


def test_an_overlong_pair_is_refused_or_left_out_and_an_empty_one_never_left_out(
    tokenizer, private
):
    long = ("tell me", "kind " * 60, "rude")
    pairs = private((ASKED, "kind", "rude"), long, ("tell", "warm", "cold"))
    with pytest.raises(DataError, match="pair 1: an answer has") as caught:
        DialogueTokens(tokenizer, 64).pairs(pairs)
    assert "kind kind" not in str(caught.value)
    first, _, rows = DialogueTokens(tokenizer, 64, overlong="drop").pairs(pairs)
    assert (len(first), rows) == (2, [0, 2])
    with pytest.raises(DataError, match="No pair is left"):
        DialogueTokens(tokenizer, 64, overlong="drop").pairs(private(long))
    with pytest.raises(DataError, match="empty"):
        DialogueTokens(tokenizer, 64, overlong="drop").pairs(private(("tell", " ", "kind " * 60)))


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


@pytest.mark.parametrize(("length", "overlong"), [(1, "refuse"), (64, "cut"), (True, "drop")])
def test_settings_that_cannot_be_used_are_refused(tiny_llama, length, overlong):
    with pytest.raises(UsageError):
        DialogueTokens(load_tokenizer(tiny_llama), length, overlong)
