"""In a real browser the page of an audit fits a phone and a desk, follows the mode, and prints."""

import math
import re

import numpy as np
import pytest

import sordino
from sordino.auditing.findings import Audit, Finding, Measurement
from sordino.reporting import render_report, summarize
from sordino.reporting.html import render_audit

from .test_report import (
    _BROWSER,
    _DANGER,
    _DARK,
    _LIGHT,
    _NAMES,
    _PAPER,
    _TALL,
    _browse,
    _measure,
    _picture,
    _share,
)

pytestmark = pytest.mark.skipif(
    _BROWSER is None, reason=f"no Chromium on this machine (looked for {', '.join(_NAMES)})"
)

_WIDTHS = (360, 700, 1200)
_OUTCOMES = ("clear", "refutes", "warning", "skipped")
_NUMBERS = (
    {"metric": "epsilon", "claimed": 0.1, "lower": 5.7239},
    {"metric": "epsilon", "claimed": 0.1, "lower": 0.02, "upper": 0.211, "power": 0.3101},
    {"metric": "mu", "claimed": 1e-7, "lower": 1.234e-6, "upper": 2e-6, "power": 1.2e-7},
    {"metric": "mu", "claimed": 2.0, "lower": 1.953, "upper": 2.04, "power": 2.301},
    {"metric": "bounded range", "claimed": 3.0, "lower": 0.0, "upper": 0.3, "power": 299_999.0},
    {"metric": "bounded range", "claimed": 90_000.0, "lower": 123_456.7, "power": 1e5},
    {"metric": "epsilon", "claimed": 1.0, "lower": math.inf},
    {"metric": "epsilon", "claimed": 1.0, "lower": 33.3, "power": 1.01},
    {"metric": "epsilon", "claimed": math.inf, "lower": 7.0},
)


def _claim(**more):
    return sordino.Guarantee(
        0.1,
        delta=1.234e-6,
        unit="label",
        neighbors=sordino.REPLACE_ONE,
        trust="local",
        caveats=("labels-only", "person-total"),
        **more,
    )


@pytest.fixture(scope="module")
def told():
    """An audit whose numbers and names are hard to fit."""
    names = ("position", "seed", "a-name-that-somebody-else-chose-" * 4, "flip-rate", "time")
    return Audit(
        kind="release",
        subject="a_very_long_name_without_any_space_" * 4,
        claim=_claim(),
        measured=tuple(Measurement(confidence=0.999999, **numbers) for numbers in _NUMBERS),
        findings=tuple(
            Finding(
                attack=names[place % 5],
                outcome=_OUTCOMES[place % 4],
                summary="What came of it, in a sentence. " * (1 + place % 3) + "w" * 200,
                recovered=None if place % 3 else place / 30,
                p_value=10.0**-place,
                details={"a_long_name_" * 9: "v" * 200, "recipe": {"seed": 1234, "parts": [1, 2]}},
            )
            for place in range(30)
        ),
        confidential=True,
    )


@pytest.fixture(scope="module")
def page(told):
    return render_audit(told)


@pytest.mark.parametrize("width", _WIDTHS)
def test_nothing_is_wider_than_the_window_or_written_over_something_else(page, tmp_path, width):
    seen = _measure(tmp_path, page, width)
    assert seen["wide"] == []
    assert seen["covered"] == []
    assert seen["scroll"] <= width
    assert seen["height"] > 4000  # the page was really laid out
    assert seen["sections"] == ["claim-1", "tried-1", "reading"]


def test_the_measurement_sees_an_overflow_and_texts_on_each_other(page, tmp_path):
    broken = page.replace(
        "</style>", ".findings { width: 700px; } .label { font-size: 40px; }</style>"
    )
    seen = _measure(tmp_path, broken, 360)
    assert "UL" in seen["wide"]
    assert seen["covered"]


@pytest.mark.parametrize("width", [360, 1200])
def test_a_report_with_several_audits_fits(told, tmp_path, width):
    result = {"guarantee": {**_claim().to_dict(), "trust": "central"}}
    seen = _measure(tmp_path, render_report(summarize(result, audits=[told, told])), width)
    assert (seen["wide"], seen["covered"]) == ([], [])
    assert seen["sections"] == ["guarantee", "audits", "caveats", "verify"]


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("mode", [_LIGHT, _DARK])
def test_the_page_follows_the_mode_and_shows_its_banners(page, tmp_path, width, mode):
    picture = _picture(tmp_path, page, width, mode)
    assert picture.shape == (_TALL, width, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50  # not blank
    assert _share(picture, _PAPER[mode]) > 0.3
    assert _share(picture, _PAPER[1 - mode]) < 0.01
    assert _share(picture[:40], _DANGER[mode]) > 0.5


def test_what_is_not_refuted_and_not_confidential_has_no_banner(tmp_path):
    kept = Audit(
        kind="mechanism",
        subject="RandomizedResponse(epsilon=0.1)",
        claim=_claim(),
        measured=(Measurement(metric="epsilon", claimed=0.1, lower=0.09, confidence=0.999),),
        findings=(Finding(attack="position", outcome="clear", summary="Nothing."),),
    )
    picture = _picture(tmp_path, render_audit(kept), 1200)
    assert _share(picture, _DANGER[_LIGHT]) < 0.001


def test_the_page_prints(page, tmp_path):
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    printed = tmp_path / "page.pdf"
    _browse(tmp_path, tmp_path / "page.html", f"--print-to-pdf={printed}", mode=_DARK)
    data = printed.read_bytes()
    assert data.startswith(b"%PDF-")
    pages = max(int(count) for count in re.findall(rb"/Count (\d+)", data))
    assert 4 <= pages <= 25
