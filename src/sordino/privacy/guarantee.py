"""What is promised, and what was done: a guarantee, and the events that accounting makes it of.

A mechanism hands over an event, the ledger stores it as a kind and a few numbers, and
``accounting`` turns events into a guarantee. The table is closed: nothing that is read from a
file can name a class. The relation belongs to the entry that holds the event, not to the event.
"""

from __future__ import annotations

import enum
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_CEILING, localcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from sordino import _validate
from sordino._markup import card
from sordino._random import Randomness
from sordino._validate import failure_probability, integer, non_negative, positive
from sordino.errors import LedgerDamaged, PrivacyError, UsageError


class NeighboringRelation(enum.Enum):
    """What one change of the data is; the names are those of dp_accounting."""

    ADD_OR_REMOVE_ONE = 1
    REPLACE_ONE = 2
    REPLACE_SPECIAL = 3

    @property
    def option(self) -> str:
        """Return the relation as the command line says it."""
        return ("add-remove", "replace", "zero-out")[self.value - 1]


ADD_OR_REMOVE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE
"""One unit is there or not; how many there are is private, too."""
REPLACE_ONE = NeighboringRelation.REPLACE_ONE
"""One unit is replaced by any other; how many there are is public."""
REPLACE_SPECIAL = NeighboringRelation.REPLACE_SPECIAL
"""One label is replaced by a fair coin, one record by an empty one; their number is public."""

Unit = Literal["label", "record", "person"]
Trust = Literal["local", "central"]

ADAPTIVE_QUESTIONS = "adaptive-questions"
DECLARED_DISJOINT = "declared-disjoint"
DEVICE_PERSONS = "device-persons"
PUBLIC_OVERLAP = "public-overlap"
WEAK_PROMISE = "weak-promise"

WEAKEST_EPSILON: Final = 20.0
"""An ε above it, for one unit, protects nobody: e^20 singles out one among half a billion."""
LARGEST_DELTA: Final = 1e-3
"""From here on a δ is too large where nobody may know how many records or persons there are."""

CAVEATS: Mapping[str, str] = tomllib.loads(
    Path(__file__).with_name("caveats.toml").read_text("utf-8")
)

_CHANGES = {
    ("label", REPLACE_ONE): "one label is replaced by any other",
    ("label", REPLACE_SPECIAL): "one label is replaced by a fair coin",
    ("record", REPLACE_SPECIAL): "one record is replaced by an empty one",
    ("record", ADD_OR_REMOVE_ONE): "one record is added or removed",
    ("record", REPLACE_ONE): "one record is replaced by any other",
    ("person", REPLACE_SPECIAL): "all records of one person are replaced by empty ones",
    ("person", ADD_OR_REMOVE_ONE): "all records of one person are added or removed",
    ("person", REPLACE_ONE): "all records of one person are replaced by any others",
}
_LABELS_ONLY = {
    ("person", REPLACE_ONE): "all labels of one person are replaced by any others",
    ("person", REPLACE_SPECIAL): "all labels of one person are replaced by fair coins",
}


def never_less(value: float, digits: int = 6) -> str:
    """Return a bound in at most ``digits`` significant digits, rounded up, never down."""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    with localcontext(prec=digits, rounding=ROUND_CEILING) as context:
        return f"{float(context.create_decimal(repr(float(value)))):.{digits}g}"


def never_more(value: float, digits: int = 6) -> str:
    """Return what is left, ≥ 0, in at most ``digits`` significant digits, never rounded up."""
    return never_less(-value, digits).lstrip("-")


def float_to_json(value: float) -> float | str:
    """Return a float as JSON can hold it: infinity becomes the string ``"inf"``."""
    return "inf" if math.isinf(value) else float(value)


def float_from_json(value: float | str) -> float:
    """Return what :func:`float_to_json` wrote as a float."""
    return math.inf if value == "inf" else _validate.number("a number", value)


