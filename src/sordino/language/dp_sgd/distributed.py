"""Several processes that train as one: who draws, who clips whom, and whose error is everybody's.

Every process holds all units and a copy of the model. The first one alone draws who takes part,
draws the noise, writes the ledger and the checkpoints; the others clip the gradients of their
share, and take its word for everything else.

What is kept from those who watch a trainer on raw pairs: pairs, losses, sizes and times.

Copies of one model in several processes: handed to transformers as they are, always the same.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

import numpy as np
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer

from sordino.errors import EngineError, PrivacyError, UsageError
from sordino.language.models.model_digests import weights_digest
from sordino.language.training.private_training import PrivateTraining

from .privacy_terms import CentralPrivacy
from .runs import CentralRun
from .unit_rows import UnitPairs

Result = TypeVar("Result")


@dataclass(frozen=True)
class Processes:
    """The processes that train one model together, as one of them sees them."""

    # With one process nothing here does anything but the work that it is given.

    number: int = 0  # which of them this is; 0 is the first
    count: int = 1  # how many there are

    @classmethod
    def here(cls) -> Processes:
        """Return the processes that ``torchrun`` or ``accelerate launch`` started with this one."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def is_first(self) -> bool:
        """Return whether this is the process that draws, pays and writes."""
        return self.number == 0

    @property
    def several(self) -> bool:
        """Return whether there are others."""
        return self.count > 1

    def share(self, numbers: Iterable[int]) -> list[int]:
        """The units that this process clips: theirs is decided by nothing but their number."""
        return [one for one in numbers if one % self.count == self.number]

    def from_first(self, what: str, work: Callable[[], Result]) -> Result:
        """Return what some work gives, done by the first process alone and told to all others."""
        if not self.several:
            return work()
        outcome = _tried(work) if self.is_first else None
        told = [None if outcome is None else (what, *outcome.portable())]
        with _heard():
            distributed.broadcast_object_list(told, src=0)
        place, *heard = cast("tuple[Any, ...]", told[0])
        if place != what:
            raise EngineError(
                f"The processes of this run are at different places: one at {what!r}, the first at "
                f"{place!r}. What was reserved stays on the ledger. Start all of them again."
            )
        own: _Outcome[Result] = outcome or _Outcome(*heard)
        return own.taken()

    def together(self, work: Callable[[], Result]) -> Result:
        """Return what some work gives, done by every process, if it succeeds in all of them."""
        # Nobody goes on before all are done. If it fails anywhere, the first failure is raised
        # everywhere: who went on alone would wait forever.
        outcome = _tried(work)
        if self.several:
            errors = dict(enumerate(self._gathered(outcome.portable()[1])))
            failed = next((number for number, error in errors.items() if error), self.number)
            if failed != self.number:
                raise errors[failed]
        return outcome.taken()

    def refuse_differences(self, **digests: str) -> None:
        """Refuse processes that do not see the same: no number and no digest is said."""
        if not self.several:
            return
        seen = self._gathered(digests)
        differ = [name for name in digests if len({one[name] for one in seen}) > 1]
        if differ:
            raise UsageError(
                f"The processes of this run see different {' and '.join(differ)}. It ends here, "
                "and nothing more was drawn. Give all of them the same model, pairs and settings."
            )

    def add_up(self, sums: Iterable[Any]) -> None:
        """Leave in every process the sums of all, in place."""
        if self.several:
            with _heard():
                for one in sums:
                    distributed.all_reduce(one)

    def copy_first(self, sums: Iterable[Any]) -> None:
        """Replace tensors in every process by those of the first, bit by bit."""
        if self.several:
            with _heard():
                for one in sums:
                    distributed.broadcast(one, src=0)

    def _gathered(self, one: Any) -> list[Any]:
        """Return what every process says, in the order of their numbers."""
        found: list[Any] = [None] * self.count
        with _heard():
            distributed.all_gather_object(found, one)
        return found


@dataclass(frozen=True)
class _Outcome(Generic[Result]):
    """What some work gave, or how it failed."""

    result: Result | None
    error: Exception | None = None

    def taken(self) -> Result:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return cast("Result", self.result)

    def portable(self) -> tuple[Result | None, Exception | None]:
        """Return both as another process can read them."""
        return self.result, None if self.error is None else _portable(self.error)


def _tried(work: Callable[[], Result]) -> _Outcome[Result]:
    """Return how some work went."""
    try:
        return _Outcome(work())
    except Exception as error:  # noqa: BLE001 (it is raised in every process)
        return _Outcome(None, error)


def _portable(error: Exception) -> Exception:
    """Return an error of the same type and message that another process can read."""
    try:
        same = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    except Exception:  # noqa: BLE001 (a foreign error may do anything)
        same = None
    if type(same) is type(error) and str(same) == str(error):
        return same
    return EngineError(f"Another process of this run failed: {type(error).__name__}: {error}")


@contextmanager
def _heard() -> Iterator[None]:
    """Say in our words that another process did not answer."""
    try:
        yield
    except RuntimeError as error:
        raise EngineError(
            "Another process of this run is gone, or did not answer in time. What was reserved "
            "stays on the ledger. Start all of them again, with resume_from_checkpoint=True if "
            "there is a checkpoint."
        ) from error


_LOGGED = ("learning_rate",)


class _Steps(IterableDataset[dict[str, Any]]):
    """One empty batch for every step: who takes part is drawn only after it is paid for."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield without end."""
        while True:
            yield {}


class SilentTraining(PrivateTraining):
    """A trainer that tells transformers, and through it the world, nothing of its data."""

    _run: CentralRun

    def get_train_dataloader(self) -> Any:
        """Return empty batches: pairs are never shuffled, counted, or handed to transformers."""
        return DataLoader(_Steps(), batch_size=None)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:  # noqa: ARG002
        """Return 0: how much was computed tells who took part."""
        return 0

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Refuse to measure."""
        raise PrivacyError(
            "A metric on raw pairs is a release of its own, and none is made here. Nothing was "
            "measured. Score public pairs with text_reward()."
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:  # noqa: ARG002
        """Log the learning rate and the privacy spent; no loss, and no time that was taken."""
        known = {name: logs[name] for name in _LOGGED if name in logs}
        if known:
            self.state.epoch = self.state.global_step / self.args.max_steps
            Trainer.log(self, {**known, "epsilon": self._run.spent})


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
        """Refuse several processes where one must do everything, or that transformers overlooks."""
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
        """Refuse processes with other weights, pairs or settings, and a model that was wrapped."""
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
    """Return what changes when a unit does; it is compared, and never written or shown."""
    # What the reference makes of a pair is left out: a process knows it of its own share alone.
    digest = hashlib.sha256()
    for unit in units:
        for pair in unit:
            sizes = [len(unit), len(pair.first), len(pair.second), *pair.answers]
            numbers = [*sizes, *pair.first, *pair.second]
            digest.update(np.asarray(numbers, np.int64).tobytes())
            digest.update(np.float64(pair.liked).tobytes())
    return digest.hexdigest()
