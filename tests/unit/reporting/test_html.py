"""Every page is safe, complete, self-contained and readable without a picture."""

import copy
import json
import re
from importlib.resources import files

import pytest

from sordino.errors import DataError
from sordino.reporting import render_report, summarize
from sordino.reporting.html import _render_audit

from .conftest import CALIBRATION, LEDGER, PARTS, RESULT
from .pages import HOSTILE, Reader, audit, claim, found, measured, of_rankings, page_of, words


def whole(result, **more):
    """The page of a run, by way of JSON."""
    summary = summarize(result, **more)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summarize(result, **more) == summary
    return render_report(json.loads(json.dumps(summary)))


def everything(**guarantee):
    result = copy.deepcopy(RESULT | PARTS)
    result["guarantee"] |= guarantee
    result["reward"]["method"] = "mixture"
    return result


LEAKING = audit(
    measured(5.72391, claimed=0.1),
    promise=claim(0.1),
    findings=[found("position", "refutes", recovered=1.0), found("time", "skipped")],
    confidential=True,
)
MORE = {"calibration": CALIBRATION, "ledger": LEDGER}
PAGES = {
    "a guarantee alone": lambda: whole({"guarantee": RESULT["guarantee"]}),
    "a run": lambda: whole(RESULT, **MORE),
    "all parts": lambda: whole(everything(), **MORE),
    "rankings": lambda: whole(of_rankings()),
    "an audited run": lambda: whole(everything(), audits=[audit(), LEAKING], **MORE),
    "no promise": lambda: whole(everything(epsilon="inf")),
    "an audit": lambda: _render_audit(LEAKING),
    "audits": lambda: _render_audit([LEAKING, audit(measured(0.9, upper=1.04, power=1.08))]),
    "nothing tried": lambda: _render_audit(audit(findings=[])),
}


@pytest.fixture(params=PAGES)
def any_page(request):
    page = PAGES[request.param]()
    assert PAGES[request.param]() == page  # always the same
    return page


@pytest.fixture
def page(result, ledger, calibration):
    return page_of(result, calibration=calibration, ledger=ledger)


def test_pages_are_well_formed_self_contained_small_and_run_nothing(any_page):
    reader = Reader(any_page)
    ids, labelled = reader.values("id"), reader.values("aria-labelledby")
    assert len(ids) == len(set(ids))
    assert sorted(ids) == sorted(labelled)
    assert "://" not in any_page
    assert len(any_page.encode()) < 100_000
    for tag, attrs in reader.tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "href", "xlink:href", "xmlns", "srcset", "data"} & set(attrs)
        assert not [name for name in attrs if name.startswith("on")]
    for outside in ("@import", "url("):
        assert outside not in any_page
    assert "default-src 'none'" in any_page


def test_pictures_and_tables_can_be_read_aloud(any_page):
    reader = Reader(any_page)
    pictures = [attrs for tag, attrs in reader.tags if tag == "svg" and "width" in attrs]
    named = [attrs["aria-label"] for attrs in pictures if attrs.get("role") == "img"]
    assert all(attrs.get("role") == "img" or attrs["aria-hidden"] == "true" for attrs in pictures
               if attrs["width"] == "100%")  # fmt: skip
    assert all(len(label) > 20 for label in named)
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("caption") == tags.count("table")
    assert tags.count("title") >= 1 + len(named)
    assert tags.count("h1") == 1
    assert all("scope" in attrs for tag, attrs in reader.tags if tag == "th")


def test_colors_of_figures_are_variables_only(any_page):
    assert not re.search(r'(fill|stroke|style|color)="', any_page[any_page.index("<body") :])
    style = any_page[any_page.index("<style>") : any_page.index("</style>")]
    rules = re.findall(r"(?:fill|stroke): ([^;]+);", style)
    assert rules
    assert all(rule == "none" or rule.startswith("var(--") for rule in rules)


def test_names_are_escaped_and_addresses_in_them_are_defused(full, ledger, calibration):
    bad = HOSTILE
    ledger |= {"data": bad, "head": bad}
    ledger["entries"][0].update(event=bad, parameters={bad: bad}, scope=bad, release_id=bad)
    full |= {"caveats": [bad], "noise": bad}
    full["reward"] |= {"features": {bad: bad}, "method": bad}
    full["decisive"]["rows"][0]["name"] = bad
    full["policy"]["pessimism"]["kind"] = bad
    example = full["examples"]["rows"][0]
    example["prompt"] = example["answers"][0]["text"] = bad.replace("://", ": //")
    refuting = found(bad, "refutes", details={bad: bad})
    tried = audit(findings=[refuting], subject=bad)
    report = page_of(full, calibration=calibration, ledger=ledger, audits=tried)
    for page in (report, _render_audit(tried)):
        for evil in ("<script", "<svg onload", "://", "\u202e"):
            assert evil not in page
        assert bad.replace("\u202e", "\ufffd") in Reader(page).words
    assert report.count("&lt;script&gt;") >= 12
    assert f"Privacy report: {bad[:20]}" in words(report)


