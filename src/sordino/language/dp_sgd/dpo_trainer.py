"""A policy straight from raw pairs: gradients of whole units are clipped, summed and noised.

The loss of direct preference optimization, unit by unit, by the model's own forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sordino.language.models.checkpoints import load_causal_model
from sordino.language.models.generation import Completions, answer_log_probabilities, evaluating
from sordino.language.models.model_digests import weights_digest
from sordino.language.models.trained_models import matching_tokenizer
from sordino.language.training.settings import own_settings
from sordino.preferences.pairs import Pairs
from sordino.privacy.ledger import Ledger

from .privacy_terms import CentralPrivacy
from .settings import CentralDPOConfig
from .training import CentralTraining
from .unit_rows import TokenPair, UnitPairs, preference_losses


def policy_losses(
    model: Any, units: Sequence[UnitPairs], *, temperature: float, padding: int
) -> Any:
    """Return the loss of every unit, shape (units,): the sum over its pairs."""
    # Source: Rafailov et al. (2023), equation 7: Σ softplus(Δ) − yΔ with Δ = temperature (there
    # called β) times the gap of the log ratios to the reference.
    pairs = [pair for unit in units for pair in unit]
    gaps = log_ratio_gaps(model, pairs, padding=padding)
    reference = torch.tensor([pair.reference for pair in pairs], dtype=gaps.dtype)
    return preference_losses(temperature * (gaps - reference.to(gaps.device)), units)


def log_ratio_gaps(model: Any, pairs: Sequence[TokenPair], *, padding: int) -> Any:
    """Return by how much likelier the first answer of each pair is, in nats, shape (pairs,)."""
    first = [(pair.first, pair.answers[0]) for pair in pairs]
    second = [(pair.second, pair.answers[1]) for pair in pairs]
    device = next(model.parameters()).device
    completions = _completions(first + second, padding)
    both = answer_log_probabilities(model, Completions(*(one.to(device) for one in completions)))
    one, other = both.chunk(2)
    return one - other


def with_reference(model: Any, units: Sequence[UnitPairs], *, padding: int) -> list[UnitPairs]:
    """Return the units with what the reference makes of their pairs, each of them read alone."""
    # Where the model has adapters, it counts as it is with them.

    def known(pair: TokenPair) -> TokenPair:
        """Return a pair with its gap: beside others it would be padded, and rounded otherwise."""
        return pair._replace(reference=float(log_ratio_gaps(model, [pair], padding=padding)))

    with torch.no_grad(), evaluating(model):
        return [tuple(known(pair) for pair in unit) for unit in units]


def _completions(rows: Sequence[tuple[list[int], int]], padding: int) -> Completions:
    """Return prompts, padded on the left, and answers, padded on the right."""
    prompts = [ids[: len(ids) - answer] for ids, answer in rows]
    answers = [ids[len(ids) - answer :] for ids, answer in rows]
    left, right = (max(map(len, some)) for some in (prompts, answers))
    return Completions(
        torch.tensor([[padding] * (left - len(ids)) + ids for ids in prompts]),
        torch.tensor([[0] * (left - len(ids)) + [1] * len(ids) for ids in prompts]),
        torch.tensor([ids + [padding] * (right - len(ids)) for ids in answers]),
        torch.tensor([[1] * len(ids) + [0] * (right - len(ids)) for ids in answers]),
    )


class CentralDPOTrainer(CentralTraining):
    """Trains a policy on raw pairs by DPO so that no record, or no person, shows in it.

    In every step units are drawn by a coin each, the gradient of each is clipped as a whole,
    Gaussian noise is added to the sum, and the sum is divided by a public number. What the
    reference makes of each answer is computed once, before the first step, and kept in memory.
    Units are read one at a time, so that nobody's gradient depends on another's.

    What a checkpoint takes is reserved on the ledger before its first step. A run that is killed
    goes on from its last checkpoint and pays for every step from there on anew. No loss and no
    metric is logged, and no row is written.

    Args:
        model: The folder of a causal model, or such a model, in 32-bit floats.
        reference: What the policy stays close to: a folder, a model, or the model as it is now
            if left out. It must not have been trained on the preferred answers alone.
        args: Settings; defaults if left out.
        train_dataset: Raw pairs of texts.
        privacy: What is promised, and what it takes.
        ledger: Its budget must be of the same unit and relation.
        processing_class: The tokenizer; the one in the model's folder if left out.
        peft_config: Adapters to train instead of the whole model; without them it is the
            reference.
        callbacks: As in transformers; they see noised gradients only.
        optimizers: An optimizer and a schedule, as in transformers.
        declare_unread: Whether you declare that nothing that training starts from has read these
            records before. It is needed where that is not known, and becomes a caveat.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: The ledger is about another unit or relation, or persons are not known; or a
            start has read these records, or nobody knows what it has read.
        UsageError: A setting, the model, the tokenizer or the pairs cannot be used.
        DataError: An answer is empty or longer than the model reads; which one is not said.
        FileSystemError: There is no such folder.

    Guarantee:
        What ``privacy`` says for a run that is not interrupted; after interruptions, what its
        entries on the ledger promise together, which every checkpoint carries. Unit and relation
        as in ``privacy``, trust ``"central"``, caveats ``real-arithmetic`` and ``timing``. What
        model and reference promise is added. Shown by tests/language/test_central_dpo.py.

    Source:
        Abadi et al. (2016), Algorithm 1, on the loss of Rafailov et al. (2023), equation 7;
        docs/language_models.md, "Norms of pairs".
    """

    kind = "policy"

    def __init__(  # noqa: PLR0913 (each is one choice of the user)
        self,
        model: Any,
        reference: Any = None,
        args: CentralDPOConfig | None = None,
        *,
        train_dataset: Pairs,
        privacy: CentralPrivacy,
        ledger: Ledger,
        processing_class: Any = None,
        peft_config: Any = None,
        callbacks: Sequence[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        declare_unread: bool = False,
        simulate_seed: int | None = None,
    ) -> None:
        """Set everything up; nothing is spent yet."""
        args = own_settings(args, CentralDPOConfig).with_steps(privacy.steps)
        policy = load_causal_model(model) if isinstance(model, str | Path) else model
        fixed = load_causal_model(reference) if isinstance(reference, str | Path) else reference
        tokenizer = matching_tokenizer(policy, processing_class)
        self._start(policy, args, tokenizer)
        promise = self._take(
            train_dataset,
            privacy,
            *(policy, fixed, tokenizer),
            ledger=ledger,
            simulate_seed=simulate_seed,
            declared=declare_unread,
        )
        start = policy if fixed is None else fixed
        self._ask_reference(start.to(args.device))
        self._open_run(
            promise,
            *(policy, fixed),
            loss="dpo",
            temperature=float(args.temperature),
            reference=weights_digest(start),
        )
        given = {"callbacks": list(callbacks or []), "optimizers": optimizers}
        self._set_up(policy, args, tokenizer, peft_config, **given)

    def _ask_reference(self, reference: Any) -> None:
        """Keep what the reference makes of the pairs of every unit that this process clips."""
        own = self._processes.share(range(len(self._units)))
        units = with_reference(
            reference,
            [self._units[number] for number in own],
            padding=self._tokens.tokenizer.pad_token_id,
        )
        for number, unit in zip(own, units, strict=True):
            self._units[number] = unit

    def _losses(self, model: Any, units: Sequence[UnitPairs]) -> Any:
        """Return the loss of every unit."""
        padding = self._tokens.tokenizer.pad_token_id
        return policy_losses(model, units, temperature=self.args.temperature, padding=padding)
