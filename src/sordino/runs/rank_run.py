"""A private leaderboard from votes, as one call: plan, account, release, fit, publish.

``sordino rank`` and :func:`sordino.rank` are the same run. Noise is drawn once, on a sum of labels
or on every label; ratings, intervals, ranks and the history of the board follow for nothing.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from jaxtyping import Int64

from sordino import _random, _validate
from sordino._files import finite, to_json
from sordino.certificates import certify_paid, paid_guarantee
from sordino.errors import PrivacyError, SordinoError, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.label_sum import LabelGaussian, SumMechanism, growth
from sordino.mechanisms.ranking_sum import BallotGaussian
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunks, find_chunks
from sordino.preferences.comparisons import STYLE, ItemDifferences, Questions
from sordino.preferences.files import kind_of
from sordino.preferences.pairs import Pairs, PrivatePairs, Randomized, read_pairs
from sordino.preferences.rankings import BALLOTS, PrivateChoices, Rankings, Slates
from sordino.preferences.schemas import CHOICES, PAIRS
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, GaussianEvent, size
from sordino.privacy.ledger import Charged, Ledger
from sordino.privacy.ledger_chain import digest_of_json, event_of
from sordino.privatization.randomization import refuse_unlinked
from sordino.reporting.leaderboard import board_table
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.label_release import Judged, new_votes, plan_updates, promise_of
from sordino.rewards.leaderboard import BOARD, POINTS, Board, BoardRelease, Leaderboard
from sordino.rewards.metrics import REACH
from sordino.rewards.ranking_fit import terms_of_ballots
from sordino.rewards.release_checks import record_promise
from sordino.rewards.vote_release import (
    Boards,
    record_mechanism,
    release_ballots,
    release_votes,
    votes_of_answers,
    votes_of_choices,
)

from .align_labels import Randomizing
from .align_run import certified_files
from .align_settings import Delta, Epsilon, Offered, Relation, WhichUnit
from .alignment import Outcome, perform_call
from .progress import Bar
from .run import FolderRun, Limit, Run, quiet, refuse_randomized, spending_limit
from .settings import (
    Argument,
    Cap,
    FitOption,
    IntoFolder,
    ManyFiles,
    PrivacyOption,
    Unit,
    answers_of_study,
    refuse_given,
    refuse_records,
    refuse_relation,
)
from .tables import impossible

_NOISES: Final = ("auto", "labels", "estimate")
_TIES: Final = ("davidson", "half")
_EVEN = 0.25  # variance of a vote between equals


@dataclass(frozen=True, kw_only=True)
class Rank(Offered, IntoFolder, ManyFiles):
    """What the user chose for one board; None where an option was left out."""

    title = "sordino rank"

    votes: list[Path] = Argument(
        "Votes: two names and a winner, or a tie, with or without texts; thumbs of named "
        "answers; ballots over items, full or short, also of PrefLib; randomized answers with "
        "names, or the TOML file of the study that collects them. Files, or folders of them.",
        metavar="DATA...",
    )
    noise: str = PrivacyOption(
        "Where the noise is: on every single vote, or on one sum of them that a curator "
        "releases. auto takes the kind with the smaller foreseen error of ratings.",
        "auto",
        choices=_NOISES,
    )
    epsilon: Epsilon = None
    delta: Delta = None
    unit: WhichUnit = Unit.label
    cap: Cap = None
    neighbors: Relation = None
    items: str | None = FitOption(
        "The names that the board has, separated by commas, or a file with one in each line. "
        "Needed with --unit record, where it is private who met; else those in the votes.",
        metavar="NAMES|FILE",
    )
    ties: str | None = FitOption(
        "A tie is an outcome of its own (Davidson's model), whose number is released with the "
        "sum at no further cost; or half a win for both. davidson where it can be.",
        choices=_TIES,
    )
    groups: str | None = FitOption(
        "A public column, such as a category or a language: each of its values gets a board "
        "too. Half of what is spent is for the board of all, half for the groups.",
        metavar="COLUMN",
    )
    style: str | None = FitOption(
        "Hold the style of the two answers apart from who gave them: all, or some of "
        f"{','.join(STYLE)}.",
        metavar="all|NAME,...",
    )
    anchor: str | None = FitOption(
        "An item and its points, such as NAME=1000; by default the mean has 1000.",
        metavar="NAME=POINTS",
    )
    update: Path | None = FitOption(
        "A board of earlier votes (its folder, or its leaderboard.json), to which these are "
        "added; the new one has the history of both.",
        metavar="BOARD",
    )
    updates: int | None = FitOption(
        "How many updates are planned in all. Their noise is correlated, so that it hardly "
        "grows, and epsilon is for all of them; each gets all votes so far.",
        min=2,
    )

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        if self.epsilon is not None:
            _validate.telling("--epsilon", self.epsilon)
        _validate.failure_probability("--delta", self.failure, zero=False)
        _ = self.styles, self.anchored, self.declared_items, self.offered
        if self.unit is not Unit.person:
            refuse_given({"--cap": self.cap}, "A cap is for --unit person")
        elif self.updates is not None and self.cap is None:
            raise UsageError(
                "--updates with --unit person needs --cap, the most votes of one person that count "
                "in each update. Nothing was done. Give it, the same in all of them."
            )
        if self.hides_texts:
            if self.noise == "labels":
                refuse_records(self.unit)
            refuse_given(
                {"--groups": self.groups, "--style": self.style, "--updates": self.updates},
                "with --unit record no column of a vote is public, nor which update it is of",
            )
            if self.declared_items is None:
                raise UsageError(
                    "--unit record hides which items met, so a board cannot take them from the "
                    "votes. Nothing was done. Say which there are: --items NAMES or FILE."
                )
        else:
            refuse_relation(self.neighbors)
        if self.noise == "labels":
            refuse_given(
                {"--ties davidson": self.ties == "davidson", "--groups": self.groups},
                "a vote that is randomized by itself is a win or a loss, and a tie a fair coin "
                "before; --noise estimate counts ties, and makes boards of groups",
            )
            refuse_given(
                {"--updates": self.updates},
                "votes that are randomized by themselves add up over updates as if all had come at "
                "once, so no noise can be saved",
            )
        self.refuse_folder()

    @property
    def reading(self) -> dict[str, Any]:
        """Return how votes are read, with the column of groups if there is one."""
        told = super().reading
        if self.groups is not None:
            told["columns"] = {**(told["columns"] or {}), "family": self.groups}
        return told

    @property
    def asked(self) -> tuple[Path | None, ...]:
        """Return the files beside the votes that decide what is released."""
        return (*super().asked, None if self.update is None else _board_path(self.update))

    @property
    def styles(self) -> tuple[str, ...]:
        """Return which columns of style stand beside the items."""
        if self.style is None:
            return ()
        names = tuple(STYLE) if self.style == "all" else tuple(self.style.split(","))
        if not {*names} <= {*STYLE}:
            raise UsageError(
                f"--style must be all, or some of {', '.join(STYLE)}, got {self.style!r}. Nothing "
                "was done."
            )
        return names

    @property
    def anchored(self) -> tuple[str, float] | None:
        """Return the item whose points are fixed, and these."""
        if self.anchor is None:
            return None
        name, _, points = self.anchor.rpartition("=")
        try:
            return name or points, float(points) if name else 1000.0
        except ValueError:
            raise UsageError(
                f"--anchor must be NAME=POINTS, got {self.anchor!r}. Nothing was done."
            ) from None

    @cached_property
    def declared_items(self) -> tuple[str, ...] | None:
        """Return the names that the user declared."""
        if self.items is None:
            return None
        path = Path(self.items)
        named = path.read_text("utf-8").splitlines() if path.is_file() else self.items.split(",")
        found = tuple(name.strip() for name in named if name.strip())
        if len(set(found)) < max(2, len(found)):
            raise UsageError(
                "--items must be at least two names, each once, separated by commas, or a file "
                "with one in each line. Nothing was done."
            )
        return found

    @property
    def of_ballots(self) -> Rank:
        """Return the same settings for ballots; refuse what is not known of them."""
        if self.hides_texts:
            raise UsageError(
                "--unit record would hide what a ballot was offered, and how sure a rating is "
                "depends on it. Nothing was done. Use --unit label, or --unit person."
            )
        why = "ballots are one sum of how they compare the items that they were offered"
        davidson, labels = self.ties == "davidson", self.noise == "labels"
        columns = {"--groups": self.groups, "--style": self.style, "--updates": self.updates}
        refuse_given(columns | {"--ties davidson": davidson, "--noise labels": labels}, why)
        return replace(self, noise="estimate", ties="half")

    @property
    def counts_ties(self) -> bool:
        """Return whether ties are counted, and not half a win for both."""
        return self.noise != "labels" and self.ties != "half"


def _board_path(path: Path) -> Path:
    return path / BOARD if path.is_dir() else path


@dataclass(frozen=True, kw_only=True)
class _RankRun(FolderRun):
    """A run on votes, wherever its noise is: what differs is how they are released."""

    settings: Rank
    votes: Pairs | PrivatePairs | Chunks | Rankings | PrivateChoices
    started: float  # when, by the clock of `_random`
    source: Path | None = None  # the file of votes that arrived private
    earlier: Board | None = None  # to which the new votes are added
    # How many updates ago each vote was new, where noise is correlated over updates.
    ages: Int64[np.ndarray, " n"] | None = None
    left_out: int = 0  # how many votes were on the board already
    survey: ChunkSurvey | None = None  # all that is public of many files, once it was read
    foreseen: Mapping[str, Any] | None = None  # of each kind of noise, where a plan shows it

    @property
    def request(self) -> str | None:
        """Return the name of the run; votes in memory have none that another run could give."""
        return self.settings.request if self.settings.votes else None

    @abstractmethod
    def released(self, ledger: Ledger) -> Charged[Boards]:
        """Spend, and return what was released, with what it promises."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Return the mechanism as results tell it."""

    @abstractmethod
    def widening(self) -> tuple[float, float]:
        """Return by what a coin widens, and the standard deviation of what is added to the sum."""

    @cached_property
    def features(self) -> ItemDifferences:
        """Return which numbers a vote has: a difference of two items, in style, for each group."""
        settings, source = self.settings, self.survey or self.votes
        if isinstance(source, Slates):
            items = settings.declared_items or source.items
            known = () if self.earlier is None else self.earlier.items
            return ItemDifferences(items or (*dict.fromkeys([*known, *sorted(_names_of(source))]),))
        terms: dict[str, Any] = {"style": settings.styles, "ties": settings.counts_ties}
        if settings.declared_items is not None and settings.groups is None:
            return ItemDifferences(settings.declared_items, **terms)
        if isinstance(source, Chunks | ChunkSurvey):
            raise UsageError(
                "These votes are read in pieces, so which items and groups there are has to be "
                "said. Nothing was done. Give --items, and leave --groups out."
            )
        names = source.names or ()
        groups = tuple(sorted({name.group for name in names} - {""})) if settings.groups else ()
        if settings.declared_items is not None:
            return ItemDifferences(settings.declared_items, groups=groups, **terms)
        known = () if self.earlier is None else self.earlier.items
        found = ItemDifferences.of(source, groups=groups, **terms)
        items = tuple(dict.fromkeys((*known, *found.items)))
        return ItemDifferences(items, groups=groups, **terms)

    @property
    def number(self) -> int | None:
        """Return how many votes there are; None where that is private, or not known yet."""
        source = self.survey or self.votes
        if isinstance(source, Chunks) or self.settings.relation == ADD_OR_REMOVE_ONE:
            return None
        if self.settings.hides_texts:  # which of them are left out is private
            return self._all_records(source)
        if self.ages is not None:
            return int((self.ages == 0).sum())
        return source.counted if isinstance(source, ChunkSurvey) else len(source)

    @property
    def updates(self) -> int | None:
        """Return over how many updates noise is correlated; None where each has its own."""
        return self.settings.updates if self.earlier is None else self.earlier.updates

    @staticmethod
    def _all_records(source: Questions | ChunkSurvey) -> int:
        return source.n + int(getattr(source, "dropped", 0))  # no ballot is dropped

    def account(self, *, planning: bool) -> Ledger:
        """Return the ledger that pays; refuse a board that these votes cannot be added to."""
        ledger, settings = super().account(planning=planning), self.settings
        if settings.anchored is not None and settings.anchored[0] not in self.features.items:
            raise UsageError(
                f"--anchor names {settings.anchored[0]!r}, which is not among the items. Nothing "
                "was released. Name one of the board."
            )
        if self.earlier is None:
            return ledger
        if settings.updates not in {None, self.updates}:
            raise UsageError(
                f"The board that is updated was made for --updates {self.updates}, if for any. "
                "Nothing was released. Leave --updates out, or begin a new board with it."
            )
        if not {row.release_id for row in ledger.rows}.issuperset(self.earlier.release_ids):
            raise PrivacyError(
                f"{ledger.path.name} did not pay for the board that is updated, so what both "
                "promise together is not known. Nothing was released. Give the ledger that did: "
                "--ledger FILE."
            )
        newest = self.earlier.releases[-1]
        votes, widened = newest.votes[""], self.widening()[0]
        ballots, records = votes.ballots is not None, votes.count_variance > 0
        held = ballots, votes.first, votes.ties is not None, newest.styles, records and not ballots
        kinds = isinstance(self.votes, Slates), isinstance(self.votes, PrivateChoices)
        asked = *kinds, settings.counts_ties, settings.styles, settings.hides_texts
        if held != asked or not math.isclose(votes.inflation, widened):
            raise UsageError(
                "The board that is updated hides whole records where this one does not, or is of "
                "ballots where this is of votes between two, or counts ties otherwise, has another "
                "style, or another coin, so its votes cannot be added to these. Nothing was "
                "released. Give the same --unit, --ties, --style, --noise "
                "and, for coins, --epsilon; or leave --update out."
            )
        return ledger

    def planned(self) -> dict[str, Any]:
        """Return what the run would spend, and what each kind of noise would teach."""
        features = self.features
        board = {"items": len(features.items), "groups": list(features.groups)}
        told = super().planned() | {"votes": self.number, "board": board, "forecast": self.foreseen}
        planned = self.updates
        return told | ({} if planned is None else {"updates": plan_updates(planned)})

    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        settings, released = self.settings, self.released(ledger)
        before = () if self.earlier is None else self.earlier.releases
        if any({*one.release_ids} & {*released.release_ids} for one in before):
            raise UsageError(
                "Some of these randomized answers are on the board already, and would count twice. "
                "Nothing was added to it. Give new votes alone; or leave --update out."
            )
        release = BoardRelease(
            name=_random.today()[:10],
            votes=released.value,
            release_ids=released.release_ids,
            artifact=released.artifact,
            styles=settings.styles,
        )
        board = Board(
            releases=(*before, release), guarantee=released.guarantee, anchor=settings.anchored
        )
        paid = paid_guarantee(board, ledger)
        board = replace(board, guarantee=paid, updates=self.updates)
        told, values = board.told, finite(board.to_dict())
        certificate = certify_paid(
            board, ledger, kind="leaderboard", digest=digest_of_json(values), for_study=True
        )
        hidden = settings.hides_texts
        # a repeat, or a vote beyond the cap of its person, is not on the board
        votes = self.number if hidden else sum(one.votes[""].number for one in board.releases)
        read = None if hidden else self.number if self.survey is None else self.survey.n
        repeats = 0 if read is None else read - release.votes[""].number
        left = {name: n for name, n in (("left_out", self.left_out), ("repeats", repeats)) if n}
        parts = {
            "noise": settings.noise,
            "mechanism": self.described(),
            "metrics": None,
            "data": {"name": ledger.data, "pairs": votes, **left},
            "leaderboard": told,
        }
        files = {BOARD: to_json(values), "leaderboard.csv": board_table(told)}
        started = None if hidden else self.started
        return certified_files(certificate, ledger, parts, files, started=started)

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        board, rows = plan["board"], super().plan_rows(plan)
        rows |= {} if plan["votes"] is None else {"votes": f"{plan['votes']:,}"}
        rows |= {"items": f"{board['items']:,}", "groups": ", ".join(board["groups"]) or "none"}
        for name, kind in (plan["forecast"] or {}).items():
            rows[f"foreseen, {name}"] = (
                f"a rating is off by about ± {kind['points']:.0f} points (95%), without privacy by "
                f"{kind['without_privacy']:.0f}"
                if "points" in kind
                else impossible(kind)
            )
        if "updates" in plan:
            told = (plan["forecast"] or {}).get("estimate", {})
            rows["updates"] = plan["updates"]["says"]
            rows |= {
                f"foreseen at the end, {name}": f"± {told[name]:.0f} points (95%)"
                for name in ("single", "correlated")
                if name in told
            }
        return rows


