"""What an audit says: what was claimed, what was measured, what was tried, and the verdict.

An audit refutes a claim, or it does not; it never proves one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from sordino import _validate
from sordino._markup import card
from sordino._version import __version__
from sordino.errors import AuditRefuted
from sordino.privacy.guarantee import Guarantee, float_to_json, never_less, never_more, promise_rows

__all__ = ["Audit", "Finding", "Kind", "Measurement", "Metric", "Outcome"]

_AUDIT_FORMAT = "sordino.audit"
_AUDIT_VERSION = 1

Kind = Literal["mechanism", "release", "run", "training"]
Outcome = Literal["refutes", "warning", "clear", "skipped"]
Metric = Literal["epsilon", "mu", "bounded range"]


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
    # The smallest true value that this attack would have refuted, with probability of at least .95;
    # None if that was not computed.
    power: float | None = None

    def __post_init__(self) -> None:
        _validate.one_of("metric", self.metric, get_args(Metric))
        for name in ("claimed", "lower"):
            object.__setattr__(self, name, _validate.non_negative(name, getattr(self, name)))
        for name in ("upper", "power"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _validate.non_negative(name, value))
        _validate.failure_probability("confidence", self.confidence, zero=False)

    def to_dict(self) -> dict[str, object]:
        """Return the measurement as JSON holds it."""
        numbers = {name: getattr(self, name) for name in ("claimed", "lower", "upper", "power")}
        shown = {k: None if v is None else float_to_json(v) for k, v in numbers.items()}
        return {"metric": self.metric, **shown, "confidence": self.confidence}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One attack that was tried, and what came of it."""

    attack: str  # its name, as in docs/auditing.md
    # `"refutes"`; `"warning"` (suspicious, or bad practice, but no refutation); `"clear"` (tried,
    # found nothing); `"skipped"` (could not be tried).
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

    @classmethod
    def skipped(cls, attack: str, summary: str) -> Finding:
        """Return that an attack could not be tried."""
        return cls(attack=attack, outcome="skipped", summary=summary)

    @classmethod
    def judged(
        cls,
        attack: str,
        *,
        wrong: str = "",
        odd: str = "",
        clear: str = "",
        p_value: float | None = None,
        details: Mapping[str, object] | None = None,
    ) -> Finding:
        """Return a finding that refutes if anything is wrong, and warns if anything is odd."""
        return cls(
            attack=attack,
            outcome="refutes" if wrong else "warning" if odd else "clear",
            summary=" ".join(filter(None, [wrong, odd])) or clear,
            p_value=p_value,
            details=details or {},
        )

    def to_dict(self) -> dict[str, object]:
        """Return the finding as JSON holds it."""
        return {
            "attack": self.attack,
            "outcome": self.outcome,
            "summary": self.summary,
            "recovered": self.recovered,
            "p_value": self.p_value,
            "details": dict(self.details),
        }


@dataclass(frozen=True, kw_only=True)
class Audit:
    """An attempt to refute a privacy claim; what is not refuted is not proved.

    Attributes:
        kind: What was audited: a ``"mechanism"``, a ``"release"`` (a file), a ``"run"`` or
            ``"training"``.
        subject: Its name; never data.
        claim: What it promises.
        findings: Every attack that was tried, and what came of it.
        measured: Numbers that attacks forced out, the decisive one first; may be empty.
        level: Chance that a true claim is refuted, over all attacks together.
        confidential: Whether numbers were computed from raw judgments: then the audit itself is
            not for publication.
    """

    kind: Kind
    subject: str
    claim: Guarantee
    findings: tuple[Finding, ...]
    measured: tuple[Measurement, ...] = ()
    level: float = 1e-3
    confidential: bool = False

    def __post_init__(self) -> None:
        _validate.one_of("kind", self.kind, get_args(Kind))
        _validate.failure_probability("level", self.level, zero=False)

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
    def verdict(self) -> str:
        """Return ``"refuted"`` or ``"not refuted"``; there is no third."""
        return "refuted" if self.refuted else "not refuted"

    @property
    def lower_bound(self) -> float | None:
        """Return the largest lower confidence bound on ε; None if none was measured in ε."""
        bounds = [found.lower for found in self.measured if found.metric == "epsilon"]
        return max(bounds, default=None)

    def require(self) -> Audit:
        """Return this audit if it refutes nothing.

        Raises:
            AuditRefuted: It does; the message names the attacks.
        """
        if self.refuted:
            raise AuditRefuted(
                f"The claim of {self.subject} ({self.claim}) is refuted by "
                f"{', '.join(self.refuted_by)}. Do not publish it, or take it back if it is out."
            )
        return self

    def to_dict(self) -> dict[str, object]:
        """Return the audit as JSON holds it."""
        bound = self.lower_bound
        return {
            "format": _AUDIT_FORMAT,
            "version": _AUDIT_VERSION,
            "kind": self.kind,
            "subject": self.subject,
            "claim": self.claim.to_dict() | {"caveats": list(self.claim.caveats)},
            "verdict": self.verdict,
            "refuted_by": list(self.refuted_by),
            "lower_bound": None if bound is None else float_to_json(bound),
            "measured": [found.to_dict() for found in self.measured],
            "level": self.level,
            "confidential": self.confidential,
            "findings": [found.to_dict() for found in self.findings],
            "sordino": __version__,
        }

    def __str__(self) -> str:
        """Return the verdict and the strongest attack in one line."""
        if self.refuted:
            return f"{self.subject}: REFUTED by {', '.join(self.refuted_by)} ({self.claim})"
        shown = "; ".join(map(_shown, self.measured[:1])) or "no attack worked"
        return f"{self.subject}: not refuted ({shown})"

    def _repr_html_(self) -> str:
        """Return verdict, claim and what was tried as a card, for notebooks."""
        tried = [(found.attack, f"{found.outcome}: {found.summary}") for found in self.findings]
        rows: list[tuple[str, object]] = [
            ("verdict", self.verdict),
            ("subject", self.subject),
            *promise_rows(self.claim),
            *[("measured", _shown(found)) for found in self.measured],
            *tried,
        ]
        return card("Audit", rows, simulated=self.claim.simulated)


def _shown(found: Measurement) -> str:
    """Return a measurement in words; bounds are rounded away from what they bound."""
    text = (
        f"claimed {found.metric}={never_less(found.claimed)}, measured at least "
        f"{never_more(found.lower, 4)} with {100 * found.confidence:g} % confidence"
    )
    if found.power is None or math.isinf(found.power):
        return text
    return f"{text}; would have detected {found.metric} ≥ {never_less(found.power, 4)}"
