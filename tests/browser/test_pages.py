"""In a real browser the pages of a report and of an audit fit a phone and a desk, and print."""

import html
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest

import sordino
from sordino.auditing.findings import Audit, Finding, Measurement
from sordino.environments.annotators import simulate_pairs
from sordino.policies.gibbs import pessimistic_policy
from sordino.reporting import calibration_bins, render_report, result, summarize
from sordino.reporting.html import _render_audit

image = pytest.importorskip("matplotlib.image")

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_BROWSER = next((path for path in map(shutil.which, _NAMES) if path), None)
_FLAGS = [
    "--headless",
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--virtual-time-budget=4000",
]
_TALL = 900
_DARK, _LIGHT = 0, 1
_PAPER = {_LIGHT: (250, 249, 246), _DARK: (20, 23, 26)}
_DANGER = {_LIGHT: (168, 32, 26), _DARK: (156, 33, 27)}
_MEASURE = """
<pre id="out"></pre><script>
onload = () => {
  const doc = document.querySelector("iframe").contentDocument, wide = [], covered = [];
  for (const item of doc.querySelectorAll("details")) item.open = true;
  for (const element of doc.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (box.width && (box.right > WIDTH + 0.5 || box.left < -0.5)) wide.push(element.tagName);
  }
  for (const svg of doc.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
    texts.forEach((one, i) => texts.slice(i + 1).forEach((other) => {
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (across > 1 && down > 3) covered.push(svg.getAttribute("aria-label"));
    }));
  }
  document.getElementById("out").textContent = JSON.stringify({
    scroll: doc.documentElement.scrollWidth, wide: wide, covered: covered,
    height: doc.body.scrollHeight,
    sections: [...doc.querySelectorAll("h2")].map((title) => title.id),
  });
};
</script>"""

pytestmark = pytest.mark.skipif(
    _BROWSER is None, reason=f"no Chromium on this machine (looked for {', '.join(_NAMES)})"
)


