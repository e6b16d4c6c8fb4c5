"""What tests of trainers share: settings, runs, kills, and what a file holds beside weights."""

import json

import torch
from transformers import TrainerCallback

from sordino.language import (
    CentralDPOConfig,
    CentralDPOTrainer,
    CentralPrivacy,
    CentralRewardConfig,
    CentralRewardTrainer,
)
from sordino.language.models.loading import quiet
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE

QUIETLY = {"save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
KINDS = {
    "reward": (CentralRewardTrainer, CentralRewardConfig),
    "dpo": (CentralDPOTrainer, CentralDPOConfig),
}


def privacy(epsilon=4.0, **changed):
    """Return privacy settings of few steps on records."""
    usual = {
        "unit": "record", "neighbors": ADD_OR_REMOVE_ONE, "sampling_probability": 0.25, "steps": 8,
        "expected_batch": 10, "delta": 1e-5,
    }  # fmt: skip
    return CentralPrivacy(epsilon, **{**usual, **changed})


def trained(trainer, **how):
    with quiet():
        trainer.train(**how)
    return trainer


class Killed(TrainerCallback):
    """Kills a run before a step, as a power cut would."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def moved(model, by=0.05, seed=3):
    """Change every trained weight of a model a little."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in model.parameters():
            if one.requires_grad:
                one.add_(by * torch.randn(one.shape, generator=chance).to(one))
    return model


def awake(trainer):
    """Give weights that are 0 a value, so that the gradient of what is behind them is not 0."""
    torch.manual_seed(1)
    for one in trainer.model.parameters():
        if one.requires_grad and not one.any():
            torch.nn.init.normal_(one, std=0.2)
    return trainer


def same_weights(one, other):
    both = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(*each) for each in both)


def log_probability(model, prompt, answer):
    """Return that of an answer, one token after the other."""
    ids = [*prompt, *answer]
    logs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logs[at - 1, ids[at]] for at in range(len(prompt), len(ids)))


def ending_at_once(model, eos):
    """Make a model say nothing, whatever it is asked."""
    model.lm_head.register_forward_hook(
        lambda _, __, logits: logits + 1e4 * (torch.arange(logits.shape[-1]) == eos)
    )
    return model


def files_of(folder):
    """Return the content of every file, by its name below the folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def assert_only_weights_differ(one, other, last):
    """Compare the files of two runs: but for weights, and digests of them, they are the same."""
    assert set(one) == set(other)
    differ = {name.split("/")[-1] for name in one if one[name] != other[name]}
    assert differ <= {"model.safetensors", "optimizer.pt", "sordino.json", "config.json"}
    assert "model.safetensors" in differ
    for name in ("sordino.json", "config.json"):  # they hold a digest of the weights
        both = [json.loads(files[f"{last}/{name}"]) for files in (one, other)]
        for found in both:
            found.get("sordino_texts_read", {}).update(made="", heads=[])
            found.get("files", {}).update({"model.safetensors": "", "config.json": ""})
            sources = found.get("sources") or found["sordino_promise"]["sources"]
            sources[0]["artifact"] = ""
        assert both[0] == both[1]
