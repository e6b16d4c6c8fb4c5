"""Models in which one person shows in what is clipped for others, and how they are found."""

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from sordino.errors import UsageError
from sordino.language import (
    CentralDPOConfig,
    CentralDPOTrainer,
    CentralPrivacy,
    CentralRewardConfig,
    CentralRewardTrainer,
)
from sordino.language.dp_sgd.clipping import ClippedSum, refuse_shared_gradients
from sordino.language.dp_sgd.trainers import reward_losses
from sordino.language.dp_sgd.training import TokenPair, invented_units
from sordino.language.models.checkpoints import load_tokenizer
from sordino.language.models.loading import quiet
from sordino.language.models.tokens import DialogueTokens
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE

SAFE, READ = 32, 64
TERMS = CentralPrivacy(
    4.0, 1e-5, unit="record", neighbors=ADD_OR_REMOVE_ONE, sampling_probability=0.5, steps=2,
    expected_batch=10,
)  # fmt: skip
CODES = {
    "rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0,
    "original_max_position_embeddings": SAFE, "short_factor": [1.0] * 4,
    "long_factor": [4.0, 5.0, 6.0, 7.0],
}  # fmt: skip


def built(kind, words, **more):
    """Return a tiny Llama."""
    torch.manual_seed(3)
    model = kind(
        LlamaConfig(
            vocab_size=words, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=READ, pad_token_id=0, **more,
        )
    )  # fmt: skip
    with torch.no_grad():
        for one in model.parameters():
            if one.dim() > 1:
                one.normal_(std=0.3)
    return model


@pytest.fixture
def make(tiny_llama, word_pairs, ledger_of, tmp_path):
    """Return a maker of trainers of a policy or a reward."""

    def make(model, *, policy=True, **given):
        kind, settings = (
            (CentralDPOTrainer, CentralDPOConfig)
            if policy
            else (CentralRewardTrainer, CentralRewardConfig)
        )
        quietly = {"save_strategy": "no", "disable_tqdm": True}
        return kind(
            model,
            args=settings(str(tmp_path / "run"), **quietly, **given),
            train_dataset=word_pairs(12),
            privacy=TERMS,
            ledger=ledger_of(),
            processing_class=load_tokenizer(tiny_llama),
            declare_unread=True,
        )

    return make


@pytest.mark.deep
def test_positions_that_the_longest_row_decides_are_refused(make, tiny_llama):
    words = len(load_tokenizer(tiny_llama))
    for policy, kind in ((True, LlamaForCausalLM), (False, LlamaForSequenceClassification)):
        more = {} if policy else {"num_labels": 1}
        model = built(kind, words, rope_parameters=dict(CODES), **more)
        with pytest.raises(UsageError, match="max_length to at most 32"):
            make(model, policy=policy)
        trainer = make(model, policy=policy, max_length=SAFE)
        with quiet():
            trainer.train()


def test_the_test_before_the_first_step_finds_them_too(tiny_llama):
    """Made-up units hold a text as long as any beside short ones."""
    tokenizer = load_tokenizer(tiny_llama)
    codes = {"rope_parameters": dict(CODES), "num_labels": 1}
    model = built(LlamaForSequenceClassification, len(tokenizer), **codes)

    def losses(model, units):
        return reward_losses(model, units, padding=tokenizer.pad_token_id)

    def in_batches(units, bound):
        """Clip the gradients of units that are read together."""
        total = ClippedSum(model, bound)
        for at in range(len(units)):
            total.add([lambda at=at: losses(model, units)[at]])
        return total.values()

    given = losses, in_batches
    units = invented_units(4, DialogueTokens(tokenizer, SAFE))
    refuse_shared_gradients(model, *given, units)
    with pytest.raises(UsageError, match="depends on who else"):
        refuse_shared_gradients(model, *given, invented_units(4, DialogueTokens(tokenizer, READ)))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(make, tiny_llama):
    words = len(load_tokenizer(tiny_llama))
    with pytest.raises(UsageError, match="resize_token_embeddings"):
        make(built(LlamaForCausalLM, words - 1))


def test_whether_a_run_is_refused_does_not_depend_on_a_record(make, tiny_llama):
    """A record whose gradient is no number adds nothing, and stops nothing."""
    model = built(LlamaForCausalLM, len(load_tokenizer(tiny_llama)))
    trainer = make(model)
    first = trainer._units[0][0]
    ids = sorted({*range(len(load_tokenizer(tiny_llama)))} - seen(trainer))
    bad = TokenPair([*first.first[:-1], ids[-1]], first.second, 1.0, first.answers)
    with torch.no_grad():
        model.get_input_embeddings().weight[ids[-1]] = torch.nan
    trainer._units.insert(0, (bad,))
    with quiet():
        trainer.train()
    trained = [one for one in trainer.model.parameters() if one.requires_grad]
    assert sum(int(one.isnan().any()) for one in trained) <= 1  # the embedding, as it was


def seen(trainer):
    """Return the tokens of the data and of made-up units."""
    units = [*trainer._units, *invented_units(4, trainer._tokens)]
    return {token for unit in units for pair in unit for token in (*pair.first, *pair.second)}
