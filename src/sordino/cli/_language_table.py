"""``sordino language table``: policies across epsilons, compared with their reference.

A comparison of policies across epsilons: what is asked, refused, planned and told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino import _validate
from sordino._files import finite, refuse_existing
from sordino.errors import DataError, UsageError
from sordino.preferences.pairs import Pairs, read_pairs
from sordino.privacy.guarantee import never_less
from sordino.privatization.answers import FileSettings

from . import _language_options as chosen
from . import _options as options
from ._accounts import Budget
from ._app import Bar, finish, grid
from ._language_options import language_module
from ._language_study import (
    NON_PRIVATE,
    CentralRows,
    Releases,
    Study,
    refuse_reference,
    refuse_texts,
    unlinked,
)
from ._run import made_folder
from ._settings import refuse_given
from ._tables import describe_promise

_TITLE = "sordino language table"
_METHODS = ("dpo", "rebel")
_CENTRAL = (0.5, 2.0, 8.0)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the user asked for; the names are those of the options."""

    source: Path
    out: Path
    model: Path | None
    quick: bool
    seeds: int | None
    epsilons: str
    update: str
    central_epsilons: tuple[float, ...]
    no_central: bool
    central_units: float | None
    central_budget: Budget
    declare_unread: bool
    judge: Path | None
    public_judge_half: bool
    non_private: bool
    data: str
    budget: Budget
    settings: FileSettings
    simulate_seed: int | None
    force: bool

    def rows(self) -> tuple[float, ...]:
        """Return the epsilons of the table, the infinite one last."""
        try:
            found = [float(part) for part in self.epsilons.split(",")]
        except ValueError:
            found = [math.nan]
        wrong = len(set(found)) < len(found) or any(not 0 < each < math.inf for each in found)
        if wrong:
            raise UsageError(
                f"--epsilons must be different positive numbers with commas between, such as "
                f"0.1,0.5,2; got {self.epsilons!r}. Nothing was done."
            )
        return (*sorted(found), *([NON_PRIVATE] if self.non_private else []))

    def central_rows(self) -> tuple[float, ...]:
        """Return the epsilons of rows on raw judgments; none if there are to be none."""
        if self.no_central:
            said = {
                "--central-epsilon": self.central_epsilons or None,
                "--central-units": self.central_units,
                "--central-budget": self.central_budget.epsilon,
                "--central-budget-delta": self.central_budget.delta,
            }
            refuse_given(said, "--no-central leaves those rows out")
            return ()
        found = self.central_epsilons or _CENTRAL
        if len(set(found)) < len(found) or any(not 0 < each < math.inf for each in found):
            raise UsageError(
                f"--central-epsilon must be different positive numbers, got {list(found)}. Nothing "
                "was done."
            )
        return tuple(sorted(found))

    def methods(self) -> tuple[str, ...]:
        """Return how policies are trained."""
        parts = self.update.split(",")
        if len(set(parts)) < len(parts):
            raise UsageError(
                f"--update names a method twice: {self.update!r}. Nothing was done. Name each once."
            )
        return tuple(_validate.one_of("--update", part, _METHODS) for part in parts)

    def refuse_judge(self) -> None:
        """Refuse a comparison that nobody judges, or of which nobody said who may."""
        if (self.judge is None) != self.public_judge_half:
            raise UsageError(
                "A judge is needed whose judgments are not those that are protected. Nothing was "
                "done. Give one (--judge DIR), or say with --public-judge-half that half of the "
                "prompts of this file have judgments that may be used unprotected: the win rates "
                "tell about them, and the other half stays protected."
            )

    def refuse_start(self, central: tuple[float, ...]) -> None:
        """Refuse rows that hide whole records where the reference would be made from them."""
        if central and self.model is None and self.judge is not None:
            raise UsageError(
                "Rows on raw judgments hide whole records, and a reference that is built from "
                "their texts gives words of every one away. Nothing was done. Give a checkpoint of "
                "other texts (--model DIR); or leave these rows out (--no-central)."
            )


def run_comparison(asked: Comparison, *, dry_run: bool, as_json: bool) -> None:
    """Do the whole study, or say what it would spend."""
    epsilons, methods = asked.rows(), asked.methods()
    central = asked.central_rows()
    asked.refuse_judge()
    asked.refuse_start(central)
    if asked.model is not None:
        refuse_reference(asked.model)
    pairs = _judgments(asked)
    study = _study(asked, pairs, epsilons, methods, central)
    study.training.check(anew=asked.force)
    if study.central is not None:
        study.central.check(anew=asked.force)
    refuse_texts(study)
    if dry_run:
        value = study.planned()
        rows, simulated = _planned_rows(value), study.simulated
        finish(_TITLE, rows, value, as_json=as_json, simulated=simulated)
        return
    refuse_existing(asked.out / "table.json", force=asked.force)
    with made_folder(asked.out), Bar.shown("Comparing") as bar:
        value = finite(study.run(progress=bar, force=asked.force))
    if not as_json:
        _show(value)
    rows = _rows(value, asked.out)
    finish(_TITLE, rows, value, as_json=as_json, simulated=study.simulated)


