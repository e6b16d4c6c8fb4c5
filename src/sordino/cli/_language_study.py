"""A study of policies across epsilons, run by run; one that was interrupted goes on.

Rows on randomized labels toss fresh coins for every epsilon and seed, each an entry on the ledger
that counts the project. So is every run that learns from raw judgments: those promise something to
whole records, which covers their labels, and the other rows to labels alone.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino import _random, _validate
from sordino._files import finite, read_json, to_json, write_json
from sordino._version import __version__
from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.mechanisms.randomized_response import NonPrivate, RandomizedResponse
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs, PrivatePairs, digest_of_answers
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.books import EVERY
from sordino.privacy.guarantee import (
    CAVEATS,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Event,
    Guarantee,
    Unit,
    never_less,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import event_of, request_of
from sordino.privatization.answers import privatize, use_unprotected
from sordino.reporting.curves import write_training_curves
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.reporting.result import judge as verdict_on
from sordino.reporting.wording import WORDS
from sordino.runs.run import (
    Limit,
    future_ledger,
    is_limited,
    open_ledger,
    promise_of_all,
    publish,
    spending_limit,
    with_spend,
)
from sordino.runs.settings import (
    DELTA,
    Budget,
    Option,
    Paying,
    PrivacyOption,
    Reading,
    language_module,
    refuse_options,
)

from ._language_run import Source, promised

if TYPE_CHECKING:
    from sordino.language.dp_sgd.privacy import CentralPrivacy
    from sordino.language.studies.comparison_table import ComparisonRun, PreferenceSplit
    from sordino.language.studies.pipeline import Contest, StudySizes

_METHODS = ("dpo", "rebel")
_CENTRAL = (0.5, 2.0, 8.0)
_SEEDS_APART = 10_000  # between the seeds of two epsilons
_MARGIN = 1 + 1e-6  # the search that fits a budget, and the sum, differ in their last digits
_PUBLIC = ("prompts", "answers", "number of judgments")  # which a table and its files tell of
_BELOW = 0.1  # of one over the number of records: a larger delta would permit to publish one
_FORMATS = {
    kind: {"format": f"sordino.{kind}", "version": 1}
    for kind in ("answers", "language-run", "language-study", "language-table")
}
_KEPT = {"label": "answers/", "record": "runs/dpo-central-"}  # what is paid for once
_WORK = ".run-"  # folders of policies whose runs are not kept yet
_PROBLEM = "This study cannot be gone on with"
_JUDGES = spending_limit(math.inf, Budget(), unit="label")
"""What is spent of judgments that are used unprotected, and the limit of a new ledger on it."""


def _different(name: str, listed: Sequence[float], usual: str, said: object) -> tuple[float, ...]:
    """Return epsilons in order; refuse none, one that is there twice, and one that is no loss."""
    if not listed or len({*listed}) < len(listed) or not all(0 < e < math.inf for e in listed):
        raise UsageError(
            f"{name} must be different positive numbers {usual}; got {said!r}. Nothing was done."
        )
    return tuple(sorted(listed))


@dataclass(frozen=True, kw_only=True)
class Comparison(Paying, Reading):
    """What the user asked for; an interrupted study goes on if the same command is given again."""

    title = "sordino language table"
    measures_tokens = True

    source: Source
    out: Path = Option("Folder of the study.", required=True, metavar="DIR")
    model: Path | None = Option(
        "Label-free checkpoint; a tiny one is built without.", metavar="DIR"
    )
    quick: bool = Option("A tiny model and few steps: minutes on two cores.", False)
    seeds: int | None = Option("Releases at each epsilon.", min=1)
    epsilons: str = PrivacyOption("Privacy losses, by commas.", "0.1,0.5,2", metavar="LIST")
    update: str = Option("dpo, rebel or both, by commas.", "dpo", metavar="LIST")
    central_epsilon: list[float] | None = PrivacyOption(
        "Privacy loss of one record in one run on raw judgments, whose gradients are clipped "
        "and noised; may be given several times. 0.5, 2 and 8 by default.",
        metavar="E",
    )
    no_central: bool = PrivacyOption("No rows on raw judgments.", False)
    declare_unread: bool = PrivacyOption(
        "Declare that --model and --judge have read none of these records, where they do not "
        "say what they have read. Rows on raw judgments need it; their promise tells it.",
        False,
    )
    judge: Path | None = Option("Reward that judges; by default one of half.", metavar="DIR")
    public_judge_half: bool = PrivacyOption(
        "Half of the judgments may be used unprotected, to train the judge: the ledger records "
        "an infinite spend of that half, and its budget must allow it.",
        False,
    )
    non_private: bool = PrivacyOption(
        "Also a row without privacy: the ledger then records an infinite spend. NOT PRIVATE.", False
    )

    @cached_property
    def losses(self) -> dict[Unit, tuple[float, ...]]:
        """Return the epsilons of rows by what they hide; the infinite one of labels comes last."""
        listed: list[float] = []
        with suppress(ValueError):
            listed = [float(part) for part in self.epsilons.split(",")]
        usual = "with commas between, such as 0.1,0.5,2"
        labels = _different("--epsilons", listed, usual, self.epsilons)
        records: tuple[float, ...] = ()
        if self.no_central:
            why = "--no-central leaves those rows out"
            refuse_options(self, why, "central_epsilon")
        else:
            known = self.central_epsilon or _CENTRAL
            records = _different("--central-epsilon", known, "such as 0.5", list(known))
        return {"label": (*labels, *([math.inf] if self.non_private else [])), "record": records}

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Return how policies are trained."""
        parts = self.update.split(",")
        if len(set(parts)) < len(parts):
            raise UsageError(
                f"--update names a method twice: {self.update!r}. Nothing was done. Name each once."
            )
        return tuple(_validate.one_of("--update", part, _METHODS) for part in parts)

    def refuse(self) -> None:
        """Refuse what cannot be, a judge that nobody may use, and a start that tells judgments."""
        if self.resume and not (self.out / "study.json").exists():
            raise UsageError(
                f"--resume: no study was begun in {self.out.name}, so there is nothing to finish. "
                "Nothing was done."
            )
        _ = self.methods
        central = self.losses["record"]
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
            checkpoints = language_module("models.checkpoints")
            folder = checkpoints.checkpoint_folder(self.model, kinds=checkpoints.CAUSAL)
            if language_module("models.promises").folder_promises(folder):
                raise PrivacyError(
                    f"{folder.name} was trained on judgments: it carries a promise about them, "
                    "which no row of a table would count. Nothing was done. Give the label-free "
                    "checkpoint that it was trained from."
                )
        self.accepted((*self.losses["label"], *central))  # refuses


