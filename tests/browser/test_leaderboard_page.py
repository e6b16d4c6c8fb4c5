"""In a real browser a board sorts without a script, fits a phone, and shows one group at a time."""

import html
import json
import re

import pytest
from tests.browser.test_pages import _BROWSER, _browse, _framed
from tests.unit.reporting.test_leaderboards import result
from tests.unit.rewards.test_board_files import release

from sordino.reporting import render_report, summarize

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(_BROWSER is None, reason="no Chromium on this machine"),
]
_LOOK = """
<pre id="out"></pre><script>
onload = () => {
  const doc = document.querySelector("iframe").contentDocument;
  const seen = () => [...doc.querySelectorAll(".board tbody tr")]
    .map((row) => [row.getBoundingClientRect(), row.querySelector(".item").firstChild.textContent])
    .filter(([box]) => box.height).sort(([a], [b]) => a.top - b.top).map(([, name]) => name);
  const told = {rating: seen(), scroll: doc.documentElement.scrollWidth};
  doc.querySelector(".by-name").click();
  told.name = seen();
  doc.querySelector(".pick-1").click();
  told.group = seen();
  document.getElementById("out").textContent = JSON.stringify(told);
};
</script>"""


@pytest.mark.parametrize("width", [360, 1200])
def test_a_board_sorts_and_fits(tmp_path, width):
    told = result(release(1, items=("d", "a", "c", "b"), groups=("code",)))
    page = render_report(summarize(told))
    wrapper = _framed(tmp_path, page, width, _LOOK)
    printed = _browse(tmp_path, wrapper, "--window-size=1600,1200", "--dump-dom")
    seen = json.loads(html.unescape(re.search(r'<pre id="out">(.*?)</pre>', printed)[1]))
    assert seen["rating"] == [item["name"] for item in told["leaderboard"]["items"]]
    assert seen["name"] == ["a", "b", "c", "d"]
    assert seen["group"] == ["a", "b", "c", "d"]
    assert seen["scroll"] <= width