def _judgments(asked: Comparison) -> Pairs:
    """Return raw judgments."""
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            asked.source,
            drop_identical=asked.settings.drop_identical,
            person_field=asked.settings.person_field,
            progress=bar,
        )
    if not isinstance(pairs, Pairs):
        raise DataError(
            "A comparison across epsilons needs raw judgments, and these are randomized already. "
            "Nothing was done. Train on them with sordino language dpo."
        )
    return pairs


def _study(
    asked: Comparison,
    pairs: Pairs,
    epsilons: tuple[float, ...],
    methods: tuple[str, ...],
    central: tuple[float, ...],
) -> Study:
    """Return the study: judgments in parts, sizes, and where everything is kept."""
    split_by_prompt = language_module("studies.comparison_table").split_by_prompt
    split = split_by_prompt(pairs, judge=0.0 if asked.judge else 0.5)
    presets = language_module("studies.comparison")
    sizes = presets.QUICK if asked.quick else presets.FULL
    sizes = sizes if asked.model is None else sizes.for_checkpoint()
    learned, alone = split.learned, unlinked(pairs)
    held_out = set(split.held_out)
    training = Releases(
        pairs=alone.part(learned),
        held_out=frozenset(at for at, row in enumerate(learned) if row in held_out),
        epsilons=epsilons,
        seeds=asked.seeds or sizes.seeds,
        path=asked.out / "training.spend.db",
        data=f"{asked.data}-training",
        answers=asked.out / "answers",
        budget=asked.budget,
        simulate_seed=asked.simulate_seed,
    )
    return Study(
        folder=asked.out,
        all_pairs=pairs,
        parts={name: rows for name, rows in split._asdict().items() if rows},
        training=training,
        judge_pairs=alone.part(split.judge) if split.judge else None,
        judge=asked.judge,
        model=asked.model,
        methods=methods,
        sizes=sizes,
        data=asked.data,
        central=_central(asked, pairs, split, central, training.seeds, sizes),
    )


def _central(
    asked: Comparison, pairs: Pairs, split: Any, epsilons: tuple[float, ...], seeds: int, sizes: Any
) -> CentralRows | None:
    """Return the rows on raw judgments, if there are any; their number is public in a table."""
    # A record that repeats a text of the judge's half, which is public, is left out by itself: a
    # reference that is built from that half has read it.
    if not epsilons:
        return None
    training = pairs.part(split.training)
    units = float(len(training)) if asked.central_units is None else asked.central_units
    read = language_module("references.texts").TextsRead
    if asked.model is None:
        training = training.part(read.of(pairs.part(split.judge)).unread(training))
    return CentralRows(
        pairs=training,
        epsilons=epsilons,
        seeds=seeds,
        units=_validate.positive("--central-units", units),
        sizes=sizes.central,
        folder=asked.out / "runs",
        path=asked.out / "central.spend.db",
        data=f"{asked.data}-training",
        declare_unread=asked.declare_unread,
        budget=asked.central_budget,
        simulate_seed=asked.simulate_seed,
    )


def _planned_rows(value: dict[str, Any]) -> dict[str, str]:
    """Return what a dry run has to say."""
    spend = value["spend"]
    judge = value["judge_spend"]
    return {
        "would spend": f"{_size(spend)} per label on {value['pairs']:,} judgments, all releases "
        f"together ({value['runs']} policies would be trained)",
        **_planned_central(value["central"]),
        "on the judge": "nothing" if not judge else f"{_size(judge)} on {value['judge_pairs']:,}",
        "touched": "nothing (dry run)",
    }


def _planned_central(planned: dict[str, Any] | None) -> dict[str, str]:
    """Return what central rows would spend."""
    if planned is None:
        return {}
    cost = f"epsilon={never_less(planned['spend'])}, delta={never_less(planned['delta'])}"
    runs = f"all {planned['runs']} runs together, on a ledger of their own"
    return {"on central rows": f"{cost} per record ({planned['neighbors']}): {runs}"}


def _size(epsilon: float) -> str:
    """Return an epsilon, or that nothing is protected."""
    return "everything (NOT PRIVATE)" if math.isinf(epsilon) else f"epsilon={never_less(epsilon)}"


def _show(value: dict[str, Any]) -> None:
    """Print the table."""
    columns = (
        "method", "one release", "win rate [95 %]", "at equal length", "seeds", "all releases"
    )  # fmt: skip
    table = language_module("studies.comparison_table")
    rows = [
        [
            row["method"],
            row["labels"],
            table.describe_share(row["win_rate"]),
            table.describe_share(row["length_matched"]),
            str(row["seeds"]),
            table.describe_cost(row),
        ]
        for row in value["rows"]
    ]
    grid("win rate against the reference", columns, rows)