class _Sum(_RankRun):
    """One noised sum of votes, and with Davidson's model of the ties among them."""

    @property
    def limit(self) -> Limit:
        settings = self.settings
        terms: dict[str, Any] = {"delta": settings.failure, "neighbors": settings.relation}
        return spending_limit(settings.total, settings.limits, unit=settings.unit.whose, **terms)

    @cached_property
    def mechanism(self) -> SumMechanism | GaussianMechanism:
        """Return the noise that hides who won a vote, all of a person's votes, or a whole vote."""
        settings, votes, most = self.settings, self.votes, None
        if settings.hides_texts:
            k, relation = len(self.features.items), settings.relation
            return record_mechanism(
                settings.total, delta=settings.failure, items=k, neighbors=relation
            )
        if settings.unit is Unit.person:
            most = settings.cap
            if most is None and isinstance(votes, Pairs | Rankings):
                mu = LabelGaussian(settings.total, delta=settings.failure).mu
                most = _usable_votes(votes, self._teaching[0], self._moves, mu)
        terms: dict[str, Any] = {"delta": settings.failure, "records_per_person": most}
        if isinstance(votes, Rankings):
            return BallotGaussian(settings.total, counted=not votes.named, **terms)
        whole = LabelGaussian(settings.total, ties=self.features.counters, **terms)
        return whole if self.updates is None else whole.spread_over(self.updates)

    @property
    def _teaching(self) -> tuple[float, float]:
        """Return what one vote teaches of a rating, and how far it moves the sum."""
        k = len(self.features.items)
        if not isinstance(self.votes, Rankings):
            return 1 / (2 * k), 2 * self.features.feature_bound
        m = int(self.votes.sizes.max())  # Source: docs/ranking.md, "Ballots"
        return 3 * (m - 1) * m / (4 * (m + 1) * k), math.sqrt(3 * m * (m - 1) / (m + 1))

    def _moves(self, most: Any) -> Any:
        """Return about how far so many votes of one person move the sum."""
        # Source: docs/ranking.md, "How it is private": of two votes on K items 4/K are the same.
        if isinstance(self.votes, Pairs) and self.updates is None:
            most = np.sqrt(most * (1 + 2 * (most - 1) / len(self.features.items)))
        return self._teaching[1] * most

    def account(self, *, planning: bool) -> Ledger:
        """Return the ledger that pays; refuse planned updates whose votes would not add up."""
        ledger, earlier = super().account(planning=planning), self.earlier
        if self.updates is not None:
            if self.settings.unit is Unit.label and self.data is not None:
                raise UsageError(
                    "What is spent on a named data set adds up whatever votes it is about, so "
                    "those of one planned update would pay for all. Nothing was released. Leave "
                    "--data out: votes are known by their questions."
                )
            if earlier is not None:
                self._refuse_other_votes(ledger, earlier)
        return ledger

    def _refuse_other_votes(self, ledger: Ledger, earlier: Board) -> None:
        """Refuse an update in whose sum earlier votes would be others than in earlier sums."""
        # All releases of planned updates are of the same votes, with other weights: only then they
        # add up to the board.
        newest, mechanism = earlier.releases[-1].votes, self.mechanism
        if len(earlier.releases) >= (self.updates or 0):
            raise UsageError(
                f"All {self.updates} updates that were planned are made, and epsilon was for them. "
                "Nothing was released. Begin a new board."
            )
        paid = {row.release_id: row for row in ledger.rows if row.kind == "reserve"}
        rows = [paid[name] for name in earlier.releases[0].release_ids]
        caps = {(json.loads(row.payload).get("details") or {}).get("cap") for row in rows}
        mus = [event.mu for row in rows if isinstance(event := event_of(row), GaussianEvent)]
        groups, items = {*newest} - {""}, {*newest[""].items}
        same = bool(groups) == bool(self.features.groups) and groups <= {*self.features.groups}
        same &= items <= {*self.features.items} and caps == {mechanism.records_per_person}
        same &= earlier.guarantee.unit == self.settings.unit.whose
        if not same or not math.isclose(max(mus, default=0.0), mechanism.event.mu, rel_tol=1e-9):
            raise UsageError(
                "Planned updates are of the same votes again and again. Nothing was released. Give "
                "the same --epsilon, --delta, --unit, --cap and --groups in all of them, and "
                "--items with every item so far."
            )

    def described(self) -> dict[str, Any]:
        mechanism, settings = self.mechanism, self.settings
        if isinstance(mechanism, SumMechanism):
            return mechanism.describe()
        terms = {"name": mechanism.name, "epsilon": settings.total, "delta": settings.failure}
        noise = {"mu": mechanism.event.mu, "standard_deviation": mechanism.standard_deviation}
        return terms | noise | {"bound": mechanism.bound, "records_per_person": None}

    def widening(self) -> tuple[float, float]:
        most = self.mechanism.records_per_person or 1
        return 1.0, float(self._moves(most)) / self.mechanism.event.mu

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        mechanism, known = self.mechanism, self.survey or self.votes
        entropy = _random.entropy(self.settings.simulate_seed)
        if isinstance(mechanism, GaussianMechanism):
            n = None if isinstance(known, Chunks) else self._all_records(known)
            promise = record_promise(mechanism, ledger, entropy, n=n, features=self.features)
            ledger.check(mechanism.event, promise=promise)
        elif isinstance(known, Rankings):
            promise = terms_of_ballots(known, mechanism, ledger, entropy)[0]["promise"]
        elif isinstance(known, Chunks):  # which were not read yet
            links = {"linked": False, "repeats": False}
            promise = promise_of(mechanism, ledger, entropy, n=None, **links)
            ledger.check(mechanism.event, promise=promise)
        else:
            noise, votes = cast("LabelGaussian", mechanism), cast("Pairs | ChunkSurvey", known)
            judged = Judged.of("sordino rank", votes, noise, ledger, self.ages)
            promise = judged.promise(noise, ledger, entropy)
        return {
            "spend": promise.epsilon,
            "mechanism": self.described(),
            "metrics": None,
            **describe_guarantee_and_caveats(promise),
        }

    def released(self, ledger: Ledger) -> Charged[Boards]:
        votes: Any = self.survey or self.votes
        mechanism: Any = self.mechanism
        terms: dict[str, Any] = {"ledger": ledger, "simulate_seed": self.settings.simulate_seed}
        if isinstance(votes, Rankings):
            return release_ballots(votes, mechanism, **terms)
        return release_votes(votes, mechanism, items=self.features, ages=self.ages, **terms)

    @contextmanager
    def ready(self) -> Iterator[Run]:
        """Read all that is public of many files once, with an engine that stays until the end."""
        if not isinstance(self.votes, Chunks):
            yield self
            return
        self.planned()
        with self.settings.surveyed(self.votes, most=self.settings.cap) as survey:
            yield replace(self, survey=survey)