@dataclass(frozen=True)
class Guarantee:
    """A promise that holds for every data set: no change of one unit shows by more than (ε, δ).

    For any two inputs that differ by one change and every set S of outputs,
    P[output ∈ S] ≤ e^ε · P′[output ∈ S] + δ. Epsilon alone says nothing, so the unit, the
    relation and the trust model have no defaults.

    Args:
        epsilon: Bound on the privacy loss, ≥ 0; infinity means no protection.
        delta: Probability that the bound may fail, in [0, 1).
        unit: Whose change is hidden: ``"label"``, ``"record"`` or ``"person"``.
        neighbors: What one change is: ``REPLACE_ONE``, ``ADD_OR_REMOVE_ONE`` or
            ``REPLACE_SPECIAL`` (replaced by an empty record).
        trust: ``"local"`` if nobody but the person saw the raw judgment, ``"central"`` if the
            program that randomized it did.
        randomness: ``"system"``, or ``"simulated"`` if a seed was used.
        caveats: Names from :data:`CAVEATS` that qualify the promise.

    Raises:
        UsageError: A value is outside what is permitted.

    Source:
        Dwork & Roth 2014, Definition 2.4; relations as in docs/privacy.md.

    Example:
        >>> Guarantee(1.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="local").odds
        2.718281828459045
    """

    epsilon: float
    delta: float = field(kw_only=True)
    unit: Unit = field(kw_only=True)
    neighbors: NeighboringRelation = field(kw_only=True)
    trust: Trust = field(kw_only=True)
    randomness: Randomness = field(default="system", kw_only=True)
    caveats: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        _validate.settle(self, epsilon=non_negative, delta=failure_probability)
        _validate.one_of("unit", self.unit, get_args(Unit))
        _validate.one_of("neighbors", self.neighbors, tuple(NeighboringRelation))
        _validate.one_of("trust", self.trust, get_args(Trust))
        _validate.one_of("randomness", self.randomness, get_args(Randomness))
        if (self.unit, self.neighbors) not in _CHANGES:
            raise UsageError(
                f"unit={self.unit!r} with neighbors={self.neighbors.name} is not a promise: "
                "a label cannot be added or removed on its own. Use REPLACE_ONE, or a unit of "
                "'record' or 'person'."
            )
        object.__setattr__(self, "caveats", _known(self.caveats))

    @classmethod
    def per_label(cls, epsilon: float, *, delta: float = 0.0) -> Guarantee:
        """Return a curator's promise that no label shows by more than (ε, δ), if it is replaced.

        Example:
            >>> print(Guarantee.per_label(2))
            epsilon=2, delta=0 when one label is replaced by any other (REPLACE_ONE), trust: central
        """
        return cls(epsilon, delta=delta, unit="label", neighbors=REPLACE_ONE, trust="central")

    @classmethod
    def per_person(cls, epsilon: float, *, delta: float = 0.0) -> Guarantee:
        """Return the same promise about all labels of one person together.

        Example:
            >>> Guarantee.per_person(4).change
            'all labels of one person are replaced by any others'
        """
        told = replace(cls.per_label(epsilon, delta=delta), unit="person")
        return told.with_caveats("labels-only")

    @classmethod
    def per_record(cls, epsilon: float, *, delta: float) -> Guarantee:
        """Return the same promise about one whole record, prompt and answers included.

        Example:
            >>> Guarantee.per_record(1, delta=1e-6).change
            'one record is replaced by an empty one'
        """
        told = cls.per_label(epsilon, delta=delta)
        return replace(told, unit="record", neighbors=REPLACE_SPECIAL)

    @property
    def odds(self) -> float:
        """Return e^ε: how far the odds about one unit can move for anybody who looks."""
        return math.exp(self.epsilon) if self.epsilon < math.log(1e300) else math.inf

    @property
    def change(self) -> str:
        """Return in words what one change is."""
        terms = (self.unit, self.neighbors)
        words = _LABELS_ONLY if "labels-only" in self.caveats else _CHANGES
        return words.get(terms, _CHANGES[terms])

    @property
    def hides_texts(self) -> bool:
        """Return whether prompts, answers and who took part are covered, not judgments only."""
        return self.unit != "label" and "labels-only" not in self.caveats

    @property
    def hides_counts(self) -> bool:
        """Return whether it is covered how many records there are."""
        return self.neighbors is ADD_OR_REMOVE_ONE

    @property
    def simulated(self) -> bool:
        """Return whether a seed was used, so that nothing is hidden from whoever knows it."""
        return self.randomness == "simulated"

    def may_publish(self, n: int | None) -> bool:
        """Return whether δ permits to publish one of n units outright; None if n is private."""
        # Who publishes one of n records at random keeps δ = 1/n.
        # Source: docs/privacy.md, "How large delta may be".
        if n is None or self.neighbors is ADD_OR_REMOVE_ONE:
            return self.delta >= LARGEST_DELTA
        return self.delta * n >= 1

    def weakness(self, n: int | None) -> str:
        """Return why next to nobody is protected, if so; n as in :meth:`may_publish`."""
        if self.epsilon > WEAKEST_EPSILON:
            size = f"ε = {never_less(self.epsilon)} per {self.unit}"
            return f"{size} is above {WEAKEST_EPSILON:g}. It protects nobody."
        if self.may_publish(n):
            bound = f"{LARGEST_DELTA:g}, and how many {self.unit}s there are is private: some"
            bound = bound if n is None else f"1/n for {n:,} {self.unit}s: one"
            size = f"δ = {never_less(self.delta)} is not below {bound}"
            return f"{size} of them may be published outright."
        accepted = "Next to nobody is protected, which was accepted."
        return accepted if WEAK_PROMISE in self.caveats else ""

    def with_caveats(self, *names: str, when: Mapping[str, bool] | None = None) -> Guarantee:
        """Return the same promise with more caveats; of those with a condition if it holds."""
        applying = (name for name, applies in (when or {}).items() if applies)
        return replace(self, caveats=(*self.caveats, *applying, *names))

    def drawn(self, randomness: Randomness) -> Guarantee:
        """Return the same promise, which says where its coins came from."""
        named = self.with_caveats(when={"simulated": randomness == "simulated"})
        return replace(named, randomness=randomness)

    def to_dict(self) -> dict[str, Any]:
        """Return the promise as JSON holds it, caveats apart."""
        return {
            "epsilon": float_to_json(self.epsilon),
            "delta": self.delta,
            "unit": self.unit,
            "neighbors": self.neighbors.name,
            "trust": self.trust,
            "randomness": self.randomness,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], caveats: Iterable[str] = ()) -> Guarantee:
        """Return the promise that :meth:`to_dict` wrote.

        Raises:
            UsageError: A field is missing, or its value is not permitted.
        """
        missing = {"epsilon", "delta", "unit", "neighbors", "trust"} - set(values)
        if missing:
            raise UsageError(f"A guarantee lacks {', '.join(sorted(missing))}.")
        relation = _validate.one_of(
            "neighbors", values["neighbors"], tuple(NeighboringRelation.__members__)
        )
        epsilon = math.inf if values["epsilon"] == "inf" else values["epsilon"]
        terms = {
            name: values[name]
            for name in ("delta", "unit", "trust", "randomness")
            if name in values
        }
        neighbors = NeighboringRelation[relation]
        return cls(epsilon, neighbors=neighbors, caveats=tuple(caveats), **terms)

    @property
    def sentence(self) -> str:
        """Return the promise in one line, without its caveats."""
        return f"{size(self)} when {self.change} ({self.neighbors.name}), trust: {self.trust}"

    def __str__(self) -> str:
        text = self.sentence
        if self.caveats:
            text += f", caveats: {', '.join(self.caveats)}"
        return f"SIMULATED, not private: {text}" if self.simulated else text

    def _repr_html_(self) -> str:
        return card("Guarantee", promise_rows(self), simulated=self.simulated)


