"""What is loaded and what is refused: nothing is fetched, no foreign code is run."""

import json
import shutil

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
)

from sordino.errors import FileSystemError, UsageError
from sordino.language.models.checkpoints import (
    checkpoint_folder,
    context_length,
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.loading import quiet


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


def test_a_reward_keeps_the_head_it_was_saved_with(tiny_llama, tmp_path):
    model = load_reward_checkpoint(tiny_llama)
    torch.nn.init.ones_(model.score.weight)
    with quiet():
        model.save_pretrained(tmp_path / "reward")
    assert (load_reward_checkpoint(tmp_path / "reward").score.weight == 1).all()


def test_the_users_random_numbers_are_left_alone(tiny_llama):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load_reward_checkpoint(tiny_llama)
    assert torch.rand(1) == expected


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
    with pytest.raises(UsageError, match="has 3 outputs"):
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