class _Coins(_RankRun):
    """Every vote randomized by itself, here or before it came."""

    @cached_property
    def randomizing(self) -> Randomizing:
        """Return the votes, with what is done to each of them."""
        pairs = cast("Pairs | Randomized", self.votes)
        return Randomizing(settings=self.settings, pairs=pairs, source=self.source)

    @property
    def limit(self) -> Limit:
        return self.randomizing.limit

    @cached_property
    def _loss(self) -> tuple[float, float]:
        """Return flip rate and loss of one vote."""
        votes = self.votes
        if isinstance(votes, Randomized):
            return votes.flip_probability, votes.label_epsilon
        coin = self.randomizing.coin
        return coin.flip_probability, coin.epsilon

    def described(self) -> dict[str, Any]:
        (flips, loss), die = self._loss, {}
        name = "randomized-response"
        if isinstance(self.votes, PrivateChoices):
            name, die = "randomized-choice", {"categories": self.votes.categories}
        return {"name": name, **die, "flip_probability": flips, "epsilon_per_label": loss}

    def widening(self) -> tuple[float, float]:
        k = getattr(self.votes, "categories", 2)
        return 1 / (1 - self._loss[0] * k / (k - 1)) ** 2, 0.0

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        return self.randomizing.plan(ledger)

    def released(self, ledger: Ledger) -> Charged[Boards]:
        answers = self.randomizing.answers(ledger)
        if isinstance(answers, PrivateChoices):
            return votes_of_choices(answers, self.features.items)
        return votes_of_answers(cast("PrivatePairs", answers), self.features)


