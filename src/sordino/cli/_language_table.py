"""A comparison of policies across epsilons: what is asked, refused, planned and told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from sordino import _validate
from sordino._files import finite, refuse_existing
from sordino.errors import DataError, UsageError
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import never_less
from sordino.runs.progress import Bar
from sordino.runs.run import made_folder
from sordino.runs.settings import (
    Option,
    Paying,
    PrivacyOption,
    Reading,
    language_module,
    refuse_given,
)
from sordino.runs.tables import describe_promise, verdict_rows

from ._app import finish, grid
from ._language_run import Source
from ._language_study import (
    NON_PRIVATE,
    CentralRows,
    Releases,
    Study,
    refuse_reference,
    refuse_texts,
    unlinked,
)

_TITLE = "sordino language table"
_METHODS = ("dpo", "rebel")
_CENTRAL = (0.5, 2.0, 8.0)


def _are_usable(epsilons: Sequence[float]) -> bool:
    return len(set(epsilons)) == len(epsilons) and all(0 < each < math.inf for each in epsilons)


@dataclass(frozen=True, kw_only=True)
class Comparison(Paying, Reading):
    """What the user asked for; an interrupted study goes on if the same command is given again."""

    measures_tokens = True

    source: Source
    out: Annotated[Path, Option("Folder of the study.", metavar="DIR")]
    model: Annotated[
        Path | None, Option("Label-free checkpoint; a tiny one is built without.", metavar="DIR")
    ] = None
    quick: Annotated[bool, Option("A tiny model and few steps: minutes on two cores.")] = False
    seeds: Annotated[int | None, Option("Releases at each epsilon.", min=1)] = None
    epsilons: Annotated[str, PrivacyOption("Privacy losses, by commas.", metavar="LIST")] = (
        "0.1,0.5,2"
    )
    update: Annotated[str, Option("dpo, rebel or both, by commas.", metavar="LIST")] = "dpo"
    central_epsilon: Annotated[
        list[float] | None,
        PrivacyOption(
            "Privacy loss of one record in one run on raw judgments, whose gradients are clipped "
            "and noised; may be given several times. 0.5, 2 and 8 by default.",
            metavar="E",
        ),
    ] = None
    no_central: Annotated[bool, PrivacyOption("No rows on raw judgments.")] = False
    central_units: Annotated[
        float | None,
        PrivacyOption(
            "A public guess of how many records are learned from; by default their number, which "
            "the table tells.",
            metavar="N",
        ),
    ] = None
    declare_unread: Annotated[
        bool,
        PrivacyOption(
            "Declare that --model and --judge have read none of these records, where they do not "
            "say what they have read. Rows on raw judgments need it; their promise tells it."
        ),
    ] = False
    judge: Annotated[
        Path | None, Option("Reward that judges; by default one of half.", metavar="DIR")
    ] = None
    public_judge_half: Annotated[
        bool,
        PrivacyOption(
            "Half of the judgments may be used unprotected, to train the judge: the ledger records "
            "an infinite spend of that half, and its budget must allow it."
        ),
    ] = False
    non_private: Annotated[
        bool,
        PrivacyOption(
            "Also a row without privacy: the ledger then records an infinite spend. NOT PRIVATE."
        ),
    ] = False

    def rows(self) -> tuple[float, ...]:
        """Return the epsilons of the table, the infinite one last."""
        try:
            listed = [float(part) for part in self.epsilons.split(",")]
        except ValueError:
            listed = [math.nan]
        if not _are_usable(listed):
            raise UsageError(
                f"--epsilons must be different positive numbers with commas between, such as "
                f"0.1,0.5,2; got {self.epsilons!r}. Nothing was done."
            )
        return (*sorted(listed), *([NON_PRIVATE] if self.non_private else []))

    def central_rows(self) -> tuple[float, ...]:
        """Return the epsilons of rows on raw judgments; none if there are to be none."""
        if self.no_central:
            said = {
                "--central-epsilon": self.central_epsilon,
                "--central-units": self.central_units,
            }
            refuse_given(said, "--no-central leaves those rows out")
            return ()
        listed = self.central_epsilon or _CENTRAL
        if not _are_usable(listed):
            raise UsageError(
                f"--central-epsilon must be different positive numbers, got {list(listed)}. "
                "Nothing was done."
            )
        return tuple(sorted(listed))

    def methods(self) -> tuple[str, ...]:
        """Return how policies are trained."""
        parts = self.update.split(",")
        if len(set(parts)) < len(parts):
            raise UsageError(
                f"--update names a method twice: {self.update!r}. Nothing was done. Name each once."
            )
        return tuple(_validate.one_of("--update", part, _METHODS) for part in parts)

    def refuse_models(self, *, central: bool) -> None:
        """Refuse a comparison that nobody may judge, or that starts from what it must hide."""
        if (self.judge is None) != self.public_judge_half:
            raise UsageError(
                "A judge is needed whose judgments are not those that are protected. Nothing was "
                "done. Give one (--judge DIR), or say with --public-judge-half that half of the "
                "prompts of this file have judgments that may be used unprotected: the win rates "
                "tell about them, and the other half stays protected."
            )
        if central and self.model is None and self.judge is not None:
            raise UsageError(
                "Rows on raw judgments hide whole records, and a reference that is built from "
                "their texts gives words of every one away. Nothing was done. Give a checkpoint of "
                "other texts (--model DIR); or leave these rows out (--no-central)."
            )
        if self.model is not None:
            refuse_reference(self.model)


def compare(settings: Comparison) -> None:
    """Do the whole study, or say what it would spend."""
    if settings.resume and not (settings.out / "study.json").exists():
        raise UsageError(
            f"--resume: no study was begun in {settings.out.name}, so there is nothing to finish. "
            "Nothing was done."
        )
    epsilons, methods, central = settings.rows(), settings.methods(), settings.central_rows()
    settings.refuse_models(central=bool(central))
    settings.accepted((*epsilons, *central))  # refuses
    pairs = settings.read(settings.source)
    pairs.refuse_alone()
    if not isinstance(pairs, Pairs):
        raise DataError(
            "A comparison across epsilons needs raw judgments, and these are randomized already. "
            "Nothing was done. Train on them with sordino language dpo."
        )
    study = _study(settings, pairs, epsilons, methods, central)
    study.check(anew=settings.force)
    refuse_texts(study)
    if settings.dry_run:
        value = study.planned()
        rows, simulated = _planned_rows(value), study.simulated
        finish(_TITLE, rows, value, as_json=settings.as_json, simulated=simulated)
        return
    refuse_existing(settings.out / "table.json", force=settings.force, spends=True)
    with made_folder(settings.out), Bar.shown("Comparing") as bar:
        value = finite(study.run(progress=bar, force=settings.force))
    if not settings.as_json:
        _show(value)
    rows = verdict_rows(value) | _rows(value, settings.out)
    finish(_TITLE, rows, value, as_json=settings.as_json, simulated=study.simulated)


def _study(
    settings: Comparison,
    pairs: Pairs,
    epsilons: tuple[float, ...],
    methods: tuple[str, ...],
    central: tuple[float, ...],
) -> Study:
    tables, presets = (
        language_module("studies.comparison_table"),
        language_module("studies.pipeline"),
    )
    split = tables.split_by_prompt(pairs, judge=0.0 if settings.judge else 0.5)
    sizes = presets.QUICK if settings.quick else presets.FULL
    sizes = sizes if settings.model is None else sizes.for_checkpoint()
    learned, alone, held_out = split.learned, unlinked(pairs), set(split.held_out)
    common: dict[str, Any] = {
        "seeds": settings.seeds or sizes.seeds,
        "path": settings.ledger_path,
        # halves with names, for what is spent of the judge's is no spend of the other
        "data": f"{settings.data or 'preferences'}-training" if split.judge else settings.data,
        "request": settings.request,
        "simulate_seed": settings.simulate_seed,
    }
    rows = None
    if central:
        # A record that repeats a text of the judge's half, which is public, is left out by itself:
        # a reference that is built from that half has read it. Their number is public in a table.
        records = pairs.part(split.training)
        units = float(len(records)) if settings.central_units is None else settings.central_units
        if settings.model is None:
            read = language_module("references.texts").TextsRead
            records = records.part(read.of(pairs.part(split.judge)).unread(records))
        rows = CentralRows(
            pairs=records,
            epsilons=central,
            units=_validate.positive("--central-units", units),
            sizes=sizes.central,
            folder=settings.out / "runs",
            declare_unread=settings.declare_unread,
            accepted=settings.accepted(central),
            **common,
        )
    training = Releases(
        pairs=alone.part(learned),
        held_out=frozenset(at for at, row in enumerate(learned) if row in held_out),
        epsilons=epsilons,
        answers=settings.out / "answers",
        budget=settings.limits,
        accepted=settings.accepted(epsilons),
        central=rows,
        **common,
    )
    return Study(
        folder=settings.out,
        all_pairs=pairs,
        parts={name: part for name, part in split._asdict().items() if part},
        training=training,
        judge_pairs=alone.part(split.judge) if split.judge else None,
        judge=settings.judge,
        model=settings.model,
        methods=methods,
        sizes=sizes,
        data=settings.data or "preferences",
        central=rows,
    )


def _planned_rows(value: dict[str, Any]) -> dict[str, str]:
    judge, central = value["judge_spend"], value["central"]
    rows = {
        "would spend": f"{_size(value['spend'])} per label on {value['pairs']:,} judgments, all "
        f"releases together ({value['runs']} policies would be trained)"
    }
    if central is not None:
        cost = f"epsilon={never_less(central['spend'])}, delta={never_less(central['delta'])}"
        cost = f"{cost} per record ({central['neighbors']}): all {central['runs']} runs together"
        rows["on central rows"] = cost
    rows["on the judge"] = "nothing" if not judge else f"{_size(judge)} on {value['judge_pairs']:,}"
    return rows | {"touched": "nothing (dry run)"}


def _size(epsilon: float) -> str:
    """Return an epsilon, or that nothing is protected."""
    return "everything (NOT PRIVATE)" if math.isinf(epsilon) else f"epsilon={never_less(epsilon)}"


def _show(value: dict[str, Any]) -> None:
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
    """Return the closing summary; the promise of central rows is another one, never added up."""
    spent, promise, central = value["spent"], value["guarantee"], value["central"]
    rows = {
        "prompts": f"{value['prompts']:,} held out, judged by {value['judge']['name']}",
        "spent": "everything (NOT PRIVATE)"
        if spent is None
        else f"epsilon={never_less(spent)} per label: all rows together",
    }
    if promise is not None:
        rows["guarantee"] = describe_promise(promise)
    rows["caveats"] = ", ".join(value["caveats"]) or "none"
    if central is not None and central["guarantee"] is not None:
        rows["central rows"] = f"{describe_promise(central['guarantee'])}; all of them together"
        rows["their caveats"] = ", ".join(central["caveats"]) or "none"
    rows["written"] = f"table.json, table.md and curves.svg in {out.name}"
    if value["seconds"] is not None:
        rows["seconds"] = f"{value['seconds']:.0f}"
    return rows
