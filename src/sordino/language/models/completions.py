"""Drawn answers as tokens, and how likely a model finds them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

__all__ = ["Completions", "answer_log_probabilities", "evaluating", "stacked"]


class Completions(NamedTuple):
    """Prompts with drawn answers, as tokens; row i of each part belongs to answer i.

    Attributes:
        prompt_ids: Tokens of the prompts, shape (n, p), padded on the left.
        prompt_mask: 1 where ``prompt_ids`` is not padding.
        completion_ids: Tokens of the answers, shape (n, c), padded on the right.
        completion_mask: 1 up to the token that ends the answer, which is part of it.
    """

    prompt_ids: Any
    prompt_mask: Any
    completion_ids: Any
    completion_mask: Any

    def token_lists(self) -> list[list[int]]:
        """Return the tokens of each answer, without padding."""
        rows = zip(self.completion_ids, self.completion_mask, strict=True)
        return [ids[mask.bool()].tolist() for ids, mask in rows]

    def texts(self, tokenizer: Any) -> list[str]:
        """Return each answer as text, without special tokens."""
        return [
            str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
            for ids in self.token_lists()
        ]


def stacked(first: Completions, second: Completions) -> Completions:
    """Return the rows of both, the first ones above, each part padded to the wider of the two."""
    left = max(first.prompt_ids.shape[1], second.prompt_ids.shape[1])
    right = max(first.completion_ids.shape[1], second.completion_ids.shape[1])
    wide = [
        [
            *(pad(part, (left - part.shape[1], 0)) for part in one[:2]),
            *(pad(part, (0, right - part.shape[1])) for part in one[2:]),
        ]
        for one in (first, second)
    ]
    return Completions(*map(torch.cat, zip(*wide, strict=True)))


def answer_log_probabilities(model: Any, completions: Completions) -> Any:
    """Return the log-probability of each answer given its prompt, in nats, shape (n,).

    Every answer's tokens count, its end included; padding is neither read nor counted. Logits
    are taken where an answer is predicted and nowhere else, and no log-softmax over the whole
    vocabulary is kept.
    """
    prompts, prompt_mask, answers, answer_mask = completions
    read = torch.cat([prompt_mask, answer_mask], dim=1)
    # what is padding goes to the end, so that positions count from 0 in every architecture
    order = torch.argsort(read, dim=1, descending=True, stable=True)
    order = order[:, : int(read.sum(dim=1).max())]
    ids = torch.cat([prompts, answers], dim=1).gather(1, order)
    said = torch.cat([torch.zeros_like(prompt_mask), answer_mask], dim=1).gather(1, order)
    most = max(ids.shape[1] - int(prompt_mask.sum(dim=1).min()), 1)
    logits = _last_logits(model, ids, read.gather(1, order), most + 1)[:, :-1]
    return _chosen(logits, ids[:, -most:]).masked_fill(said[:, -most:] == 0, 0.0).sum(dim=1)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Let no dropout act for a while; every part of the model then gets its own mode back."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _last_logits(model: Any, ids: Any, mask: Any, count: int) -> Any:
    """Return the logits of the last positions, and compute no others where the model lets us."""
    inner = getattr(model, "module", model)
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    few = "logits_to_keep" in inspect.signature(inner.forward).parameters
    wanted = {"logits_to_keep": count} if few else {}
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False, **wanted).logits
    return logits[:, -count:]


def _chosen(logits: Any, ids: Any) -> Any:
    """Return the log-probability of each token in 32 bits or more, one row at a time."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    rows = zip((row.to(exact) for row in logits), ids, strict=True)
    return torch.stack(
        [row.gather(-1, token[:, None])[:, 0] - row.logsumexp(-1) for row, token in rows]
    )