def _names_of(slates: Slates) -> tuple[str, ...]:
    """Return which items ballots or choices are about; refuse those that do not say it."""
    names = slates.items if isinstance(slates, Rankings) else getattr(slates, "names", None)
    if names is None:
        way = " --noise estimate" if isinstance(slates, Rankings) else ""
        raise UsageError(
            "These ballots have candidates of their own, and a board is about items that many "
            f"ballots share. Nothing was done. Learn a reward: sordino align{way}."
        )
    return tuple(names)


def _usable_votes(votes: Pairs | Rankings, teaches: float, moves: Any, mu: float) -> int:
    """Return how many votes of one person are to count, from how many each gave (it is public)."""
    # More votes say more, and need more noise for each person: what is known of a rating has the
    # variance (known + noise²)/known².
    # Source: docs/ranking.md, "How it is private".
    if votes.persons is None:
        refuse_unlinked("a budget for each person")
    each = Counter(compress(votes.persons, votes.first_rows()))
    givers = np.cumsum(np.bincount([*each.values()])[:0:-1])[::-1]  # of 1, 2, … votes at least
    most = np.arange(1, len(givers) + 1)
    known = np.cumsum(givers) * teaches
    return int(most[np.argmin((known + (moves(most) / mu) ** 2) / known**2)])