def weak_caveats(
    epsilons: Iterable[float], *, accepted: bool, ways: str = "a smaller --epsilon"
) -> tuple[str, ...]:
    """Return the caveat of a weak promise, if there is one and it was accepted; else refuse it."""
    # An infinite one is another matter, which has an option of its own.
    weak = [each for each in epsilons if WEAKEST_EPSILON < each < math.inf]
    if weak and not accepted:
        raise UsageError(
            f"epsilon={never_less(max(weak))} is above {WEAKEST_EPSILON:g}, which protects nobody. "
            f"Nothing was released. Use {ways}; or say --accept-weak, and the caveat "
            f"{WEAK_PROMISE} stays with the release."
        )
    return (WEAK_PROMISE,) if weak else ()


def promise_rows(guarantee: Guarantee) -> list[tuple[str, object]]:
    """Return a promise as names and values, for a card: what ``str`` says, line by line."""
    return [
        ("epsilon", never_less(guarantee.epsilon)),
        ("delta", never_less(guarantee.delta)),
        ("one change", f"{guarantee.change} ({guarantee.neighbors.name})"),
        ("trust", guarantee.trust),
        ("caveats", ", ".join(guarantee.caveats) or None),
    ]


def _known(caveats: Iterable[str]) -> tuple[str, ...]:
    """Return caveats sorted, each once; refuse names that nobody could look up."""
    names = [] if isinstance(caveats, str) else list(caveats)
    if isinstance(caveats, str) or not all(name in CAVEATS for name in names):
        raise UsageError(
            f"caveats must be a list of names from {', '.join(sorted(CAVEATS))}; got {caveats!r}."
        )
    return tuple(sorted(set(names)))


