"""Sums of clipped gradients, their noise, and the test of a model before its first step."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.modeling_layers import GradientCheckpointingLayer

from sordino._random import Entropy
from sordino._validate import moderate, positive
from sordino.errors import UsageError
from sordino.language.models.generation import evaluating

ROUNDING: Final = 1e-6
"""Kept free below the bound, relatively, for rounding in 64-bit floats."""

_PARTS: Final = 2**32  # of the bound: what is added is a whole number of them
_MOST_ENTRIES: Final = 2**32
_MOST_UNITS: Final = 2**30
_HOOKS: Final = ("_backward_hooks", "_post_accumulate_grad_hooks")


class ClippedSum:
    """The sum of the clipped gradients of units, which are read one at a time.

    Kernels round otherwise when a batch has another shape, so that whoever shares a batch with a
    unit would move its gradient, and with it its norm and its factor, in the last digits of all
    entries. A unit is therefore read alone, pair by pair at its own length, through autograd,
    which serves every layer. Its factor is min(1, C/norm), with the norm of its whole gradient in
    64-bit floats, and what it adds is rounded towards 0 to whole numbers of C/2³². Sums of whole
    numbers are exact: with a unit and without it they differ by what it adds alone, whoever the
    others are, how many, and in which order.

    No unit adds more than C, and the difference of two sums that :meth:`values` returns is no
    longer either. With u = 2⁻⁵³, a sum of P squares in whatever order is off by at most a share
    of γ_{P+1}, so that a computed norm is off by at most 2.4e-7 for P ≤ 2³²; truncation makes
    no entry larger. To turn whole numbers into floats rounds each entry twice, by at most 2u, and
    a sum over n units is at most nC long: for n ≤ 2³⁰ both sums are off by less than 4.8e-7 C
    together. Both fit into ``ROUNDING``, of which C is smaller when factors are found. More
    entries or units are refused.

    Args:
        model: Its trained parameters are those that require gradients.
        bound: C.

    Raises:
        UsageError: The bound is not within 1e-60 and 1e60, more than 2³² entries are trained, or
            somebody reads gradients before they are clipped.

    Guarantee:
        None by itself: it bounds what one unit adds, to which noise is fitted. Shown by
        tests/language/test_clipping.py.

    Source:
        Abadi et al. (2016), Algorithm 1; Higham (2002), chapter 3, lemma 3.1, for γ_n.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> total = ClippedSum(model, 1.0)
        >>> preferred, other = torch.tensor([5.0, 0.0]), torch.tensor([2.0, 4.0])
        >>> norm = total.add([lambda: (model(preferred) - model(other)).sum()])
        >>> print(norm, round(float(total.values()[0].norm()), 3))
        5.0 1.0
    """

    def __init__(self, model: nn.Module, bound: float) -> None:
        """Start at 0."""
        self._bound = moderate("bound", bound)  # so that its parts are no subnormal floats
        trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self._trained = list(trained.values())
        for name, one in trained.items():
            if any(getattr(one, kind, None) for kind in _HOOKS):  # empty once they are removed
                raise UsageError(
                    f"{name!r} has hooks that act within the backward pass, where gradients are "
                    "not clipped yet. Nothing was trained. Remove them (each by the handle that "
                    "register_hook or register_post_accumulate_grad_hook returned), and use an "
                    "optimizer that steps after the backward pass, not layer by layer within it."
                )
        entries = sum(one.numel() for one in self._trained)
        if entries > _MOST_ENTRIES:
            raise UsageError(
                f"{entries:,} numbers are trained; what one unit adds to their sum can be bounded "
                f"for {_MOST_ENTRIES:,} at most. Nothing was trained. Train adapters "
                "(peft_config=), or freeze layers."
            )
        self._units = 0
        self.counts = [
            torch.zeros(one.shape, dtype=torch.int64, device="cpu" if one.is_mps else one.device)
            for one in self._trained
        ]
        """The sum in whole numbers of C/2³², a tensor for every trained parameter."""

    def add(self, losses: Iterable[Callable[[], torch.Tensor]]) -> float:
        """Add the clipped gradient of one unit, and return its norm before clipping.

        A unit whose gradient is not finite adds nothing: what is released stays a number, whoever
        is in it. ``grad`` of every trained parameter is None afterwards.

        Args:
            losses: The parts of its loss, such as one for each pair; each is called, and its
                result differentiated, before the next.

        Raises:
            UsageError: There are more than 2³⁰ units.
        """
        self._units += 1
        if self._units > _MOST_UNITS:
            raise UsageError(f"A sum is bounded for {_MOST_UNITS:,} units at most.")
        self._forget()
        try:
            for loss in losses:
                loss().backward()
            return self._clipped()
        finally:
            self._forget()

    def values(self) -> list[torch.Tensor]:
        """Return the sum in 64-bit floats, a tensor for every trained parameter."""
        return [count.double().mul_(self._bound / _PARTS) for count in self.counts]

    def _clipped(self) -> float:
        """Add what autograd left, clipped."""
        both = zip(self.counts, self._trained, strict=True)
        found = [(count, *_used(one.grad)) for count, one in both if one.grad is not None]
        norm = math.sqrt(sum(float(values.double().square_().sum()) for _, _, values in found))
        if not math.isfinite(norm) or norm == 0:
            return norm
        scale = min(_PARTS / self._bound, _PARTS * (1 - ROUNDING) / norm)
        for count, rows, values in found:
            whole = values.double().mul_(scale).trunc_().to(count.dtype)
            count.index_add_(0, rows, whole) if rows is not None else count.add_(whole)
        return norm

    def _forget(self) -> None:
        for one in self._trained:
            one.grad = None


def _used(gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return which rows of a gradient are not 0, or None for all, and these rows."""
    # Of an embedding they are those of the tokens of a unit, a few of many thousands.
    found = gradient.detach().to_dense()
    found = found.cpu() if found.is_mps else found  # which knows no 64-bit floats
    if found.dim() > 1:
        used = found.flatten(1).any(1)
        if not bool(used.all()):
            rows = used.nonzero()[:, 0]
            return rows, found[rows]
    return None, found


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, and let layers that save memory go on recomputing themselves."""
    with evaluating(model):
        for layer in model.modules():
            if isinstance(layer, GradientCheckpointingLayer):  # which do so only in training
                layer.training = bool(layer.gradient_checkpointing)
        yield


_CHUNK: Final = 1 << 20
_PART: Final = 2.0**-64
_SMALL: Final = np.uint64(2**32)
_THREADS: Final = 16


def add_gradient_noise(
    sums: Iterable[torch.Tensor], standard_deviation: float, *, entropy: Entropy
) -> None:
    """Add independent Gaussian noise to every entry of sums of clipped gradients, in place.

    Guarantee:
        That of :class:`~sordino.privacy.guarantee.PoissonGaussianEvent` for one step, if these are
        sums of contributions of bounded norm over a Poisson sample; trust
        ``"central"``, caveat ``real-arithmetic``. The spend must already be on a ledger. Shown by
        tests/language/test_clipping.py.
    """
    # The noise is added in 64-bit floats. To round a sum before would let one unit move it by more
    # than the bound; to round what is noised is post-processing.
    # Source: Abadi et al. (2016), Algorithm 1.
    size, parts = positive("standard_deviation", standard_deviation), list[torch.Tensor]()
    for one in sums:
        if one.dtype != torch.float64:
            raise UsageError(
                f"Noise is added to sums in 64-bit floats, got {one.dtype}. Nothing was drawn."
            )
        parts += [part for part in one.view(-1).split(_CHUNK) if len(part)]
    # The operating system's generator is slow, and serves several threads at once. A seeded stream
    # is read in order.
    many = entropy.randomness == "system" and sum(map(len, parts)) > _CHUNK
    threads = min(_THREADS, os.cpu_count() or 1) if many else 1
    drawn: deque[Future[Sequence[np.ndarray]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        rest = iter(parts)
        for part in parts:
            new = islice(rest, 2 * threads - len(drawn))  # so much is kept in memory
            drawn.extend(pool.submit(_uniforms, entropy, len(one)) for one in new)
            # Two words give a length and an angle: two and a half times as fast as quantiles, which
            # is what counts where every weight of a model takes one in every step. None is beyond
            # 13.4, where a number of the normal law lies with chance 1e-40.
            # Source: Box, Muller (1958).
            uniform, angle = (torch.from_numpy(one).to(part) for one in drawn.popleft().result())
            length = uniform.log_().mul_(-2).clamp_(min=0).sqrt_()
            normals = torch.cat([length * angle.cos(), length * angle.sin()])
            part.add_(normals[: len(part)].mul_(size))


def _uniforms(entropy: Entropy, n: int) -> Sequence[np.ndarray]:
    """Return (n+1)//2 uniform numbers in (0, 1), and as many angles, from as many words."""
    words, turns = entropy.words(n + n % 2).reshape(2, -1)
    # With chance 2^-64 a word is 0, and where billions of numbers are drawn in every step the tail
    # that hangs on this one word is not negligible beside a δ: small words get 64 bits more behind
    # the point.
    uniform = words.astype(np.float64) + 0.5
    small = np.flatnonzero(words < _SMALL)
    if len(small):
        behind = (entropy.words(len(small)).astype(np.float64) + 0.5) * _PART
        uniform[small] = words[small].astype(np.float64) + behind
    return uniform * _PART, turns.astype(np.float64) * (2 * math.pi * _PART)