def _foreseen(settings: Rank, read: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return how far ratings will be off with each kind of noise, from who met alone."""
    # Votes between equals are taken: each then teaches most, and has the largest variance. What
    # options or the ledger would refuse is said instead.
    told: dict[str, dict[str, Any]] = {}
    votes, ages = read["votes"], read["ages"]
    inverse = np.zeros((0, 0))
    for kind in ("labels", "estimate") if ages is None else ("estimate",):
        try:
            run = _run(replace(settings, noise=kind), **read)
            with quiet():
                run.planned()
            if not len(inverse):
                rows = run.features.rows(votes)[:, : len(run.features.items)]
                inverse = np.linalg.pinv((rows.T @ rows).toarray() * _EVEN, hermitian=True)
            inflation, spread = run.widening()
        except SordinoError as error:
            told[kind] = {"left_out": str(error)}
            continue
        open_, noise = np.diag(inverse).mean(), np.diag(inverse @ inverse).mean() * spread**2
        at = 1 if ages is None else int(ages.max()) + 1
        variances = {"points": open_ * inflation + noise * growth(at), "without_privacy": open_}
        if (planned := run.updates) is not None:  # if all updates are like those so far
            each, last = noise / growth(planned), at / planned
            for name, times in (("single", planned), ("correlated", growth(planned) ** 2)):
                variances[name] = open_ * last + each * times * last**2
        told[kind] = {
            name: REACH * POINTS * math.sqrt(variance) for name, variance in variances.items()
        }
    return told


def _read(
    settings: Rank, data: object, *, spread: bool
) -> Pairs | PrivatePairs | Chunks | Rankings | PrivateChoices:
    """Return the votes of files, in memory or to be read in pieces; or of what holds them."""
    source: Any = data
    if data is None:
        source = settings.votes[0] if len(settings.votes) == 1 else settings.votes
    if isinstance(source, Pairs | PrivatePairs | Rankings | PrivateChoices):
        return source
    kind = kind_of(source) if isinstance(source, Path | list | tuple) else PAIRS
    if kind in BALLOTS.judges:
        items, choices = settings.declared_items, kind == CHOICES
        reading = settings if choices else settings.of_ballots
        return reading.read_ballots(source, **({"items": items} if items and not choices else {}))
    refuse_given(
        {"--all-offered": settings.all_offered, "--named-offered": settings.named_offered},
        "only ballots over items have items to offer, and these are votes between two",
    )
    # how many there are may be private, and nothing is done by it then
    known = {"most": -1} if settings.relation == ADD_OR_REMOVE_ONE else {}
    whole = settings.noise == "labels" or (spread and settings.engine is None)
    chunks = data is None and not whole
    if chunks and settings.reads_chunks(settings.votes, **known):
        return find_chunks(
            settings.votes, hides_records=settings.hides_texts, **settings.reading_in_chunks
        )
    with Bar.shown("Reading") as bar:
        return read_pairs(
            source, **settings.reading, hides_records=settings.hides_texts, progress=bar
        )


def prepare(settings: Rank, data: object = None) -> _RankRun:
    """Return the run of the noise that was asked for, on files or on votes in memory."""
    files = [answers_of_study(one) if one.suffix == ".toml" else one for one in settings.votes]
    settings = replace(settings, votes=files)
    earlier = None if settings.update is None else Board.load(_board_path(settings.update))
    spread = (settings if earlier is None else earlier).updates is not None
    started, foreseen, votes = _random.clock(), None, _read(settings, data, spread=spread)
    if isinstance(votes, Slates):
        _names_of(votes)
    if isinstance(votes, Rankings):
        settings = settings.of_ballots
    if isinstance(votes, PrivateChoices):
        columns: dict[str, Any] = {"--groups": settings.groups, "--style": settings.style}
        columns |= {"--updates": settings.updates, "--ties davidson": settings.ties == "davidson"}
        refuse_given(columns, "first choices were randomized one by one, and say no more than that")
    if isinstance(votes, Randomized) and settings.noise == "estimate":
        refuse_randomized(votes)
    ages, left = None, 0
    known = Pairs if spread else Pairs | Rankings
    if isinstance(votes, known) and not settings.hides_texts and settings.noise != "labels":
        paid = [] if earlier is None else [one.release_ids for one in earlier.releases]
        n = len(votes)
        votes, ages = new_votes(votes, settings.ledger_path, paid, spread=spread)
        left = n - len(votes)
    elif spread:
        raise UsageError(
            "Noise that is correlated over updates is on raw votes that are read at once. Nothing "
            "was done. Leave out --engine, or --updates."
        )
    read = {"votes": votes, "started": started, "earlier": earlier, "ages": ages}
    kind = "labels" if isinstance(votes, Randomized) else settings.noise
    auto = kind == "auto"
    if isinstance(votes, Pairs) and not settings.hides_texts and (auto or settings.dry_run):
        foreseen = _foreseen(settings, read)
    if auto:
        able = {name: told["points"] for name, told in (foreseen or {}).items() if "points" in told}
        kind = min(able, key=able.__getitem__, default="estimate")
    run = _run(replace(settings, noise=kind), left_out=left, **read)
    arrived = data is None and isinstance(votes, Randomized)
    return replace(run, foreseen=foreseen, source=settings.votes[0] if arrived else None)


def _run(settings: Rank, **read: Any) -> _RankRun:
    kind = _Coins if settings.noise == "labels" else _Sum
    return kind(settings=settings, **read)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateLeaderboard(Leaderboard, Outcome):
    """What one call of :func:`sordino.rank` made: a leaderboard, its promise, and its files.

    Attributes:
        groups: The board of every group.
        result: Everything that is told, as ``result.json`` holds it.
        files: Every file by its name: ``leaderboard.json``, ``leaderboard.csv``, ``report.html``
            and ``result.json``.
        ledger: The ledger that paid.
    """

    groups: Mapping[str, Leaderboard]

    def __repr__(self) -> str:
        return f"PrivateLeaderboard({len(self.items)} items, {size(self.guarantee)})"


def rank(
    data: object,
    *,
    epsilon: float | None = None,
    unit: str = "label",
    noise: str = "auto",
    ledger: Ledger | str | Path | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> PrivateLeaderboard:
    """Return a private leaderboard of whatever was voted on: what ``sordino rank`` does.

    Args:
        data: Votes between two named items, or ballots over many: a file, a folder or several of
            them; a data frame, a table, a list of mappings (``model_a``, ``model_b``, ``winner``);
            :class:`sordino.Pairs` with names, or :class:`sordino.Rankings` of items.
        epsilon: Privacy loss allowed, for each ``unit``; needed for raw votes.
        unit: Whose change is hidden: ``"label"`` (a vote), ``"person"`` or ``"record"``.
        noise: Where the noise is: ``"labels"``, ``"estimate"``, or ``"auto"``.
        ledger: The ledger that pays, or its path; by default the project's, as for the command.
        out: A folder to write the results to; without one they stay in memory.
        **options: Every other option of the command, with ``_`` for ``-``: ``delta``, ``cap``,
            ``items``, ``ties``, ``groups``, ``style``, ``anchor``, ``update``, ``simulate_seed``
            and so on. ``--data`` is ``data_name`` here.

    Raises:
        UsageError: A setting cannot be met; nothing was spent.
        BudgetExceeded: The ledger has not enough left; nothing was released.
        DataError: The votes cannot be used.

    Guarantee:
        What ``guarantee`` of the result says, for each ``unit``; it was reserved on the ledger
        before noise was drawn. Shown by tests/soundness/test_votes_release.py and
        tests/cli/test_rank.py: this is the command's own run.

    Example:
        >>> import sordino, tempfile
        >>> votes = [{"model_a": "x", "model_b": "y", "winner": "model_a" if i % 4 else "model_b",
        ...           "question_id": i} for i in range(400)]
        >>> board = sordino.rank(votes, epsilon=2, ledger=f"{tempfile.mkdtemp()}/spend.db",
        ...                      simulate_seed=0)
        >>> board.items[board.order[0]], board.ranks.tolist(), board.guarantee.unit
        ('x', [[1, 1], [2, 2]], 'label')
    """
    given = {"epsilon": epsilon, "unit": unit, "noise": noise, **options}
    told, made, paid = perform_call(Rank, prepare, "votes", data, given, ledger, out)
    boards = Board.of(json.loads(made[BOARD])).boards
    board = boards.pop("")
    own = {each.name: getattr(board, each.name) for each in fields(board)}
    return PrivateLeaderboard(**own, result=told, files=made, ledger=paid, groups=boards)
