"""A service as people's devices meet it: what stands wrong in between, and what to do about it.

Checked from outside, by requests that anybody could send. No secret is in them.
"""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from sordino._random import seconds_since_1970

from .refusals import HEADERS
from .study import Study, read_languages, read_page

_SECONDS: Final = 10.0  # for an answer
_MOST_APART: Final = 60  # seconds between two clocks
_FEWEST_DAYS: Final = 7  # of a certificate, or a quarter of its life where that is less
_GUESSES: Final = 60  # the service lets about 30 of one address pass, and then one in two seconds
_FORGED: Final = 3
_FAILURES: Final = (OSError, HTTPException, ValueError, LookupError, TypeError)
# What proxies add to measure, keep or report what people do.
_FOREIGN: Final = ("Age", "Server-Timing", "Set-Cookie", "NEL", "Report-To", "Reporting-Endpoints")


_Told = tuple[bool | None, str]  # None where nothing was checked


@dataclass(frozen=True)
class _Visit:
    """A look at an address; each request has a connection of its own, and follows no redirect."""

    url: str
    study: Study | None = None
    probe: bool = False

    def connection(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection  # it verifies
        return kind(parts.hostname or "", parts.port, timeout=_SECONDS)

    def ask(self, path: str, *, forged: str = "") -> tuple[int, Message, bytes]:
        """Return what a stranger is told, who gives the word "doctor" as a secret."""
        sent = {"Authorization": "Bearer doctor"}
        sent |= {"X-Forwarded-For": forged} if forged else {}
        with closing(self.connection()) as link:
            whole = urlsplit(self.url).path + path
            link.request("GET", whole, headers=sent)
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read()

    def tls(self) -> _Told:
        with closing(self.connection()) as link:
            if not isinstance(link, HTTPSConnection):
                return None, "plain http: the page takes answers on this machine only"
            link.connect()
            certificate: Any = link.sock.getpeercert()
        begins, ends = (
            ssl.cert_time_to_seconds(certificate[f"not{x}"]) for x in ("Before", "After")
        )
        days, life = (ends - seconds_since_1970()) / 86_400, (ends - begins) / 86_400
        return days >= min(_FEWEST_DAYS, life / 4), f"valid for {days:.1f} more days"

    def health(self) -> _Told:
        status, _, body = self.ask("/api/health")
        told = json.loads(body)
        if status != HTTPStatus.OK:
            return False, f"{status}: {told['error']['message']}"
        mine = self.study is None or told["study"] == self.study.id
        return mine, f"it and its database answer; study {told['study']}"

    def clocks(self) -> _Told:
        date = parsedate_to_datetime(self.ask("/api/health")[1]["Date"])
        apart = abs(date.timestamp() - seconds_since_1970())
        return apart <= _MOST_APART, f"{apart:.0f} seconds from this one"

    def headers(self) -> _Told:
        wrong = []
        for path, kept in (("/", "no-cache"), ("/api/health", "no-store")):
            headers = self.ask(path)[1]
            wanted = {**HEADERS, "Cache-Control": kept}
            wrong += [f"{n} changed at {path}" for n in wanted if headers.get_all(n) != [wanted[n]]]
            wrong += [f"{n} added at {path}" for n in _FOREIGN if n in headers]
        return not wrong, ", ".join(wrong) or "as the service sends them"

    def page(self) -> _Told:
        """Compare digest and files with those of this version, with the words of the study."""
        texts = json.loads(self.ask("/api/texts")[2])["languages"]
        page = read_page(read_languages(self.study) if self.study else texts)
        told = json.loads(self.ask("/api/health")[2])["page"]
        if told != page.digest:
            return False, f"digest {told}, and of this version {page.digest}"
        sent = {f"/page/{name}": raw for name, (raw, _) in page.files.items()}
        sent["/"] = page.files["index.html"][0]
        other = [path for path, raw in sent.items() if self.ask(path)[2] != raw]
        own = "" if page.digest == read_page().digest else ", with words of its own"
        same = f"digest {told[:12]}{own}, {len(sent)} files byte by byte"
        return not other, f"other bytes: {', '.join(other)}" if other else same

    def forged(self) -> _Told:
        """Guess until this address is slowed down; then see whether a forged one is as well."""
        if not self.probe:
            return None, "not checked: with --probe some 30 wrong secrets are sent"

        def slowed(forged: str = "") -> bool:
            status = self.ask("/api/admin/status", forged=forged)[0]
            return status == HTTPStatus.TOO_MANY_REQUESTS

        if not any(slowed() for _ in range(_GUESSES)):
            return False, f"{_GUESSES} wrong secrets were not slowed down"
        if any(slowed(f"198.51.100.{number}") for number in range(_FORGED)):
            return True, "whoever forges it is slowed down as well"
        return False, "whoever forges it is not slowed down"


def examine(url: str, study: Study | None = None, *, probe: bool = False) -> list[dict[str, Any]]:
    """Return what each check found at an address, and what to do where it is not well."""
    visit, found = _Visit(url, study, probe), []
    silent = "See whether proxy and service run, and what they write."
    checks = {
        "TLS": (visit.tls, "See why the proxy does not get or renew a certificate."),
        "service": (visit.health, f"Compare address and study. {silent}"),
        "clock": (visit.clocks, "Set both (NTP): invitations end by the one of the service."),
        "headers": (visit.headers, "Let the proxy add, change and keep none."),
        "page": (visit.page, "Serve it with this version, and let the proxy rewrite nothing."),
        "X-Forwarded-For": (
            visit.forged,
            "Let the proxy overwrite it; without one it is believed.",
        ),
    }
    for name, (check, do) in checks.items():
        try:
            ok, what = check()
        except ssl.SSLCertVerificationError as error:
            ok, what = False, str(error.verify_message)
        except _FAILURES as error:
            ok, what, do = False, f"no answer of ours ({type(error).__name__})", silent  # noqa: PLW2901
        told = {"check": name, "ok": ok, "found": what, "do": do if ok is False else ""}
        found.append(told)
        if ok is False and name == "service":
            break  # what follows would fail for the same reason
    return found
