"""The page is safe, complete, self-contained and readable without a picture."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from sordino.errors import DataError
from sordino.reporting import render_report, summarize

_VOID = {"meta", "br"}
_SHAPES = {"rect", "line", "circle", "path"}


class _Reader(HTMLParser):
    """Checks that tags nest, and keeps what a test asks about."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in _SHAPES, tag
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def _read(page):
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    reader.words = re.sub(r"\s+", " ", "".join(reader.text))
    return reader


@pytest.fixture
def page(result, ledger, calibration):
    return render_report(summarize(result, calibration=calibration, ledger=ledger))


def test_every_tag_is_closed_and_ids_are_unique(page):
    ids = [attrs["id"] for _, attrs in _read(page).tags if "id" in attrs]
    assert len(ids) == len(set(ids)) > 5


def test_the_page_is_self_contained_small_and_runs_nothing(page):
    assert "://" not in page
    assert len(page.encode()) < 400_000
    for tag, attrs in _read(page).tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "href", "xlink:href", "xmlns", "srcset", "data"} & set(attrs)
        assert not [name for name in attrs if name.startswith("on")]
    assert "@import" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_the_same_input_gives_the_same_bytes(page, result, ledger, calibration):
    assert render_report(summarize(result, calibration=calibration, ledger=ledger)) == page


def test_names_are_escaped_and_addresses_in_them_are_defused(result, ledger, calibration):
    bad = '"><script>alert(1)</script> http://example.org/'
    ledger["data"] = bad
    ledger["head"] = bad
    ledger["entries"][0].update(event=bad, parameters={bad: bad}, scope=bad, release_id=bad)
    result["caveats"] = [bad]
    result["noise"] = bad
    result["reward"]["features"] = {bad: bad}
    text = render_report(summarize(result, calibration=calibration, ledger=ledger))
    assert "<script" not in text
    assert "://" not in text
    reader = _read(text)
    assert bad in reader.words
    assert f"Privacy report: {bad}" in reader.words


def test_the_numbers_are_on_the_page(page):
    words = _read(page).words
    for text in (
        "ε = 2",
        "δ = 0",
        "eε = 7.39",
        "88.1%",
        "11.9%",
        "4,000 pairs",
        "This machine saw the raw labels",
        "REPLACE_ONE",
        "What is not protected",
        "Spent: ε = 2 of 3",
        "Remaining: 1",
        "ab12" * 16,
        "after 4 rows",
        "sordino ledger verify spend.db --head",
        "deleted",
        "randomized-response",
        "epsilon 2.0, categories 2",
        "64.0% ± 2.4 points (95%)",
        "0.660",
        "log 2 = 0.693",
        "0.97",
        "randomized labels, debiased, and on pairs that were held out",
        "61.0% 58.0% to 64.0% (95%)",
        "0.05",
        "2,100 pairs",
        "59.0%",
        "0.011",
        "randomized-at-ingestion",
        "whoever holds the raw file, saw the raw labels",
        "3.2 seconds",
        "512",
    ):
        assert text in words, text


def test_calibration_is_drawn_clipped_and_says_so(page):
    words = _read(page).words
    assert "2 of 3 groups reach outside 0 to 1" in words
    assert "−5.0%" in words
    assert page.count('class="cut"') == 2
    assert page.count('class="dot hollow"') == 1
    ends = [float(y) for y in re.findall(r'class="range thin".*?y1="([\d.-]+)"', page)]
    assert all(12 <= y <= 332 for y in ends)


def test_nothing_is_clipped_when_all_is_inside(result, calibration):
    page = render_report(summarize(result, calibration=calibration[1:2]))
    assert "reach outside" not in page
    assert 'class="cut"' not in page


def test_bars_are_as_long_as_the_numbers(page, result, ledger):
    assert '<rect class="fill" x="0" y="0" width="66.67%"' in page
    assert 'class="band" x1="61.65%" x2="66.35%"' in page
    assert 'class="soft" x="11.92%" y="28" width="76.16%"' in page
    ledger["total"] = {**ledger["total"], "epsilon": 9.0}
    over = render_report(summarize(result, ledger=ledger))
    assert '<rect class="over" x="0" y="0" width="100.00%"' in over
    assert "over the budget" in over


