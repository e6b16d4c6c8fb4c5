"""What an audit says: what was claimed, what was measured, what was tried, and the verdict.

An audit has three ends. It refutes a claim; or it does not, and says how large a loss it would have
found; or it cannot tell, and says what is missing. It never proves a claim.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from sordino import _validate
from sordino._markup import card
from sordino._version import __version__
from sordino.errors import AuditInconclusive, AuditRefuted
from sordino.privacy.guarantee import Guarantee, float_to_json, never_less, never_more, promise_rows

_AUDIT_FORMAT = "sordino.audit"
_AUDIT_VERSION = 2

Kind = Literal["mechanism", "release", "run", "training", "model"]
# What matters first stands first: on pages, in tables and in JSON.
Outcome = Literal["refutes", "warning", "skipped", "clear"]
Verdict = Literal["refuted", "not refuted", "cannot tell"]
Metric = Literal["epsilon", "mu", "bounded range"]

POWER: Final = 0.95
"""How often a loss that "would have been found" is refuted, at least."""

RAW: Final = "the raw file"

ATTACKS: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    Path(__file__).with_name("attacks.toml").read_text("utf-8")
)
"""Of every attack its title, one sentence on what is tried, and what it needs in order to run."""


def largest_unnoticed(claimed: float) -> float:
    """Return the largest loss that may go unnoticed by an audit that is called one."""
    # Twice the claim, or one more than it: an audit that would miss odds e times as large as
    # permitted, and more than twice the loss, is no evidence for anybody.
    return claimed + max(1.0, claimed)


class Detectable(NamedTuple):
    """The loss that an audit would have found: this one, and any that is larger."""

    metric: str
    loss: float
    attack: str
    power: float  # how often it is refuted, at least
    false_alarms: float  # how often a true claim is refuted, at most, by all attacks together

    def __str__(self) -> str:
        """Return the statement in words; the loss is rounded up."""
        said = f"{self.metric} of {never_less(self.loss, 4)} or more would have been found "
        if self.false_alarms == 0:
            return f"{said}({self.attack}: compared exactly)"
        return (
            f"{said}({self.attack}; in {100 * self.power:g} of 100 audits, where at most one true "
            f"claim of {never_more(1 / self.false_alarms, 4)} is refuted)"
        )


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number that an attack forced out, beside the number that was claimed."""

    metric: Metric  # `"epsilon"`, `"mu"` (of the Gaussian trade-off) or `"bounded range"`
    claimed: float  # what was promised, in this metric
    lower: float  # lower confidence bound on the true value, ≥ 0; 0 says nothing
    confidence: float  # coverage of `lower`
    # Upper confidence bound of what this attack measured; None if it has none. It is no bound on
    # the true value: another attack may do better.
    upper: float | None = None
    # The smallest true value with which this attack would have refuted the claim, at the level of
    # the verdict, with probability of at least `POWER`; None if that was not computed.
    power: float | None = None
    attack: str = ""  # which one measured it

    def __post_init__(self) -> None:
        _validate.one_of("metric", self.metric, get_args(Metric))
        for name in ("claimed", "lower", "upper", "power"):
            value = getattr(self, name)
            if value is not None or name in {"claimed", "lower"}:
                object.__setattr__(self, name, _validate.non_negative(name, value))
        _validate.failure_probability("confidence", self.confidence, zero=False)

    @property
    def judges(self) -> bool:
        """Return whether a loss that is not far above the claim would have been found."""
        return self.power is not None and self.power <= largest_unnoticed(self.claimed) < math.inf

    def to_dict(self) -> dict[str, object]:
        """Return the measurement as JSON holds it."""
        numbers = {name: getattr(self, name) for name in ("claimed", "lower", "upper", "power")}
        shown = {k: None if v is None else float_to_json(v) for k, v in numbers.items()}
        told = {"attack": self.attack, "metric": self.metric}
        return {**told, **shown, "confidence": self.confidence}

    def __str__(self) -> str:
        """Return the bound in words, rounded away from what it bounds; the metric apart."""
        text = f"at least {never_more(self.lower, 4)} ({100 * self.confidence:g} % confidence)"
        text += f", claimed {never_less(self.claimed)}"
        if self.power is None:
            return text
        least = f"{never_less(self.power, 4)} or more"
        least = "no loss for certain" if math.isinf(self.power) else least
        return f"{text}; would have detected {least}"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One attack that was tried, and what came of it."""

    attack: str  # its name, as in docs/auditing.md
    # `"refutes"`; `"warning"` (suspicious, or bad practice, but no refutation); `"skipped"` (could
    # not be tried); `"clear"` (tried, found nothing).
    outcome: Outcome
    summary: str  # one sentence for a person; no data in it
    recovered: float | None = None  # share of labels that the attack reads out, if it reads any
    p_value: float | None = None  # chance of such evidence if the claim holds, if that was computed
    # More numbers and names of recipes, JSON-like; no data.
    details: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an unknown outcome; close the details."""
        _validate.one_of("outcome", self.outcome, get_args(Outcome))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    @property
    def needs(self) -> str:
        """Return what the attack needs in order to run; empty if nobody has said."""
        return ATTACKS.get(self.attack, {}).get("needs", "")

    @property
    def ran(self) -> bool:
        """Return whether it was tried."""
        return self.outcome != "skipped"

    @classmethod
    def skipped(cls, attack: str, summary: str = "") -> Finding:
        """Return that an attack could not be tried; without a summary, for what it needs."""
        known = ATTACKS.get(attack, {})  # a name stands for one of its sentences
        lacking = f"It needs {known.get('needs', 'more than there is')}."
        summary = known.get(summary, summary) or lacking
        return cls(attack=attack, outcome="skipped", summary=summary)

    @classmethod
    def judged(
        cls,
        attack: str,
        *,
        wrong: str | bool = False,
        odd: str | bool = False,
        clear: str | bool = True,
        p_value: float | None = None,
        details: Mapping[str, object] | None = None,
        **told: object,
    ) -> Finding:
        """Return a finding that refutes if anything is wrong, and warns if anything is odd."""
        # True and names stand for sentences of `ATTACKS`, filled in with details and what is told.
        told, known = {**(details or {}), **told}, ATTACKS.get(attack, {})
        said = []
        clear = "" if wrong or odd else clear
        for name, given in (("wrong", wrong), ("odd", odd), ("clear", clear)):
            text = (known.get(given) if isinstance(given, str) else known[name]) if given else ""
            said.append(str(given) if text is None else text.format(**told))
        return cls(
            attack=attack,
            outcome="refutes" if wrong else "warning" if odd else "clear",
            summary=" ".join(filter(None, said)),
            p_value=p_value,
            details=details or {},
        )

    def to_dict(self) -> dict[str, object]:
        """Return the finding as JSON holds it."""
        names = ("attack", "needs", "ran", "outcome", "summary", "recovered", "p_value")
        return {name: getattr(self, name) for name in names} | {"details": dict(self.details)}


