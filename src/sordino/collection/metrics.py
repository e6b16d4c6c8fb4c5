"""What a program that watches the service is told: counts since it started, as Prometheus reads.

No label names a person, an invitation or a question, and no count depends on what was answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, float("inf"))
_FAMILIES: Final = {  # and all others are gauges
    "requests_total": ("counter", "Requests by route and status."),
    "request_seconds": ("histogram", "Seconds until a request was answered."),
    "refusals_total": ("counter", "Requests, and answers inside of one, that were refused."),
}


class Metrics:
    """Requests by route and status, how long they took, and refusals by code."""

    def __init__(self) -> None:
        """Begin with none."""
        self._counts: dict[str, dict[str, float]] = {family: {} for family in _FAMILIES}

    def _add(self, family: str, which: str, more: float = 1) -> None:
        self._counts[family][which] = self._counts[family].get(which, 0) + more

    def note(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._add("requests_total", f'{{route="{route}",status="{status}"}}')
        for bound in _BOUNDS:  # in their order, as the format wants them
            end = "+Inf" if bound == _BOUNDS[-1] else bound
            within = f'_bucket{{route="{route}",le="{end}"}}'
            self._add("request_seconds", within, seconds <= bound)
        self._add("request_seconds", f'_sum{{route="{route}"}}', seconds)
        self._add("request_seconds", f'_count{{route="{route}"}}')

    def refuse(self, *codes: str) -> None:
        """Count what was refused."""
        for code in codes:
            self._add("refusals_total", f'{{code="{code}"}}')

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return everything; a gauge has a name and perhaps labels."""
        lines = []
        for family, (kind, told) in _FAMILIES.items():
            lines += [f"# HELP sordino_{family} {told}", f"# TYPE sordino_{family} {kind}"]
            lines += [f"sordino_{family}{which} {n}" for which, n in self._counts[family].items()]
        for name, value in gauges.items():
            lines += [f"# TYPE sordino_{name.partition('{')[0]} gauge", f"sordino_{name} {value}"]
        return "\n".join(lines) + "\n"