def test_simulated_runs_carry_the_banner_first_and_others_do_not(page, result):
    assert "SIMULATED" not in page
    assert 'class="banner"' not in page
    result["guarantee"]["randomness"] = "simulated"
    reader = _read(render_report(summarize(result)))
    after_body = [attrs.get("class") for _, attrs in reader.tags if attrs.get("class")]
    assert after_body[0] == "banner"
    assert "SIMULATED" in reader.words
    assert "From a seed: simulated, not private." in reader.words
    assert "In this run it does not hold" in reader.words


def test_null_metrics_are_not_available_with_a_reason(result, ledger):
    for part in ("reward", "policy", "public_evaluation", "truth"):
        result[part] = dict.fromkeys(result[part])
    reader = _read(render_report(summarize(result, ledger=ledger)))
    assert reader.words.lower().count("not available") >= 4
    assert reader.words.count("This run did not release it") == 4  # once for each section
    for names in (
        "Accuracy, log loss, calibration slope",
        "Win rate, distance from the reference, temperature",
        "Accuracy, log loss, win rate",
        "KL regret, value, best value",
    ):
        assert names in reader.words
    assert "None" not in reader.words.replace("None were", "")
    assert "nan" not in reader.words.split()
    assert "Calibration plot: not available" in reader.words


def test_a_guarantee_alone_makes_a_page_without_the_other_sections(result):
    reader = _read(render_report(summarize({"guarantee": result["guarantee"]})))
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert ids == ["guarantee", "caveats", "verify"]
    assert "None were recorded." in reader.words


def test_no_promise_has_no_belief_figure(result):
    result["guarantee"]["epsilon"] = "inf"
    page = render_report(summarize(result))
    assert "ε = ∞" in page
    assert "50% before" not in page


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.5, 3.0, 50.0])
def test_the_belief_figure_stays_inside_its_track(result, epsilon):
    result["guarantee"]["epsilon"] = epsilon
    page = render_report(summarize(result))
    start, width = re.search(r'class="soft" x="([\d.]+)%" y="28" width="([\d.]+)%"', page).groups()
    assert 0 <= float(start) <= 50
    assert float(start) * 2 + float(width) == pytest.approx(100, abs=0.02)


def test_pictures_and_tables_can_be_read_aloud(page):
    reader = _read(page)
    pictures = [attrs for tag, attrs in reader.tags if tag == "svg"]
    assert len(pictures) == 5
    for attrs in pictures:
        assert attrs["role"] == "img"
        assert len(attrs["aria-label"]) > 20
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("caption") == tags.count("table") == 2
    assert tags.count("title") >= 1 + len(pictures)
    assert tags.count("h1") == 1
    assert all("scope" in attrs for tag, attrs in reader.tags if tag == "th")
    labelled = [attrs["aria-labelledby"] for tag, attrs in reader.tags if tag == "section"]
    assert set(labelled) == {attrs["id"] for _, attrs in reader.tags if "id" in attrs}


def test_colors_of_figures_are_variables_only(page):
    body = page[page.index("<body") :]
    assert not re.search(r'(fill|stroke|style|color)="', body)
    style = page[page.index("<style>") : page.index("</style>")]
    rules = re.findall(r"(?:fill|stroke): ([^;]+);", style)
    assert rules
    assert all(rule == "none" or rule.startswith("var(--") for rule in rules)


def _luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def _contrast(one, other):
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_enough_contrast_in_both_modes():
    style = files("sordino.reporting").joinpath("templates/report.css").read_text("utf-8")
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    )
    for colors in (light, dark):
        for text in ("ink", "muted", "accent"):
            for ground in ("paper", "card"):
                assert _contrast(colors[text], colors[ground]) >= 4.5, (text, ground)
        assert _contrast(colors["ink"], colors["track"]) >= 4.5
        assert _contrast(colors["on-danger"], colors["danger"]) >= 4.5
        assert _contrast(colors["accent"], colors["track"]) >= 3.0
    assert light.keys() >= dark.keys()


def test_a_summary_of_another_kind_is_refused():
    for wrong in ({}, {"format": "sordino.summary", "version": 2}):
        with pytest.raises(DataError, match="summarize"):
            render_report(wrong)