def merge(guarantees: Iterable[Guarantee], *, epsilon: float, delta: float) -> Guarantee:
    """Return one promise of the given size that speaks for several of the same relation."""
    # Trust is central if any is, randomness is simulated if any is, and caveats add up.
    parts = list(guarantees)
    if len({(part.unit, part.neighbors) for part in parts}) != 1:
        raise PrivacyError(
            "Promises about different units or relations cannot be composed: keep one ledger "
            "for each (unit, neighbors)."
        )
    return replace(
        parts[0],
        epsilon=epsilon,
        delta=delta,
        trust="central" if any(part.trust == "central" for part in parts) else "local",
        randomness="simulated" if any(part.simulated for part in parts) else "system",
        caveats=tuple(name for part in parts for name in part.caveats),
    )


_SHORT = 12  # characters of a digest that identify it to a reader


def size(guarantee: Guarantee | None) -> str:
    """Return ε and δ in one phrase, rounded up; "nothing" where there is no promise."""
    if guarantee is None:
        return "nothing"
    return f"epsilon={never_less(guarantee.epsilon)}, delta={never_less(guarantee.delta)}"


def anchor(head: tuple[str, int]) -> str:
    """Return the head of a ledger as a reader compares it."""
    digest, rows = head
    return f"{digest[:_SHORT]}… after {rows} row{'' if rows == 1 else 's'}"


def _finite(name: str, value: object) -> float:
    """Return value as a float; refuse what is below zero or not finite."""
    result = non_negative(name, value)
    if result == math.inf:
        raise UsageError(f"{name} must be finite, got {value!r}.")
    return result


def _chance(name: str, value: object) -> float:
    """Return value as a float in (0, 1]."""
    result = positive(name, value)
    if result > 1:
        raise UsageError(f"{name} must be in (0, 1], got {result!r}.")
    return result


@dataclass(frozen=True)
class Event:
    """What one release did: the parent of the closed set below."""

    def __post_init__(self) -> None:
        _validate.settle(self, **{item.name: item.metadata["check"] for item in fields(self)})


# What every number of an event is checked by.
_POSITIVE: Final = {"check": positive}
_FINITE: Final = {"check": _finite}
_AT_LEAST_ONE: Final = {"check": partial(integer, at_least=1)}


@dataclass(frozen=True)
class RandomizedResponseEvent(Event):
    """One label answered by a coin: kept, or made uniform on the other categories."""

    # Source: Warner (1965); Kairouz, Oh, Viswanath (2016).

    # Pure loss of one label when it is replaced; finite, greater than 0.
    epsilon: float = field(metadata=_POSITIVE)
    # Number of possible labels; at least 2.
    categories: int = field(default=2, metadata={"check": partial(integer, at_least=2)})


@dataclass(frozen=True)
class GaussianEvent(Event):
    """A value released with Gaussian noise."""

    # Source: Dong, Roth, Su (2022), Theorem 2.7 (mu-GDP).

    # Sensitivity under the entry's relation divided by the standard deviation.
    mu: float = field(metadata=_FINITE)


@dataclass(frozen=True)
class PureEvent(Event):
    """Any release whose log-ratios are at most epsilon."""

    # Source: Dwork, McSherry, Nissim, Smith (2006), Definition 1.

    epsilon: float = field(metadata=_FINITE)


