"""In a real browser the page fits a phone and a desk, in both modes."""

import html
import json
import re
import shutil
import subprocess

import pytest

from sordino.reporting import render_report, summarize

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_BROWSER = next((path for path in map(shutil.which, _NAMES) if path), None)
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--virtual-time-budget=4000",
    "--dump-dom",
]
_MEASURE = """
<pre id="out"></pre><script>
onload = () => {
  const doc = document.querySelector("iframe").contentDocument, wide = [];
  for (const element of doc.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (box.width && (box.right > WIDTH + 0.5 || box.left < -0.5)) wide.push(element.tagName);
  }
  document.getElementById("out").textContent = JSON.stringify({
    scroll: doc.documentElement.scrollWidth, wide: wide, height: doc.body.scrollHeight,
    paper: doc.defaultView.getComputedStyle(doc.body).backgroundColor,
  });
};
</script>"""

pytestmark = pytest.mark.skipif(_BROWSER is None, reason="no Chromium on this machine")


def _measure(page, folder, width, *, dark=False):
    """Lay the page out, unchanged, in a frame of the given width, and read its boxes."""
    frame = f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{html.escape(page)}">'
    wrapper = folder / "wrapper.html"
    wrapper.write_text(
        f"<!DOCTYPE html><meta charset=utf-8>{frame}</iframe>"
        + _MEASURE.replace("WIDTH", str(width)),
        encoding="utf-8",
    )
    mode = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [_BROWSER, *_FLAGS, mode, f"--user-data-dir={folder / 'profile'}", wrapper.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    out = re.search(r'<pre id="out">(.*?)</pre>', ran.stdout, re.DOTALL)
    return json.loads(html.unescape(out.group(1)))


@pytest.fixture
def page(result, ledger, calibration):
    ledger["data"] = "a_very_long_name_without_any_space_" * 3
    ledger["entries"][0]["parameters"] = {"noise_multiplier_of_a_long_name": 1.23456789012345}
    ledger["entries"][0]["event"] = "an_event_with_a_name_that_is_much_too_long_for_a_phone"
    result["guarantee"]["randomness"] = "simulated"
    return render_report(summarize(result, calibration=calibration, ledger=ledger))


@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_is_wider_than_the_window(page, tmp_path, width):
    seen = _measure(page, tmp_path, width)
    assert seen["wide"] == []
    assert seen["scroll"] <= width
    assert seen["height"] > 1500  # the page was really laid out


def test_the_measurement_sees_an_overflow(page, tmp_path):
    broken = page.replace("<main>", '<main><div class="wide">x</div>').replace(
        "</style>", ".wide { width: 700px; }</style>"
    )
    seen = _measure(broken, tmp_path, 400)
    assert "DIV" in seen["wide"]
    assert seen["scroll"] >= 700


def test_the_page_follows_the_mode_of_the_system(page, tmp_path):
    light = _measure(page, tmp_path, 400)["paper"]
    dark = _measure(page, tmp_path, 400, dark=True)["paper"]
    assert (light, dark) == ("rgb(250, 249, 246)", "rgb(20, 23, 26)")
