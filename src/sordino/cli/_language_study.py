"""A study of policies across epsilons, run by run; one that was interrupted goes on."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino import _random
from sordino._files import finite, read_json, to_json, write_json
from sordino._version import __version__
from sordino.cli._accounts import Budget, open_ledger, spending_limit
from sordino.cli._language_central_rows import CentralRows, central_labels
from sordino.cli._language_options import language_module
from sordino.cli._language_releases import Releases, labels_name
from sordino.cli._language_table_checks import judge_promise
from sordino.cli._language_table_notes import table_notes
from sordino.cli._run import publish
from sordino.errors import UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.preferences.pairs import Pairs
from sordino.privatization.unprotected import use_unprotected
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.reporting.training_curves import write_training_curves

__all__ = ["Study"]

_FORMAT, _VERSION = "sordino.language-table", 1
_RUN = "sordino.language-run"
_STUDY = "sordino.language-study"
_PROBLEM = "This study cannot be gone on with"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that a comparison needs.

    Attributes:
        folder: Where it is kept.
        all_pairs: Of all parts.
        parts: Row numbers of them by what they are for: training, held_out, judge.
        training: Judgments to learn from.
        judge_pairs: Judgments that may be used unprotected, to train the judge.
        judge: A judge that is there already.
        model: The label-free reference, or None to build one.
        methods: How policies are trained.
        sizes: Of everything.
        data: Name of the data set.
        central: Rows that learn from raw judgments, if there are any.
    """

    folder: Path
    all_pairs: Pairs
    parts: Mapping[str, Sequence[int]]
    training: Releases
    judge_pairs: Pairs | None
    judge: Path | None
    model: Path | None
    methods: tuple[str, ...]
    sizes: Any
    data: str
    central: CentralRows | None = None

    @property
    def reference_pairs(self) -> Pairs:
        """Return whose texts a tiny reference reads; no label of them.

        Rows on raw judgments hide whole records: the reference must not have read one of those.
        """
        if self.central is None:
            return self.all_pairs
        assert self.judge_pairs is not None  # noqa: S101 - for the type checker: it was refused
        return self.judge_pairs

    @property
    def simulated(self) -> bool:
        """Return whether a seed is behind the policies' labels, or behind the judge's."""
        judged = self.judge is not None and judge_promise(self.judge).simulated
        return judged or self.training.simulate_seed is not None

    @property
    def runs(self) -> list[tuple[str, float, int]]:
        """Return every run on randomized labels as (method, epsilon, seed); the reference has 0."""
        seeds = range(self.training.seeds)
        rows = [("reference", 0.0)]
        rows += [(method, each) for method in self.methods for each in self.training.epsilons]
        return [(method, epsilon, seed) for method, epsilon in rows for seed in seeds]

    def planned(self) -> dict[str, Any]:
        """Return what the study would spend."""
        judged = self.judge_pairs
        return {
            "spend": self.training.spend,
            "pairs": len(self.training.pairs),
            "judge_spend": 0.0 if judged is None else math.inf,
            "judge_pairs": 0 if judged is None else len(judged),
            "runs": len(self.runs) - self.training.seeds + len(self._central_runs),
            "spend_by_labels": {
                labels: math.fsum(each) for labels, each in self.training.of_labels.items()
            },
            "central": None if self.central is None else self.central.planned(),
            "simulated": self.simulated,
            "sizes": self.sizes.to_dict(),
        }

    @property
    def _central_runs(self) -> list[tuple[float, int]]:
        """Return every run on raw judgments as (epsilon, seed)."""
        return [] if self.central is None else self.central.runs

    def run(self, *, progress: Callable[[int, int], None], force: bool) -> dict[str, Any]:
        """Do what is left to do, write everything, and return what ``table.json`` holds."""
        started = _random.clock()
        self._begin(force=force)
        table = language_module("studies.comparison_table")
        alone = nullcontext if self.model else language_module("studies.comparison_runs").one_thread
        runs = []
        with alone():
            contest, judge = self._contest()
            left = len(self.runs) + len(self._central_runs)
            for asked in self.runs:
                runs.append(self._run(table.ComparisonRun, contest, *asked))
                progress(len(runs), left)
            for each in self._central_runs:
                runs.append(self._central_run(table.ComparisonRun, contest, *each))
                progress(len(runs), left)
        value = {
            "format": _FORMAT,
            "version": _VERSION,
            "sordino": __version__,
            **self._promised(),
            "central": None if self.central is None else self.central.promised(),
            "rows": self._costed(table.summary_rows(runs, self.training.of_labels)),
            "curves": table.learning_curves(runs),
            "judge": judge,
            "prompts": len(contest.prompts),
            "pairs": len(self.training.pairs),
            "held_out": len(self.training.held_out),
            "reference": "given" if self.model else "built",
            "simulated": self.simulated,
            "sizes": self.sizes.to_dict(),
            "seconds": self._seconds(started),
        }
        self._write(value, table)
        return value

    def _seconds(self, started: float) -> float | None:
        """Return how long it took; None where raw records were read, of which times tell."""
        return None if self.central is not None else round(_random.clock() - started, 1)

    def _begin(self, *, force: bool) -> None:
        """Write down what is studied, or check that it is the study that was begun here.

        Raises:
            UsageError: Another study was begun here.
        """
        path, wanted = self.folder / "study.json", self._settings()
        if force:
            for name in ("runs", "answers", "judge", "reference"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        elif path.exists():
            known = read_json(path, kind=_STUDY, version=_VERSION, problem=_PROBLEM)
            if known != wanted:
                raise UsageError(
                    f"{self.folder.name} holds another study, with other settings or of other "
                    "judgments. Nothing was done. Choose another folder, or pass --force to start "
                    "anew."
                )
            self._make_folders()
            return
        self._make_folders()
        write_json(path, wanted, force=True)

    def _make_folders(self) -> None:
        """Make the folders for what is kept between runs."""
        for name in ("runs", "answers"):
            (self.folder / name).mkdir(exist_ok=True)

    def _settings(self) -> dict[str, Any]:
        """Return everything public that a result depends on, but for where files lie."""
        digest = language_module("features.local_models").model_digest
        models = {"model": self.model, "judge": self.judge}
        return {
            "format": _STUDY,
            "version": _VERSION,
            "questions": self.all_pairs.public_digest,
            "data": self.data,
            "methods": list(self.methods),
            "epsilons": [labels_name(epsilon) for epsilon in self.training.epsilons],
            "seeds": self.training.seeds,
            "simulate_seed": self.training.simulate_seed,
            "central": None if self.central is None else self.central.settings(),
            "sizes": self.sizes.to_dict(),
            **{name: None if path is None else digest(path) for name, path in models.items()},
        }

    def _contest(self) -> tuple[Any, dict[str, Any]]:
        """Return what all runs share, and what is told of the judge."""
        reference = self.model or self._reference()
        folder = self.judge or self._trained_judge(reference)
        reward = language_module("rewards.text_rewards").TextRewardModel.load(folder)
        unique = language_module("studies.preference_split").unique_prompts
        prompts = self.training.pairs.prompts
        parts: tuple[list[Any], list[Any]] = ([], [])
        for row, prompt in enumerate(prompts):
            parts[row in self.training.held_out].append(prompt)
        contest = language_module("studies.comparison_runs").Contest(
            reference=reference,
            judge=language_module("judging.policy_comparison").RewardJudge(reward),
            prompts=unique(parts[True])[: self.sizes.prompts],
            trained_prompts=unique(parts[False]),
            sizes=self.sizes,
        )
        who = "a reward of yours" if self.judge else "a reward of the other half"
        told = {"name": who, "pairs": None if self.judge_pairs is None else len(self.judge_pairs)}
        return contest, {**told, **describe_guarantee_and_caveats(reward.guarantee)}

    def _reference(self) -> Path:
        """Return the tiny label-free model, built if it is not there yet."""
        folder, marker = self.folder / "reference", self.folder / "reference" / "built.json"
        if not marker.exists():
            losses = language_module("studies.pipeline").build_reference(
                self.reference_pairs, self.sizes.model, folder, steps=self.sizes.pretraining
            )
            write_json(marker, {"loss": losses[-1]})
        return folder

    def _trained_judge(self, reference: Path) -> Path:
        """Return the judge, trained on unprotected judgments if it is not there yet."""
        folder = self.folder / "judge"
        if not (folder / "training_log.json").exists():
            assert self.judge_pairs is not None  # noqa: S101 - for the type checker
            limit = spending_limit(math.inf, Budget(), unit="label", trust="central")
            path = self.folder / "judge.spend.db"
            ledger = open_ledger(path, f"{self.data}-judge", limit)
            private = use_unprotected(self.judge_pairs, NonPrivate(), ledger=ledger)
            language_module("studies.pipeline").train_reward(
                private, reference, folder, self.sizes.judge, uncertain=False
            )
        return folder

    def _run(self, kind: Any, contest: Any, method: str, epsilon: float, seed: int) -> Any:
        """Return one run: read if it was done before, else done and kept."""
        labels = "label-free" if method == "reference" else labels_name(epsilon)

        def made() -> Any:
            if method == "reference":
                return contest.baseline(seed)
            return contest.run(method, *self.training.paid_answers(epsilon, seed), seed=seed)

        path = self.folder / "runs" / f"{method}-{labels}-{seed}.json"
        return _once(path, kind, made, method=method, labels=labels, seed=seed)

    def _central_run(self, kind: Any, contest: Any, epsilon: float, seed: int) -> Any:
        """Return one run on raw judgments: read if it was done before, else done and kept."""
        rows = self.central
        assert rows is not None  # noqa: S101 - for the type checker: there is a run of it
        labels, path = central_labels(epsilon), rows.kept(epsilon, seed)

        def made() -> Any:
            return rows.run(contest, epsilon, seed)

        return _once(path, kind, made, method="dpo", labels=labels, seed=seed)

    def _costed(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return rows with what those on raw judgments cost, by the ledger."""
        if self.central is None:
            return rows
        return [row | self.central.costs(row["labels"]) for row in rows]

    def _promised(self) -> dict[str, Any]:
        """Return what the table as a whole promises: all releases on its ledger together."""
        total = self.training.open().total()
        if total is None:
            return {"spent": 0.0, "guarantee": None, "caveats": []}
        return {"spent": total.epsilon, **describe_guarantee_and_caveats(total)}

    def _write(self, value: dict[str, Any], table: Any) -> None:
        """Write the table and the curves."""
        path, simulated = self.folder / "curves.svg", self.simulated
        write_training_curves(path, value["curves"], force=True, simulated=simulated)
        lines = table.markdown_table(
            value["rows"], list(table_notes(value, seeds=self.training.seeds))
        )
        publish(
            self.folder,
            {"table.md": lines, "table.json": to_json(finite(value))},
            force=True,
        )


def _once(path: Path, kind: Any, made: Callable[[], Any], **named: Any) -> Any:
    """Return a run that was done before, or do it and keep it."""
    if path.exists():
        found = read_json(path, kind=_RUN, version=_VERSION, problem=_PROBLEM)
        return kind(**{name: found[name] for name in kind.__dataclass_fields__})
    run = kind(**named, **made())
    write_json(path, {"format": _RUN, "version": _VERSION, **run.to_dict()})
    return run