_UnitLosses: TypeAlias = Callable[[nn.Module, Sequence[Any]], torch.Tensor]
"""From a model and some units to the loss of each, shape (units,)."""

_UnitSums: TypeAlias = Callable[[Sequence[Any], float], list[torch.Tensor]]
"""From some units and a bound to the sum of their clipped gradients, tensor by tensor."""

_RTOL: Final = 1e-4
_SIZE: Final = 0.02  # of weights that are 0, while they are tested


class _Differences(NamedTuple):
    """What a test of sums shows, all of it over the bound."""

    gradients: float  # how far what a unit adds alone is from its clipped gradient by autograd
    partners: float  # how far the sum of several is from the sum of what each adds alone
    moved: float  # how far one unit moves the sum of others; 1 is permitted


def refuse_shared_gradients(
    model: nn.Module, losses: _UnitLosses, sums: _UnitSums, units: Sequence[Any]
) -> None:
    """Refuse to train where what is counted of a unit is not its own clipped gradient."""
    # Give it units that are nobody's: that training is refused would otherwise tell of those it was
    # tested on.
    found = differences(model, losses, sums, units)
    if found.gradients <= _RTOL and found.partners <= _RTOL and found.moved <= 1 + _RTOL:
        return  # NaN is no number that is small enough
    raise UsageError(
        "What is counted of a unit is not its own clipped gradient on this model, or depends on "
        f"who else is in a step (by more than {_RTOL:g} of the bound), so a unit could move a sum "
        "by more than the bound. Nothing was trained and nothing was spent. Switch "
        "gradient_checkpointing off, freeze layers that remember or that draw, or train adapters "
        "on linear layers."
    )