@dataclass(frozen=True, kw_only=True)
class Audit:
    """An attempt to refute a privacy claim; what is not refuted is not proved.

    Example:
        >>> from sordino import REPLACE_ONE, Guarantee
        >>> claim = Guarantee(1.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="local")
        >>> Audit(kind="release", subject="answers.jsonl", claim=claim, findings=()).verdict
        'cannot tell'
    """

    kind: Kind  # what was audited; a `"release"` is a file
    subject: str  # its name; never data
    claim: Guarantee  # what it promises
    findings: tuple[Finding, ...]  # every attack, and what came of it, in the order of `Outcome`
    measured: tuple[Measurement, ...] = ()  # what attacks forced out, the decisive number first
    level: float = 1e-3  # chance that a true claim is refuted, over all attacks together
    # Whether numbers are of raw judgments: then the audit itself is not for publication.
    confidential: bool = False
    lacks: tuple[str, ...] = ()  # what a verdict needs, one sentence each with the way out

    def __post_init__(self) -> None:
        """Refuse an unknown kind; put what matters first in front."""
        _validate.one_of("kind", self.kind, get_args(Kind))
        _validate.failure_probability("level", self.level, zero=False)
        ranks = get_args(Outcome)
        ordered = sorted(self.findings, key=lambda found: ranks.index(found.outcome))
        object.__setattr__(self, "findings", tuple(ordered))

    @property
    def refuted(self) -> bool:
        """Return whether any attack refutes the claim."""
        return bool(self.refuted_by)

    @property
    def refuted_by(self) -> tuple[str, ...]:
        """Return the names of the attacks that refute the claim, each once."""
        names = (found.attack for found in self.findings if found.outcome == "refutes")
        return tuple(dict.fromkeys(names))

    @property
    def verdict(self) -> Verdict:
        """Return ``"refuted"``, ``"not refuted"`` or ``"cannot tell"``."""
        if self.refuted:
            return "refuted"
        return "cannot tell" if self.reasons else "not refuted"

    @property
    def exit_code(self) -> int:
        """Return what the command line leaves with: 5 refuted, 0 not refuted, 6 cannot tell."""
        codes = {"refuted": AuditRefuted.exit_code, "cannot tell": AuditInconclusive.exit_code}
        return codes.get(self.verdict, 0)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why it is refuted, or why nobody can tell; empty if it is not refuted."""
        if self.refuted:
            return tuple(each.summary for each in self.findings if each.outcome == "refutes")
        if self.lacks or self.would_have_found is not None:
            return self.lacks
        # How far above its claim a loss must be to be found; infinity if none would.
        best = min(
            (each for each in self.measured if each.power),
            key=lambda found: (found.power or math.inf) - largest_unnoticed(found.claimed),
            default=None,
        )
        why = (
            "No loss of any size would surely have been found: nothing that was tried measures "
            "one, or it was tried too seldom."
        )
        if best is not None and math.isfinite(best.power or math.inf):
            why = (
                f"Only {best.metric} of {never_less(best.power or 0.0, 4)} or more would have been "
                f"found, and {never_less(best.claimed)} is claimed; an audit must find "
                f"{never_less(largest_unnoticed(best.claimed), 4)}. Play more trials."
            )
        return (why,)

    @property
    def would_have_found(self) -> Detectable | None:
        """Return the loss that would have been found, and any larger one; None if too large."""
        # Of a run everything is arithmetic: whatever the ledger holds above the claim refutes it.
        if self.kind == "run":
            return Detectable("epsilon", self.claim.epsilon, "claim", 1.0, 0.0)
        judging = (found for found in self.measured if found.judges)
        for best in sorted(judging, key=lambda found: (found.metric != "epsilon", found.power)):
            return Detectable(best.metric, best.power or 0.0, best.attack, POWER, self.level)
        return None

    @property
    def lower_bound(self) -> float | None:
        """Return the largest lower confidence bound on ε; None if none was measured in ε."""
        bounds = [found.lower for found in self.measured if found.metric == "epsilon"]
        return max(bounds, default=None)

    def require(self) -> Audit:
        """Return this audit if it refutes nothing and had enough to judge by.

        Raises:
            AuditRefuted: It refutes the claim; the message names the attacks.
            AuditInconclusive: It cannot tell; the message says what is missing.
        """
        if self.refuted:
            raise AuditRefuted(
                f"The claim of {self.subject} ({self.claim}) is refuted by "
                f"{', '.join(self.refuted_by)}. Do not publish it, or take it back if it is out."
            )
        if self.reasons:
            raise AuditInconclusive(
                f"Nobody can tell whether the claim of {self.subject} ({self.claim}) holds. "
                f"{' '.join(self.reasons)}"
            )
        return self

    def to_dict(self) -> dict[str, object]:
        """Return the audit as JSON holds it."""
        bound, found = self.lower_bound, self.would_have_found
        return {
            "format": _AUDIT_FORMAT,
            "version": _AUDIT_VERSION,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "refuted_by": list(self.refuted_by),
            "would_have_found": found and found._asdict() | {"loss": float_to_json(found.loss)},
            "kind": self.kind,
            "subject": self.subject,
            "claim": self.claim.to_dict() | {"caveats": list(self.claim.caveats)},
            "lower_bound": None if bound is None else float_to_json(bound),
            "measured": [found.to_dict() for found in self.measured],
            "level": self.level,
            "confidential": self.confidential,
            "findings": [found.to_dict() for found in self.findings],
            "sordino": __version__,
        }

    def __str__(self) -> str:
        if self.refuted:
            return f"{self.subject}: REFUTED by {', '.join(self.refuted_by)} ({self.claim})"
        if self.reasons:
            return f"{self.subject}: cannot tell. {' '.join(self.reasons)}"
        return f"{self.subject}: not refuted ({self.would_have_found})"

    def _repr_html_(self) -> str:
        """Return verdict, claim and what was tried as a card, for notebooks."""
        tried = [(found.attack, f"{found.outcome}: {found.summary}") for found in self.findings]
        rows: list[tuple[str, object]] = [
            ("verdict", self.verdict),
            *[("because", reason) for reason in self.reasons],
            ("power", self.would_have_found),
            ("subject", self.subject),
            *promise_rows(self.claim),
            *[(f"measured {found.metric}", found) for found in self.measured],
            *tried,
        ]
        return card("Audit", rows, simulated=self.claim.simulated)