def _browse(folder, address, *options, mode=_LIGHT):
    """Open an address in a browser of its own; return what it printed."""
    command = [
        _BROWSER,
        *_FLAGS,
        f"--blink-settings=preferredColorScheme={mode}",
        f"--user-data-dir={folder / 'profile'}",
        *options,
        address.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def _framed(folder, page, width, script=""):
    """Return a file that shows the page, unchanged, as wide as told: windows have a least width."""
    frame = (
        f'<iframe style="border:0;width:{width}px;height:{_TALL}px" srcdoc="{html.escape(page)}">'
    )
    wrapper = folder / "wrapper.html"
    wrapper.write_text(
        "<!DOCTYPE html><meta charset=utf-8><style>body{margin:0}iframe{display:block}</style>"
        f"{frame}</iframe>{script}",
        encoding="utf-8",
    )
    return wrapper


def _measure(folder, page, width):
    """Lay the page out and read its boxes."""
    wrapper = _framed(folder, page, width, _MEASURE.replace("WIDTH", str(width)))
    printed = _browse(folder, wrapper, "--window-size=1600,1200", "--dump-dom")
    out = re.search(r'<pre id="out">(.*?)</pre>', printed, re.DOTALL)
    return json.loads(html.unescape(out.group(1)))


def _picture(folder, page, width, mode=_LIGHT):
    """Return the first screen of the page as an array of colors, 0 to 255."""
    shot = folder / "shot.png"
    wrapper = _framed(folder, page, width)
    size = f"--window-size={max(width, 600)},{_TALL}"  # a window has a least width, a frame none
    _browse(folder, wrapper, f"--screenshot={shot}", size, mode=mode)
    return np.round(image.imread(shot)[:, :width, :3] * 255).astype(int)


def _share(picture, color):
    """Return which part of a picture has a color."""
    return float((np.abs(picture - np.array(color)).max(axis=2) <= 2).mean())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Everything that a simulated run says, with names that are hard to fit."""
    folder = tmp_path_factory.mktemp("run")
    rows, _ = simulate_pairs(400, seed=3)
    pairs = sordino.read_pairs(list(rows))
    budget = sordino.Guarantee(
        3.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    name = "a_very_long_name_without_any_space_" * 3
    ledger = sordino.Ledger.open(folder / "spend.db", data=name, budget=budget)
    private = sordino.privatize(
        pairs, sordino.RandomizedResponse(2.0), ledger=ledger, simulate_seed=1
    )
    reward = sordino.fit_reward(private, features=sordino.HashedText(dimension=64), ellipsoid=True)
    policy = pessimistic_policy(reward, temperature=0.5, scale=0.3)
    gaps = private.differences(reward.features)
    decisive = result.measure_decisive(reward, gaps, source="comparisons")
    decisive["rows"][0]["name"] = "a feature whose name is far too long to stand on one line " * 3
    shown = result.measure_examples(policy, pairs, source="public")
    shown["rows"][0]["answers"][0]["text"] = "w" * 300 + "…"
    values = {
        **result.describe_guarantee_and_caveats(reward.guarantee),
        "noise": "labels",
        "data": {"pairs": len(private)},
        "reward": {
            "accuracy": 0.64,
            "accuracy_standard_error": 0.05,
            **result.describe_fit_settings(reward),
        },
        "policy": {
            "temperature": 0.5,
            "win_rate": 0.6,
            "win_rate_interval": [0.5, 0.7],
            "pessimism": result.measure_confidence(policy, pairs),
        },
        "utility": result.predict_utility(len(private), gaps, chosen=2.0),
        "decisive": decisive,
        "examples": shown,
        "public_evaluation": {"pairs": 20, "accuracy": 0.6},
        "truth": {"kl_regret": 0.01},
        "seconds": 1.0,
    }
    bins = calibration_bins(gaps @ reward.weights, private.answers, private.flip_probability)
    return summarize(values, calibration=bins, ledger=result.describe_ledger_rows(ledger))


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
def audit():
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


PAGES = {  # what breaks each, which tag is then too wide, the sections it has, pages on paper
    "report": (
        ("<main>", '<main><div class="wide">x</div>', ".wide { width: 700px; }"),
        *("DIV", {"prediction", "decisive", "examples", "policy", "verify"}, 20),
    ),
    "audit": (
        ("<main>", "<main>", ".findings { width: 700px; }"),
        *("UL", {"claim", "tried", "reading"}, 25),
    ),
}
both = pytest.mark.parametrize("kind", PAGES)
NARROW, WIDE = {"report": 400, "audit": 360}, 1200
sizes = pytest.mark.parametrize(("kind", "width"), [*NARROW.items(), *((k, WIDE) for k in PAGES)])


@pytest.fixture
def page(kind, request):
    told = request.getfixturevalue(kind)
    return render_report(told) if kind == "report" else _render_audit(told)


@pytest.mark.parametrize(
    ("kind", "width"), [*NARROW.items(), ("audit", 700), *((kind, WIDE) for kind in PAGES)]
)
def test_nothing_is_wider_than_the_window_or_written_over_something_else(
    page, tmp_path, kind, width
):
    seen = _measure(tmp_path, page, width)
    assert seen["wide"] == []
    assert seen["covered"] == []
    assert seen["scroll"] <= width
    assert seen["height"] > 4000  # the page was really laid out
    assert PAGES[kind][2] <= set(seen["sections"])


@both
def test_the_measurement_sees_an_overflow_and_texts_on_each_other(page, tmp_path, kind):
    (place, more, style), tag, *_ = PAGES[kind]
    style += " .label { font-size: 60px; }"
    broken = page.replace(place, more).replace("</style>", f"{style}</style>")
    seen = _measure(tmp_path, broken, NARROW[kind])
    assert tag in seen["wide"]
    assert seen["scroll"] >= 700 or kind == "audit"
    assert seen["covered"]


@pytest.mark.parametrize("width", [360, 1200])
def test_a_report_with_several_audits_fits(audit, tmp_path, width):
    result = {"guarantee": {**_claim().to_dict(), "trust": "central"}}
    seen = _measure(tmp_path, render_report(summarize(result, audits=[audit, audit])), width)
    assert (seen["wide"], seen["covered"]) == ([], [])
    assert seen["sections"] == ["guarantee", "audits", "caveats", "verify"]


@sizes
@pytest.mark.parametrize("mode", [_LIGHT, _DARK])
def test_the_page_follows_the_mode_and_shows_its_banner(page, tmp_path, width, mode):
    picture = _picture(tmp_path, page, width, mode)
    assert picture.shape == (_TALL, width, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50  # not blank
    assert _share(picture, _PAPER[mode]) > 0.3
    assert _share(picture, _PAPER[1 - mode]) < 0.01
    assert _share(picture[:40], _DANGER[mode]) > 0.5


def test_a_run_that_is_not_simulated_and_a_claim_that_is_kept_have_no_banner(report, tmp_path):
    kept = Audit(
        kind="mechanism",
        subject="RandomizedResponse(epsilon=0.1)",
        claim=_claim(),
        measured=(Measurement(metric="epsilon", claimed=0.1, lower=0.09, confidence=0.999),),
        findings=(Finding(attack="position", outcome="clear", summary="Nothing."),),
    )
    for page in (render_report({**report, "simulated": False}), _render_audit(kept)):
        assert _share(_picture(tmp_path, page, 1200), _DANGER[_LIGHT]) < 0.01


@both
def test_the_page_prints(page, tmp_path, kind):
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    printed = tmp_path / "page.pdf"
    _browse(tmp_path, tmp_path / "page.html", f"--print-to-pdf={printed}", mode=_DARK)
    data = printed.read_bytes()
    assert data.startswith(b"%PDF-")
    pages = max(int(count) for count in re.findall(rb"/Count (\d+)", data))
    assert 4 <= pages <= PAGES[kind][3]