def differences(
    model: nn.Module, losses: _UnitLosses, sums: _UnitSums, units: Sequence[Any]
) -> _Differences:
    """Return how far sums of clipped gradients are from what they should be."""
    # Each unit is read alone, and in steps with others: the first one, which should be long, stands
    # in front of others, long and short, and behind them. Whatever remembers a text, draws, or
    # shares something between units shows then. Weights that are 0, such as those of a new head or
    # adapter, hide what is behind them; for the test they get small random values. Model,
    # gradients, modes and random state are left as they were.
    # Source: docs/language_models.md, "Norms of pairs".
    canary, *short = units
    others = [*short, canary, *short]
    with _left_alone(model), without_dropout(model):
        plain = []  # gradients as plain autograd finds them
        trained = [one for one in model.parameters() if one.requires_grad]
        for unit in units:
            losses(model, [unit]).sum().backward()
            found = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained]
            plain.append([one.double().cpu() for one in found])
            model.zero_grad(set_to_none=True)
        norms = [_norm(one) for one in plain]
        largest = max(norms)
        bound = largest / 2 if math.isfinite(largest) and largest > 0 else 1.0
        shares = [min(1.0, bound / norm) if norm > 0 else 1.0 for norm in norms]
        alone = [sums([unit], bound) for unit in units]
        without = sums(others, bound)
        steps = [sums([canary, *others], bound), sums([*others, canary], bound)]
    expected = [[share * one for one in each] for share, each in zip(shares, plain, strict=True)]
    rest = _added([*alone[1:], alone[0], *alone[1:]])
    whole = _added([alone[0], rest])
    gaps = [_gap(one, other) for one, other in zip(alone, expected, strict=True)]
    shared = [_gap(without, rest), *(_gap(one, whole) for one in steps)]
    moved = [_gap(one, without) for one in steps]
    finite = all(map(math.isfinite, [*gaps, *shared, *moved]))
    most = map(max, (gaps, shared, moved)) if finite else [math.nan] * 3
    return _Differences(*(one / bound for one in most))


def _added(sums: Sequence[list[torch.Tensor]]) -> list[torch.Tensor]:
    return [torch.stack([one.cpu() for one in each]).sum(0) for each in zip(*sums, strict=True)]


def _norm(gradient: Iterable[torch.Tensor]) -> float:
    return math.sqrt(sum(float(one.square().sum()) for one in gradient))