def test_the_numbers_are_on_the_page(page):
    text = Reader(page).words
    for told in (
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
        "sordino ledger verify --head",
        "deleted",
        "randomized-response",
        "epsilon 2.0, categories 2",
        "64.0% ± 2.4 points (95%)",
        "Log loss 0.66",
        "log 2 = 0.693",
        "0.97",
        "randomized labels, debiased, of pairs that were held out",
        "61.0% (58.0% to 64.0%, 95%)",
        "0.05",
        "2,100 pairs",
        "59.0%",
        "0.011",
        "randomized-at-ingestion",
        "whoever holds the raw file, saw the raw labels",
        "3.2 seconds",
        "512",
    ):
        assert told in text, told


def test_calibration_is_drawn_clipped_and_says_so(page, result, calibration):
    assert "2 of 3 groups reach outside 0 to 1" in words(page)
    assert "−5.0%" in words(page)
    assert page.count('class="cut"') == 2
    assert page.count('class="dot hollow"') == 1
    ends = [float(y) for y in re.findall(r'class="range thin".*?y1="([\d.-]+)"', page)]
    assert all(12 <= y <= 332 for y in ends)
    inside = page_of(result, calibration=calibration[1:2])
    assert "reach outside" not in inside
    assert 'class="cut"' not in inside


def test_bars_are_as_long_as_the_numbers(page, result, ledger):
    assert '<rect class="fill" x="0" y="0" width="66.67%"' in page
    assert 'class="band" x1="61.65%" x2="66.35%"' in page
    assert 'class="soft" x="11.92%" y="28" width="76.16%"' in page
    ledger["total"] = {**ledger["total"], "epsilon": 9.0}
    over = page_of(result, ledger=ledger)
    assert '<rect class="over" x="0" y="0" width="100.00%"' in over
    assert "over the budget" in over


def test_simulated_runs_carry_the_banner_first_and_others_do_not(page, result):
    assert "SIMULATED" not in page
    assert 'class="banner"' not in page
    result["guarantee"]["randomness"] = "simulated"
    reader = Reader(page_of(result))
    assert reader.values("class")[0] == "banner"
    for told in ("SIMULATED", "From a seed: simulated, not private.", "In this run it does not"):
        assert told in reader.words


def test_metrics_that_were_not_released_leave_no_hole(result, ledger):
    for part in ("reward", "policy", "public_evaluation", "truth"):
        result[part] = dict.fromkeys(result[part])
    text = words(result, ledger=ledger)
    assert "None" not in text.replace("None were", "")
    assert "nan" not in text.split()
    for absent in ("Accuracy", "Win rate", "KL regret", "On public data", "From randomized"):
        assert absent not in text


def test_a_guarantee_alone_makes_a_page_without_the_other_sections(result):
    page = page_of({"guarantee": result["guarantee"]})
    assert Reader(page).values("id") == ["guarantee", "caveats", "verify"]
    assert "None were recorded." in words(page)
    assert "ε = ∞" in PAGES["no promise"]()
    assert "50% before" not in PAGES["no promise"]()


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.5, 3.0, 50.0])
def test_the_belief_figure_stays_inside_its_track(result, epsilon):
    result["guarantee"]["epsilon"] = epsilon
    page = page_of(result)
    start, width = re.search(r'class="soft" x="([\d.]+)%" y="28" width="([\d.]+)%"', page).groups()
    assert 0 <= float(start) <= 50
    assert float(start) * 2 + float(width) == pytest.approx(100, abs=0.02)


def contrast(one, other):
    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_enough_contrast_in_both_modes():
    folder = files("sordino.reporting").joinpath("templates")
    style, own = (folder.joinpath(name).read_text("utf-8") for name in ("report.css", "audit.css"))
    modes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    ]
    alarms = re.findall(r"--alarm: (#[0-9a-f]{6});", own)
    assert len(alarms) == len(modes) == 2
    assert modes[0].keys() >= modes[1].keys()
    for colors, alarm in zip(modes, alarms, strict=True):
        for text in (colors["ink"], colors["muted"], colors["accent"], alarm):
            assert contrast(text, colors["paper"]) >= 4.5
            assert contrast(text, colors["card"]) >= 4.5
        assert contrast(colors["ink"], colors["track"]) >= 4.5
        assert contrast(colors["on-danger"], colors["danger"]) >= 4.5
        assert contrast(colors["accent"], colors["track"]) >= 3.0
        assert min(contrast(alarm, colors["track"]), contrast(alarm, colors["soft"])) >= 3.0


@pytest.mark.parametrize("wrong", [{}, {"format": "sordino.summary", "version": 2}])
def test_a_summary_of_another_kind_is_refused(wrong):
    with pytest.raises(DataError, match="summarize"):
        render_report(wrong)