@dataclass(frozen=True)
class ApproximateEvent(Event):
    """Any release that is (epsilon, delta)-private, of which nothing else is known."""

    # Source: Dwork, Kenthapadi, McSherry, Mironov, Naor (2006), Definition 1.

    epsilon: float = field(metadata=_FINITE)
    delta: float = field(metadata={"check": failure_probability})  # from 0 to below 1


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """Independent draws from one policy whose log-ratios lie in an interval of known length."""

    # Source: Durfee, Rogers (2019), Definition 3.1.

    bounded_range: float = field(metadata=_FINITE)  # length of the interval, per draw
    draws: int = field(default=1, metadata=_AT_LEAST_ONE)  # independent, from this one policy


@dataclass(frozen=True)
class PoissonGaussianEvent(Event):
    """Noised sums of a fresh Poisson sample each, as in the steps of DP-SGD."""

    # Only the noised sums are released: neither who was drawn nor how many.
    # Source: Abadi et al. (2016), Algorithm 1; docs/privacy.md, "Poisson-sampled Gaussian".

    # Standard deviation of the noise divided by the bound on the norm of one contribution, whatever
    # the relation; finite, greater than 0.
    noise_multiplier: float = field(metadata=_POSITIVE)
    # Chance of each contribution to be drawn, on its own; in (0, 1].
    sampling_probability: float = field(metadata={"check": _chance})
    steps: int = field(metadata=_AT_LEAST_ONE)  # number of such sums


@dataclass(frozen=True)
class NonPrivateEvent(Event):
    """A release that protects nobody; its spend is infinite under every relation."""


EVENTS: Mapping[str, type[Event]] = MappingProxyType(
    {
        "randomized-response": RandomizedResponseEvent,
        "gaussian": GaussianEvent,
        "pure": PureEvent,
        "approximate": ApproximateEvent,
        "bounded-range": BoundedRangeEvent,
        "poisson-gaussian": PoissonGaussianEvent,
        "non-private": NonPrivateEvent,
    }
)
KINDS: Mapping[type[Event], str] = MappingProxyType({cls: kind for kind, cls in EVENTS.items()})


def event_to_row(event: Event) -> tuple[str, dict[str, float | int]]:
    """Return the kind and the parameters of an event, as the ledger stores them."""
    kind = KINDS.get(type(event))
    if kind is None:
        raise UsageError(f"event must be one of {', '.join(EVENTS)}; got {type(event).__name__}.")
    return kind, {field.name: getattr(event, field.name) for field in fields(event)}


def event_from_row(kind: str, params: Mapping[str, Any]) -> Event:
    """Return the event that a ledger row describes, reading the closed table only."""
    cls = EVENTS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise LedgerDamaged(f"A ledger entry of an unknown kind; known: {', '.join(EVENTS)}.")
    wanted = {field.name: field.type for field in fields(cls)}
    if not isinstance(params, Mapping) or set(params) != set(wanted):
        raise LedgerDamaged(f"A ledger entry of kind {kind!r} must hold exactly {list(wanted)}.")
    for name, annotation in wanted.items():
        # JSON may have written 1.0 as 1, but a count is never a float and a bool is neither.
        allowed = (int,) if annotation == "int" else (float, int)
        if type(params[name]) not in allowed:
            raise LedgerDamaged(f"{name} of a ledger entry of kind {kind!r} has a wrong type.")
    try:
        return cls(**params)
    except (UsageError, OverflowError):  # without its words, which quote the ledger
        problem = f"A parameter of a ledger entry of kind {kind!r} is out of range."
    raise LedgerDamaged(problem)


UNDECIDED: Final = 2
"""A tie, "both bad" or "skip": y = ½, as private as 1 (the first is preferred) and 0."""

MOST_LEVELS: Final = 20  # of ratings: codes of all shares between then fit a byte

SHARES: Final = (
    *(Fraction(0), Fraction(1), Fraction(1, 2)),
    *(Fraction(j, m) for m in range(3, MOST_LEVELS) for j in range(1, m) if math.gcd(j, m) == 1),
)
"""What the code of a label says: y, how much of it is for the first answer. Of K levels the j-th,
counted from 0, is j/(K − 1); a label of two answers is 0, 1 or undecided."""

CODES: Final = MappingProxyType({share: code for code, share in enumerate(SHARES)})
"""The code of every share."""
