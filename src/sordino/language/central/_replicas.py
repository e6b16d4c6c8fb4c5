"""Copies of one model in several processes: handed to transformers as they are, always the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from sordino.errors import UsageError
from sordino.language.central._silence import SilentTraining
from sordino.language.central.privacy_terms import CentralPrivacy
from sordino.language.central.processes import Processes
from sordino.language.central.unit_rows import UnitPairs
from sordino.language.models._model_digests import weights_digest

__all__ = ["ReplicaTraining"]

Result = TypeVar("Result")

_OWN: Final = frozenset({
    *("output_dir", "run_name", "report_to", "disable_tqdm", "log_level", "log_level_replica"),
    *("local_rank", "per_device_eval_batch_size"),
})  # fmt: skip
"""Settings that a process may have for itself: they change no step."""


class ReplicaTraining(SilentTraining):
    """A trainer whose processes each hold the whole model, and take the same steps with it."""

    _privacy: CentralPrivacy
    _units: Any
    _seed: int | None
    _replicas = True  # whether several processes may train

    @property
    def _processes(self) -> Processes:
        """Return those that train together."""
        return Processes.here()

    def _by_first(self, what: str, work: Callable[[], Result]) -> Result:
        """Return what the first process gets from the ledger; all learn what is paid for now."""
        if not self._processes.several:
            return work()
        result, state = self._processes.from_first(what, lambda: (work(), self._run.state()))
        self._run.take(state)
        return result

    def _prepare_for_training(self, *given: Any, **named: Any) -> Any:
        """Hand the model over as it is: transformers would average gradients over processes."""
        prepare = self.accelerator.prepare_model
        if self._processes.several:
            self.accelerator.prepare_model = partial(prepare, evaluation_mode=True)
        try:
            return super()._prepare_for_training(*given, **named)
        finally:
            self.accelerator.prepare_model = prepare

    def _maybe_log_save_evaluate(self, *given: Any, **named: Any) -> None:
        """Log, save and stop where the first process does: callbacks may go by their own clocks."""
        self.control = self._processes.from_first("the end of a step", lambda: self.control)
        super()._maybe_log_save_evaluate(*given, **named)

    def _refuse_others(self) -> None:
        """Refuse several processes where one must do everything, or which transformers overlooks.

        Raises:
            UsageError: There are.
        """
        found = {self._processes.count, self.args.world_size, self.accelerator.num_processes}
        if len(found) > 1:
            raise UsageError(
                "Processes were joined after the settings were made. Nothing was trained. Start "
                "them with torchrun or accelerate launch, and let transformers join them."
            )
        if self._processes.several and not self._replicas:
            raise UsageError(
                "Answers and rewards of a batch are asked for by one process, and there are "
                "several here. Nothing was trained. Start one (without torchrun or accelerate "
                "launch)."
            )

    def _refuse_other_replicas(self, model: Any) -> None:
        """Refuse processes with other weights, pairs or settings, and a model that was wrapped.

        Raises:
            UsageError: There are, in every process.
        """
        if self._processes.several:
            self._processes.refuse_differences(
                **self._processes.together(lambda: self._seen(model))
            )

    def _seen(self, model: Any) -> dict[str, str]:
        """Return digests of what must be the same everywhere."""
        if model is not self.accelerator.unwrap_model(self.model):
            raise UsageError(
                f"The model is wrapped in {type(model).__name__}, which may average gradients over "
                "processes. Nothing was trained. Leave wrapping to the trainer."
            )
        return {
            "weights": weights_digest(model),
            "pairs": _units_digest(self._units),
            "settings": self._settings_digest(model),
        }

    def _settings_digest(self, model: Any) -> str:
        """Return what changes when a setting does that decides what a step is, and what it pays."""
        args = {name: one for name, one in self.args.to_dict().items() if name not in _OWN}
        training = {name: one for name, one in self._promise.training.items() if name != "run"}
        trained = [name for name, one in model.named_parameters() if one.requires_grad]
        known = [args, training, self._privacy.to_dict(), self._seed, trained]
        text = json.dumps(known, sort_keys=True, default=lambda one: type(one).__name__)
        return hashlib.sha256(text.encode()).hexdigest()


def _units_digest(units: Iterable[UnitPairs]) -> str:
    """Return what changes when a unit does; it is compared, and never written or shown.

    What the reference makes of a pair is left out: a process knows it of its own share alone.
    """
    digest = hashlib.sha256()
    for unit in units:
        for pair in unit:
            sizes = [len(unit), len(pair.first), len(pair.second), *pair.answers]
            numbers = [*sizes, *pair.first, *pair.second]
            digest.update(np.asarray(numbers, np.int64).tobytes())
            digest.update(np.float64(pair.liked).tobytes())
    return digest.hexdigest()