def _rows(value: dict[str, Any], out: Path) -> dict[str, str]:
    """Return the closing summary."""
    spent = value["spent"]
    promise = value["guarantee"]
    return {
        "prompts": f"{value['prompts']:,} held out, judged by {value['judge']['name']}",
        "spent": "everything (NOT PRIVATE)"
        if spent is None
        else f"epsilon={never_less(spent)} per label: all rows together",
        **({} if promise is None else {"guarantee": describe_promise(promise)}),
        "caveats": ", ".join(value["caveats"]) or "none",
        **_central_lines(value["central"]),
        "written": f"table.json, table.md and curves.svg in {out.name}",
        **({} if value["seconds"] is None else {"seconds": f"{value['seconds']:.0f}"}),
    }


def _central_lines(central: dict[str, Any] | None) -> dict[str, str]:
    """Return the promise of central rows, which is another one: nothing is added up."""
    if central is None or central["guarantee"] is None:
        return {}
    return {
        "central rows": f"{describe_promise(central['guarantee'])}; all of them together",
        "their caveats": ", ".join(central["caveats"]) or "none",
    }


def table(
    source: chosen.Pairs,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the study.")],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="DIR", help="Label-free checkpoint; a tiny one is built without."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny model and few steps: minutes on two cores.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Releases at each epsilon.")
    ] = None,
    epsilons: Annotated[
        str, typer.Option("--epsilons", metavar="LIST", help="Privacy losses, by commas.")
    ] = "0.1,0.5,2",
    update: Annotated[
        str,
        typer.Option("--update", metavar="LIST", help="dpo, rebel or both, by commas."),
    ] = "dpo",
    central_epsilon: Annotated[
        list[float] | None,
        typer.Option(
            "--central-epsilon",
            metavar="E",
            help="Privacy loss of one record in one run on raw judgments, whose gradients are "
            "clipped and noised; may be given several times. 0.5, 2 and 8 by default.",
        ),
    ] = None,
    no_central: Annotated[
        bool, typer.Option("--no-central", help="No rows on raw judgments.")
    ] = False,
    central_units: Annotated[
        float | None,
        typer.Option(
            "--central-units",
            metavar="N",
            help="A public guess of how many records are learned from; by default their number, "
            "which the table tells.",
        ),
    ] = None,
    central_budget: Annotated[
        float | None,
        typer.Option(
            "--central-budget",
            metavar="EPSILON",
            help="Like --budget, for the ledger of the runs on raw judgments. A run that was "
            "interrupted is paid for again.",
        ),
    ] = None,
    declare_unread: Annotated[
        bool,
        typer.Option(
            "--declare-unread",
            help="Declare that --model and --judge have read none of these records, where they do "
            "not say what they have read. Rows on raw judgments need it; their promise tells it.",
        ),
    ] = False,
    central_budget_delta: Annotated[
        float | None,
        typer.Option(
            "--central-budget-delta",
            metavar="DELTA",
            help="Like --budget-delta, for the ledger of the runs on raw judgments.",
        ),
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option("--judge", metavar="DIR", help="Reward that judges; by default one of half."),
    ] = None,
    public_judge_half: Annotated[
        bool,
        typer.Option(
            "--public-judge-half",
            help="Half of the judgments may be used unprotected, to train the judge: an infinite "
            "spend, recorded on a ledger of its own.",
        ),
    ] = False,
    non_private: Annotated[
        bool,
        typer.Option(
            "--non-private",
            help="Also a row without privacy: the other half's ledger then records an infinite "
            "spend. NOT PRIVATE.",
        ),
    ] = False,
    data: options.Data = "preferences",
    budget: options.Budget = None,
    budget_delta: options.BudgetDelta = None,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    simulate_seed: options.Seed = None,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare policies across epsilons: win rates against the reference, and training curves."""
    # An interrupted study goes on where it stopped if the same command is given again.
    asked = Comparison(
        source=source,
        out=out,
        model=model,
        quick=quick,
        seeds=seeds,
        epsilons=epsilons,
        update=update,
        central_epsilons=tuple(central_epsilon or ()),
        no_central=no_central,
        central_units=central_units,
        declare_unread=declare_unread,
        central_budget=Budget(central_budget, central_budget_delta),
        judge=judge,
        public_judge_half=public_judge_half,
        non_private=non_private,
        data=data,
        budget=Budget(budget, budget_delta),
        settings=FileSettings(drop_identical=drop_identical, person_field=person_field),
        simulate_seed=simulate_seed,
        force=force,
    )
    run_comparison(asked, dry_run=dry_run, as_json=as_json)