def _gap(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    return _norm(a.cpu() - b.cpu() for a, b in zip(one, other, strict=True))


@contextmanager
def _left_alone(model: nn.Module) -> Iterator[None]:
    """Give trained weights that are 0 small random values for a while, and put everything back."""
    before = [(one, one.grad) for one in model.parameters()]
    asleep = [one for one, _ in before if one.requires_grad and not bool(one.any())]
    cards = {one.device for one, _ in before if one.is_cuda}
    try:
        with torch.random.fork_rng(devices=list(cards)):
            torch.manual_seed(0)
            for one, _ in before:
                one.grad = None
            with torch.no_grad():
                for one in asleep:
                    one.normal_(std=_SIZE)
            yield
    finally:
        with torch.no_grad():
            for one in asleep:
                one.zero_()
        for one, gradient in before:
            one.grad = gradient


_BY_LENGTH: Final = ("longrope", "dynamic")
"""Codes of positions that depend on the longest row of a batch, or of all that was read before."""


def refuse_shared_lengths(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> None:
    """Refuse a model that cannot read every token, or reads texts by how long others are."""
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        raise UsageError(
            f"The tokenizer has {len(tokenizer)} tokens and the model {known}: a text with one of "
            "the others could not be read, and that a run fails would tell of it. Nothing was "
            "done. Resize the embeddings first (model.resize_token_embeddings)."
        )
    # One record would change what is computed of all others: of which each is clipped alone.
    config = model.config.get_text_config()
    if getattr(config, "attention_type", None) == "block_sparse":
        raise UsageError(
            "This model reads all texts in another way once it has read a short one. Nothing was "
            "done. Set attention_type='original_full' in its config."
        )
    for terms in _codes(getattr(config, "rope_parameters", None)):
        if terms.get("rope_type") in _BY_LENGTH:
            usual = terms.get("original_max_position_embeddings")
            most = getattr(config, "max_position_embeddings", None)
            safe = int(min(filter(None, (usual, most)), default=0))
            if max_length > safe:
                raise UsageError(
                    f"This model codes positions ({terms['rope_type']}) by the longest text of a "
                    f"batch, or before, if one has more than {safe} tokens: one long text changes "
                    "what is computed of others. Nothing was done. Set max_length to at most "
                    f"{safe} (of a sentence model its max_seq_length)."
                )


def _codes(found: object) -> Iterator[Mapping[str, Any]]:
    """Yield the codes of a model: one, or one for each kind of its layers."""
    if isinstance(found, Mapping):
        if "rope_type" in found:
            yield found
        for part in found.values():
            yield from _codes(part)


_WHOLE_MODELS = ("NO", "MULTI_CPU", "MULTI_GPU")
"""Ways of accelerate to run in which every process holds the whole model."""


def refuse_other_arithmetic(trainer: Trainer) -> None:
    """Refuse models in pieces, and arithmetic that is not tried here."""
    refuse_pieces(trainer)
    parts = trainer.accelerator
    halves = [
        name
        for name, one in trainer.model.named_parameters()
        if one.requires_grad and one.dtype != torch.float32
    ]
    around = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    try:  # products of 32-bit floats may be rounded more than these numbers are
        coarse = torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set by another name, as tf32=True does
        coarse = True
    if halves or around or coarse or parts.mixed_precision != "no":
        what = f"{halves[0]!r} is not in them" if halves else "16-bit or TF32 products are on"
        raise UsageError(
            f"Gradients are found in 32-bit floats, and {what}. Nothing was trained. Load the "
            "model in float32, and set torch.set_float32_matmul_precision('highest')."
        )


def refuse_pieces(trainer: Trainer) -> None:
    """Refuse several devices in one process, and models of which no process holds the whole."""
    if trainer.args.n_gpu > 1:
        raise UsageError(
            "A process clips gradients on one device, and there are several here. Nothing was "
            "trained. Show it one (CUDA_VISIBLE_DEVICES=0), or start one process for each "
            "(accelerate launch --num_processes N)."
        )
    parts = trainer.accelerator
    way = str(getattr(parts.distributed_type, "value", parts.distributed_type))
    cut = (
        trainer.is_fsdp_enabled
        or trainer.is_deepspeed_enabled
        or any(
            hasattr(one, "device_mesh")
            for one in trainer.model.parameters()  # on several devices
        )
    )
    if cut or trainer.args.fsdp or way not in _WHOLE_MODELS:
        raise UsageError(
            "This model is in pieces, or each process holds another part of it (FSDP, DeepSpeed, "
            "tensor parallel): the gradient of a unit would be clipped by parts. Nothing was "
            "trained. Supported are one process, and several that each hold the whole model: "
            "accelerate launch --num_processes N, without FSDP or DeepSpeed. Adapters "
            "(peft_config=) make larger models fit."
        )