def _labels_name(epsilon: float, unit: Unit = "label") -> str:
    """Return what a row of this epsilon is called: different epsilons differ in their names."""
    if math.isinf(epsilon):
        return "non-private"
    short = f"{epsilon:g}"
    name = f"epsilon={short if float(short) == epsilon else repr(epsilon)}"
    return f"central, {name}" if unit == "record" else name


@dataclass(frozen=True, kw_only=True)
class Study:
    """Judgments in parts, and what is trained on them, paid for and kept."""

    settings: Comparison
    pairs: Pairs  # of all parts
    parts: PreferenceSplit  # row numbers of them by what they are for
    sizes: StudySizes  # of everything
    records: Pairs | None  # raw judgments to learn from, on which nothing is measured; if any
    held: ExitStack = field(default_factory=ExitStack, repr=False)  # what ends with the study

    @classmethod
    def of(cls, settings: Comparison, pairs: Pairs) -> Study:
        """Return the study of some judgments."""
        tables = language_module("studies.comparison_table")
        presets = language_module("studies.pipeline")
        parts = tables.split_by_prompt(pairs, judge=0.0 if settings.judge else 0.5)
        sizes = presets.QUICK if settings.quick else presets.FULL
        sizes = sizes if settings.model is None else sizes.for_checkpoint()
        records = None
        if settings.losses["record"]:
            # A record that repeats a text of the judge's half, which is public, is left out by
            # itself: a reference that is built from that half has read it. Their number is public
            # in a table.
            records = pairs.part(parts.training)
            if settings.model is None:
                read = language_module("references.texts").TextsRead
                records = records.part(read.of(pairs.part(parts.judge)).unread(records))
        return cls(settings=settings, pairs=pairs, parts=parts, sizes=sizes, records=records)

    # Who is in which part.

    def _unlinked(self, rows: Sequence[int]) -> Pairs:
        """Return some judgments without person ids, so that every release tosses anew."""
        # With ids an answer that a person gave before would be repeated, and seeds share coins.
        return replace(self.pairs, persons=None).part(rows)

    @cached_property
    def training(self) -> Pairs:
        """Return the judgments whose labels are randomized, the held-out ones among them."""
        return self._unlinked(self.parts.learned)

    @cached_property
    def judged(self) -> Pairs | None:
        """Return judgments that may be used unprotected, to train the judge."""
        return self._unlinked(self.parts.judge) if self.parts.judge else None

    @cached_property
    def halves(self) -> tuple[list[int], list[int]]:
        """Return which rows of the first are trained on, and which are held out."""
        apart = set(self.parts.held_out)
        found: tuple[list[int], list[int]] = ([], [])
        for at, row in enumerate(self.parts.learned):
            found[row in apart].append(at)
        return found

    @property
    def reference_pairs(self) -> Pairs:
        """Return whose texts a tiny reference reads; no label of them."""
        # Rows on raw judgments hide whole records: the reference must not have read one of those.
        return self.pairs if self.records is None or self.judged is None else self.judged

    @property
    def simulated(self) -> bool:
        """Return whether a seed is behind the policies' labels, or behind the judge's."""
        judge = self.settings.judge
        judged = judge is not None and promised(judge).guarantee.simulated
        return bool(judged) or self.settings.simulate_seed is not None

    # What is paid for.

    @property
    def seeds(self) -> int:
        """Return how many releases, or runs, there are at each finite epsilon."""
        return self.settings.seeds or self.sizes.seeds

    @property
    def units(self) -> float:
        """Return how many records there are to learn from, which the table tells."""
        return float(len(self.parts.training))

    @property
    def delta(self) -> float:
        """Return the failure probability of one run on raw judgments, and of all together."""
        return min(DELTA, _BELOW / self.units)

    def privacy(self, epsilon: float) -> CentralPrivacy:
        """Return the public settings of one run on raw judgments."""
        sizes = self.sizes.central
        batch = min(float(sizes.expected_batch), self.units)
        privacy: CentralPrivacy = language_module("dp_sgd.privacy").CentralPrivacy(
            epsilon,
            self.delta,
            unit="record",
            neighbors=REPLACE_SPECIAL,
            sampling_probability=batch / self.units,
            steps=sizes.steps,
            expected_batch=batch,
            clip=sizes.clip,
        )
        return privacy

    def payment(self, unit: Unit, epsilon: float) -> tuple[Event, Guarantee]:
        """Return what is paid for at once: coins on all labels, or one run on raw judgments."""
        drawn = self.settings.simulate_seed
        if unit == "record":
            privacy = self.privacy(epsilon)
            return privacy.event(privacy.steps), privacy.promise(drawn)
        once = math.isinf(epsilon)
        coin = NonPrivate() if once else RandomizedResponse(epsilon)
        promise = coin.guarantee(unit=unit, neighbors=REPLACE_ONE, trust="central")
        entropy = promise.randomness if once else _random.entropy(drawn).randomness
        return coin.event, replace(promise, randomness=entropy)

    def times(self, epsilon: float) -> int:
        """Return how often that is paid for; what protects nobody once."""
        return 1 if math.isinf(epsilon) else self.seeds

    def events(self, unit: Unit) -> Counter[Event]:
        """Return what releases do, and how many of them there are."""
        losses = self.settings.losses[unit]
        return Counter({self.payment(unit, each)[0]: self.times(each) for each in losses})

    @property
    def of_labels(self) -> dict[str, list[float]]:
        """Return the epsilon of every release behind each kind of labels."""
        losses = self.settings.losses["label"]
        return {_labels_name(each): [each] * self.times(each) for each in losses}

    @property
    def spend(self) -> float:
        """Return what all releases of labels cost one label together."""
        return float(never_less(math.fsum(chain(*self.of_labels.values())), 12))

    def record_epsilon(self, events: Mapping[Event, int]) -> float:
        """Return what some runs on raw judgments cost one record together."""
        return composed_epsilon(events, neighbors=REPLACE_SPECIAL, delta=self.delta)

    @cached_property
    def limits(self) -> dict[Unit, Limit]:
        """Return the limits of a new ledger: of labels, which rows on records spend too, first."""
        labels, records, own = self.events("label"), self.events("record"), self.settings.limits
        if not records:
            return {"label": spending_limit(self.spend, own, unit="label")}
        terms: dict[str, Any] = {"trust": "central", "delta": self.delta}
        spend = composed_epsilon(labels | records, neighbors=REPLACE_ONE, delta=self.delta)
        whole, relation = self.record_epsilon(records) * _MARGIN, REPLACE_SPECIAL
        return {
            "label": spending_limit(spend * _MARGIN, own, unit="label", **terms),
            "record": spending_limit(whole, Budget(), unit="record", neighbors=relation, **terms),
        }

    def data(self, half: str = "training") -> str | None:
        """Return the name of a half on the ledger; None where its questions say which it is."""
        # halves with names, for what is spent of the judge's is no spend of the other
        name = self.settings.data
        return f"{name or 'preferences'}-{half}" if self.parts.judge else name

    def ledger(self, unit: Unit = "label") -> Ledger:
        """Return the ledger; a new one has a limit for each unit."""
        path, data = self.settings.ledger_path, self.data()
        if not is_limited(path):
            for limit in self.limits.values():
                Ledger.open(path, data=data or EVERY, budget=limit.budget.of(limit.run))
        ledger = open_ledger(path, data, self.limits[unit])
        ledger.accepted = self.settings.accepted(self.settings.losses[unit])
        return ledger

    def part(self, labels: str, seed: int = 0) -> str:
        """Return the name by which one release finds what was paid for it before."""
        return request_of({"study": self.settings.request, "labels": labels, "seed": seed})

    def coins(self, unit: Unit, epsilon: float, seed: int) -> int | None:
        """Return the seed of what is drawn for study, if there is one."""
        start = self.settings.simulate_seed
        apart = seed + _SEEDS_APART * self.settings.losses[unit].index(epsilon)
        return None if start is None else start + apart

    def check(self) -> None:
        """Refuse what the ledger has not enough left for, and texts; nothing is touched."""
        settings, anew = self.settings, self.settings.force
        ledger = future_ledger(settings.ledger_path, self.data(), *self.limits.values())
        for unit in self.limits:
            if unit == "record":
                ledger = ledger.with_rows(ledger.rows, self.data() or EVERY, unit)
            ledger.accepted = settings.accepted(settings.losses[unit])
            for epsilon in settings.losses[unit]:
                what, place = self.payment(unit, epsilon), _KEPT[unit]
                asked = self.training.questions if unit == "label" else None
                kept = settings.out / f"{place}{_labels_name(epsilon)}"
                for seed in range(self.times(epsilon)):
                    if anew or not kept.with_name(f"{kept.name}-{seed}.json").exists():
                        part = self.part(_labels_name(epsilon, unit), seed)
                        ledger = with_spend(ledger.continuing(part), *what, questions=asked)
        done = (settings.out / "judge" / "training_log.json").exists() and not anew
        if self.judged is not None and not done:
            ledger = future_ledger(settings.ledger_path, self.data("judge"), _JUDGES)
            ledger = ledger.continuing(self.part("judge"))
            asked = self.judged.questions
            with_spend(ledger, NonPrivate().event, _JUDGES.run, questions=asked)
        self._refuse_texts()

    def _refuse_texts(self) -> None:
        """Refuse a judge and texts that a comparison would stumble over; no label is read."""
        fitting, sizes, model = language_module("studies.pipeline"), self.sizes, self.settings.model
        longest = max(sizes.max_new_tokens, sizes.policy.max_new_tokens)
        starts: list[Any] = []
        if model is None:
            tokens = fitting.planned_tokens(self.reference_pairs, sizes.model, sizes.dpo)
        else:
            tokens = fitting.checkpoint_tokens(model, sizes.dpo, writes=True)
            writer = language_module("models.checkpoints").load_causal_model(model)
            starts += [writer, tokens.tokenizer]  # which say what they have read
        if longest >= tokens.max_length:
            raise UsageError(
                f"The model reads {tokens.max_length} tokens, and answers of up to {longest} are "
                "drawn from it: no prompt would be left. Nothing was done. Choose a model that "
                "reads more."
            )
        kept = set(tokens.pairs(self.pairs)[2])
        for name, rows in self.parts._asdict().items():
            if rows and kept.isdisjoint(rows):
                raise DataError(
                    f"None of the {len(rows)} pairs of the part {name!r} has answers that fit the "
                    f"{tokens.max_length} tokens that the model reads. Nothing was done. Choose a "
                    "model that reads more."
                )
        if self.settings.judge is not None:
            judge = language_module("rewards.text_rewards").TextRewardModel.load(
                self.settings.judge
            )
            for row in self.parts.held_out:  # a template may refuse
                judge.can_read(self.pairs.prompts[row], self.pairs.first[row])
            starts += [judge.model, judge.tokenizer]
        if self.records is not None:
            read, declared = language_module("references.texts").TextsRead, self.settings
            read.on(*starts).caveats(read.of(self.records), declared=declared.declare_unread)

    def planned(self) -> dict[str, Any]:
        """Return what the study would spend."""
        settings, central = self.settings, None
        records = self.events("record")
        noise = {_labels_name(each): self.privacy(each) for each in settings.losses["record"]}
        if noise:
            central = {
                "spend": self.record_epsilon(records),
                "delta": self.delta,
                "unit": "record",
                "neighbors": REPLACE_SPECIAL.name,
                "units": self.units,
                "runs": records.total(),
                "noise_multipliers": {n: one.noise_multiplier for n, one in noise.items()},
            }
        policies = len(settings.methods) * len(settings.losses["label"]) * self.seeds
        return {
            "spend": self.spend,
            "pairs": len(self.training),
            "judge_spend": 0.0 if self.judged is None else math.inf,
            "judge_pairs": 0 if self.judged is None else len(self.judged),
            "runs": policies + records.total(),
            "spend_by_labels": {name: math.fsum(each) for name, each in self.of_labels.items()},
            "central": central,
            "simulated": self.simulated,
            "sizes": self.sizes.to_dict(),
        }

    # How it runs.

    def run(self, *, progress: Callable[[int, int], None]) -> dict[str, Any]:
        """Do what is left to do, write everything, and return what ``table.json`` holds."""
        settings, started = self.settings, _random.clock()
        self._begin()
        table = language_module("studies.comparison_table")
        alone = nullcontext if settings.model else language_module("studies.pipeline").one_thread
        rows: list[tuple[str, Unit, float]] = [("reference", "label", 0.0)]
        rows += [(how, "label", e) for how in settings.methods for e in settings.losses["label"]]
        rows += [("dpo", "record", epsilon) for epsilon in settings.losses["record"]]
        runs, jobs = [], [(*row, seed) for row in rows for seed in range(self.seeds)]
        with self.held, alone():
            contest, judge = self._contest()
            for method, unit, epsilon, seed in jobs:
                labels = _labels_name(epsilon, unit) if epsilon else "label-free"
                name = f"{method}-{labels.replace(', ', '-')}-{seed}.json"
                named = {"method": method, "labels": labels, "seed": seed}
                fare = partial(self._fared, contest, method, unit, epsilon, seed)
                runs.append(_once(settings.out / "runs" / name, named, fare))
                progress(len(runs), len(jobs))
            for left in settings.out.glob(f"{_WORK}*"):
                shutil.rmtree(left, ignore_errors=True)
        account, central = self.ledger(), None
        if self.records is not None:
            spent = _spent(self.ledger("record"), self.events("record"), self.delta)
            central = {"units": self.units, "public": list(_PUBLIC), **spent}
        value = {
            **_FORMATS["language-table"],
            "sordino": __version__,
            **_spent(account, self.events("label"), 0.0),
            "accounts": {unit: held.to_dict() for unit, held in account.accounts().items()},
            "central": central,
            "rows": [
                row | self._costs(row["labels"]) for row in table.summary_rows(runs, self.of_labels)
            ],
            "curves": table.learning_curves(runs),
            "judge": judge,
            "prompts": len(contest.prompts),
            "pairs": len(self.training),
            "held_out": len(self.halves[1]),
            "reference": "given" if settings.model else "built",
            "simulated": self.simulated,
            "sizes": self.sizes.to_dict(),
            # where raw records were read, a time would tell of them
            "seconds": None if central else round(_random.clock() - started, 1),
        }
        value = {"verdict": verdict_on(value), **value}
        curves = settings.out / "curves.svg"
        write_training_curves(curves, value["curves"], force=True, simulated=self.simulated)
        lines = table.markdown_table(value["rows"], list(table_notes(value, seeds=self.seeds)))
        files = {"table.md": lines, "table.json": to_json(finite(value))}
        publish(settings.out, files, force=True)
        return value

    @contextmanager
    def _fared(
        self, contest: Contest, method: str, unit: Unit, epsilon: float, seed: int
    ) -> Iterator[dict[str, Any]]:
        """Yield how a policy fares; what it learns from is paid for before it is drawn."""
        if not epsilon:
            yield {"win": contest.fared(contest.reference, seed), "curve": []}
            return
        if unit == "label":
            yield contest.run(method, *self._answers(epsilon, seed), seed=seed)
            return
        pipeline, terms = language_module("studies.pipeline"), self.sizes.central.terms
        named, ledger = self.part(_labels_name(epsilon, unit), seed), self.ledger(unit)
        place = self.settings.out / f"{_WORK}{named[:16]}"  # until it is known how it fares
        with ledger.attempt(named):
            if not (place / pipeline.TRAINING_LOG).exists():
                pipeline.train(
                    "policy",
                    self.records,
                    contest.reference,
                    place,
                    replace(terms, seed=seed),
                    privacy=self.privacy(epsilon),
                    ledger=ledger,
                    declare_unread=self.settings.declare_unread,
                    simulate_seed=self.coins(unit, epsilon, seed),
                )
            yield {"win": contest.fared(place, seed), "curve": []}
        shutil.rmtree(place, ignore_errors=True)

    @cached_property
    def _unprotected(self) -> PrivatePairs:
        """Return labels that protect nobody: kept nowhere, and paid for once, with any seed."""
        ledger = self.ledger()
        self.held.enter_context(ledger.attempt(self.part(_labels_name(math.inf))))
        return use_unprotected(self.training, NonPrivate(), ledger=ledger)

    def _answers(self, epsilon: float, seed: int) -> list[PrivatePairs]:
        """Return training and held-out answers of one release, which is paid for first."""
        if math.isinf(epsilon):
            return list(map(self._unprotected.part, self.halves))
        coin, name = RandomizedResponse(epsilon), _labels_name(epsilon)
        kept, ledger = self.settings.out / "answers" / f"{name}-{seed}.json", self.ledger()
        if not kept.exists():
            with ledger.attempt(self.part(name, seed)):
                coins = self.coins("label", epsilon, seed)
                private = privatize(self.training, coin, ledger=ledger, simulate_seed=coins)
                told = {  # without questions, which are in the user's file
                    **describe_guarantee_and_caveats(private.guarantee),
                    "release_ids": list(private.release_ids),
                    "artifact": private.artifact,
                    "answers": private.answers.tolist(),
                }
                write_json(kept, _FORMATS["answers"] | told)
        problem = "The answers of an earlier release cannot be used"
        found = read_json(kept, kind="sordino.answers", version=1, problem=problem)
        try:
            private = PrivatePairs(
                **{at: getattr(self.training, at) for at in Comparisons.__dataclass_fields__},
                answers=np.array(found["answers"]),
                flip_probability=coin.flip_probability,
                guarantee=Guarantee.from_dict(found["guarantee"], found["caveats"]),
                release_ids=tuple(found["release_ids"]),
                artifact=found["artifact"],
            )
        except (SordinoError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{problem}: {kept.name} is malformed.") from error
        if digest_of_answers(private.public_digest, private.answers) != private.artifact:
            raise DataError(f"{problem}: {kept.name} is of other questions, or was changed.")
        return list(map(private.part, self.halves))

    def _costs(self, labels: str) -> dict[str, Any]:
        """Return what a row on raw judgments cost by the ledger, interrupted runs among it."""
        for epsilon in self.settings.losses["record"]:
            if _labels_name(epsilon, "record") == labels:
                event, _ = self.payment("record", epsilon)
                paid = sum(event_of(row) == event for row in self.ledger("record").spends)
                return {
                    "unit": "record",
                    "delta": self.delta,
                    "releases": paid,
                    "epsilon_of_one_release": epsilon,
                    "epsilon_of_all_releases": self.record_epsilon({event: paid}),
                }
        return {}

    def _begin(self) -> None:
        """Write down what is studied, or check that it is the study that was begun here."""
        settings, digest = self.settings, language_module("embeddings").model_digest
        models, central = {"model": settings.model, "judge": settings.judge}, None
        if self.records is not None:
            epsilons = list(settings.losses["record"])
            central = {"epsilons": epsilons, "units": self.units, "delta": self.delta}
        # everything public that a result depends on, but for where files lie
        wanted = {
            **_FORMATS["language-study"],
            "questions": self.pairs.public_digest,
            "data": settings.data or "preferences",
            "methods": list(settings.methods),
            "epsilons": [_labels_name(epsilon) for epsilon in settings.losses["label"]],
            "seeds": self.seeds,
            "simulate_seed": settings.simulate_seed,
            "central": central,
            "sizes": self.sizes.to_dict(),
            **{name: None if path is None else digest(path) for name, path in models.items()},
        }
        path = settings.out / "study.json"
        if settings.force:
            for name in ("runs", "answers", "judge", "reference"):
                shutil.rmtree(settings.out / name, ignore_errors=True)
        elif path.exists():
            kind = str(wanted["format"])
            if read_json(path, kind=kind, version=1, problem=_PROBLEM) != wanted:
                raise UsageError(
                    f"{settings.out.name} holds another study, with other settings or of other "
                    "judgments. Nothing was done. Choose another folder to start anew, which "
                    "spends anew."
                )
        for name in ("runs", "answers"):
            (settings.out / name).mkdir(exist_ok=True)
        if settings.force or not path.exists():
            write_json(path, wanted, force=True)

    def _contest(self) -> tuple[Contest, dict[str, Any]]:
        """Return what all runs share, and what is told of the judge."""
        pipeline, settings = language_module("studies.pipeline"), self.settings
        reference, judge = settings.model, settings.judge
        if reference is None:
            reference = settings.out / "reference"
            if not (reference / "built.json").exists():
                losses = pipeline.build_reference(
                    self.reference_pairs, self.sizes.model, reference, steps=self.sizes.pretraining
                )
                write_json(reference / "built.json", {"loss": losses[-1]})
        if judge is None:
            judge = settings.out / "judge"
            if not (judge / "training_log.json").exists():
                assert self.judged is not None  # noqa: S101 - for the type checker
                self.ledger()  # a new ledger has a limit for each unit
                ledger = open_ledger(settings.ledger_path, self.data("judge"), _JUDGES)
                with ledger.attempt(self.part("judge")):
                    private = use_unprotected(self.judged, NonPrivate(), ledger=ledger)
                    terms = self.sizes.judge
                    pipeline.train("reward", private, reference, judge, terms, uncertain=False)
        reward = language_module("rewards.text_rewards").TextRewardModel.load(judge)
        unique = language_module("studies.comparison_table").unique_prompts
        prompts = self.training.prompts
        trained, asked = (unique([prompts[row] for row in rows]) for rows in self.halves)
        contest: Contest = pipeline.Contest(
            reference=reference,
            judge=language_module("judging").RewardJudge(reward),
            prompts=asked[: self.sizes.prompts],
            trained_prompts=trained,
            sizes=self.sizes,
        )
        who = "a reward of yours" if settings.judge else "a reward of the other half"
        told = {"name": who, "pairs": None if self.judged is None else len(self.judged)}
        return contest, {**told, **describe_guarantee_and_caveats(reward.guarantee)}


def _once(
    path: Path, named: dict[str, Any], fare: Callable[[], AbstractContextManager[dict[str, Any]]]
) -> ComparisonRun:
    """Return a run that was done before, or do it and keep it."""
    kind: type[ComparisonRun] = language_module("studies.comparison_table").ComparisonRun
    if path.exists():
        kept = read_json(path, kind="sordino.language-run", version=1, problem=_PROBLEM)
        return kind(**{name: kept[name] for name in kind._fields})
    with fare() as found:  # what was paid for it is forgotten only when it is kept
        run = kind(**named, **found)
        write_json(path, _FORMATS["language-run"] | run._asdict())
    return run


def _spent(ledger: Ledger, events: Collection[Event], delta: float) -> dict[str, Any]:
    """Return what a study's rows promise: all entries like its own, those of killed runs too."""
    rows = [row for row in ledger.spends if row.unit == ledger.unit and event_of(row) in events]
    if not rows:
        return {"spent": 0.0, "guarantee": None, "caveats": []}
    total = promise_of_all(rows, delta)
    return {"spent": total.epsilon, **describe_guarantee_and_caveats(total)}


def table_notes(value: dict[str, Any], *, seeds: int) -> Iterator[str]:
    """Yield what stands below the table."""
    judge, central, of_labels = value["judge"], value["central"], value["guarantee"]
    said, several = WORDS["comparison"], seeds > 1
    if value["simulated"]:
        yield said["simulated"]
    yield said["win_rate"].format(value["prompts"])
    if value["reference"] == "built":
        yield said["built"].format(said["whole_file" if central is None else "judges_half"])
    if several:
        yield said["intervals"].format(seeds)
    if judge["pairs"] is None:
        yield f"The judge's labels: {Guarantee.from_dict(judge['guarantee'], judge['caveats'])}."
    else:
        yield said["judge"].format(judge["pairs"])
    if several:
        yield said["releases"].format(seeds)
    if len({row["method"] for row in value["rows"]} - {"reference"}) > 1:
        yield said["methods"]
    if of_labels is not None:
        total = Guarantee.from_dict(of_labels, value["caveats"])
        others = "" if central is None else ", without the central rows"
        yield said["together"].format(never_less(total.epsilon), others, total)
        yield from (f"`{name}`: {CAVEATS[name]}" for name in total.caveats)
    yield said["accuracy"]
    if central is None:
        return
    yield said["central"].format(said["runs"].format(seeds) if several else "")
    if central["guarantee"] is not None:
        total = Guarantee.from_dict(central["guarantee"], central["caveats"])
        yield said["all_central"].format(total, value["accounts"]["label"]["says"])
        mine = (name for name in total.caveats if name not in value["caveats"])
        yield from (f"`{name}`: {CAVEATS[name]}" for name in mine)
    yield said["read_none"]
    yield said["no_accuracy"]
