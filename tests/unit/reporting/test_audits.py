"""An audit in words, in pictures and on a page: nothing is softened, nothing is promised."""

import json
import math
import re
from pathlib import Path

import pytest
from tests.tiers import few

import sordino
from sordino.auditing.findings import ATTACKS, Finding
from sordino.errors import UsageError
from sordino.reporting import render_report, summarize
from sordino.reporting.audits import _describe_audit
from sordino.reporting.html import _interval_values, _render_audit, write_audit

from .pages import Reader, audit, claim, found, measured, words

SOFT = re.compile(
    r"\b(prov(e|es|ed|en)|proof|verif\w+|safe\w*|secure\w*|certain\w*)\b", re.IGNORECASE
)


@pytest.fixture
def leaking():
    """A release that three attacks break."""
    return audit(
        measured(5.72391, claimed=0.1),
        measured(0.02, claimed=0.1, upper=0.211, power=0.31),
        promise=claim(0.1, caveats=("labels-only",)),
        findings=[
            found("flip-rate", p_value=0.42, details={"interval": [0.44, 0.51], "rows": 2100}),
            found("position", "refutes", recovered=1.0, p_value=0.0),
            found("repeats", "warning"),
            found("seed", "refutes", recovered=0.9996, p_value=3.2e-9),
            found("time", "skipped"),
            found("id-hash", "refutes", recovered=1.0),
            found("row-order", recovered=0.503),
        ],
        confidential=True,
    )


@pytest.fixture
def kept():
    """A mechanism that one attack does not break, on every scale."""
    return audit(
        measured(0.9, upper=1.04, power=1.08),
        measured(1.95, metric="mu", claimed=2.0, upper=2.04),
        measured(0.0, metric="bounded range", claimed=2.0, upper=0.3, power=2.6),
        findings=[found("distinguishing-game", p_value=0.4)],
        kind="mechanism",
        subject="RandomizedResponse(epsilon=1.0)",
    )


# What an audit says.


def test_bounds_are_rounded_away_from_what_they_bound():
    number = measured(
        0.123456, claimed=0.333331, upper=0.555551, power=0.777771, confidence=0.999999999
    )
    (row,) = _describe_audit(audit(number))["measured"]
    assert (row["claimed_text"], row["lower_text"]) == ("0.3334", "0.1234")
    assert (row["upper_text"], row["power_text"]) == ("0.5556", "0.7778")
    assert row["confidence_text"] == "99.9999%"


@pytest.mark.parametrize(
    ("claimed", "lower"),
    [(0.10001, 0.10002), (1.0, 1 + 1e-9), (1.0, math.nextafter(1, 2)), (0, 1e-300)],
)
def test_a_broken_claim_never_looks_kept_after_rounding(claimed, lower):
    number = measured(lower, claimed=claimed)
    refuting = audit(number, findings=[found(outcome="refutes")])
    (row,) = _describe_audit(refuting)["measured"]
    assert row["beyond"]
    assert row["breaks"]
    shown = [
        text.replace(" × 10⁻³⁰⁰", "e-300") for text in (row["lower_text"], row["claimed_text"])
    ]
    assert float(shown[0]) > float(shown[1])


def test_beyond_the_claim_is_no_refutation_unless_an_attack_refutes():
    told = _describe_audit(audit(measured(1.1)))
    assert told["measured"][0]["beyond"]
    assert not told["measured"][0]["breaks"]
    page = _render_audit(audit(measured(1.1)))
    assert "not as clearly as a refutation needs" in words(page)
    assert "breaks" not in page[page.index("<body") :]


def test_what_refutes_comes_first_and_the_order_is_kept_within(leaking):
    told = _describe_audit(leaking)
    names = [row["attack"] for row in told["findings"]]
    assert names == ["position", "seed", "id-hash", "repeats", "time", "flip-rate", "row-order"]
    assert told["verdict"] == "REFUTED"
    assert (told["breaks"], told["tried"]) == (3, 6)
    assert "3 attacks break it, of 6 that were tried" in told["statement"]


def test_shares_are_never_rounded_up_to_all(leaking):
    rows = {row["attack"]: row for row in _describe_audit(leaking)["findings"]}
    assert rows["position"]["recovered_text"] == "100%"
    assert rows["seed"]["recovered_text"] == "99.96%"
    almost = _describe_audit(audit(findings=[found(recovered=1 - 1e-9)]))["findings"][0]
    assert almost["recovered_text"] == "99.99%"


@pytest.mark.parametrize(
    ("chance", "text"),
    [
        (1.0, "in 100% of audits"),
        (0.0231, "in 2.4% of audits"),
        (3.2e-9, "at most once in 3.1 × 10⁸ audits"),
        (1e-3, "at most once in 1,000 audits"),
        (1e-13, "less than once in 10¹² audits"),
        (0.0, "less than once in 10¹² audits"),
        (None, ""),
        (math.nan, ""),
    ],
)
def test_chance_is_told_in_words_and_never_as_less_than_it_is(chance, text):
    (row,) = _describe_audit(audit(findings=[found(p_value=chance)]))["findings"]
    assert row["chance_text"] == text


def test_every_attack_of_the_page_has_a_title_and_a_sentence():
    page = (Path(__file__).parents[3] / "docs/auditing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", page, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"[a-z-]+", row)}
    assert len(listed) > 30
    assert listed <= set(ATTACKS)
    for name, told in ATTACKS.items():
        title, tries = told["title"], told["tries"]
        (row,) = _describe_audit(audit(findings=[found(name)]))["findings"]
        assert (row["title"], row["tries"]) == (title, tries)
        assert title != name
        assert tries.endswith(".")
        assert tries[0].isupper()
    unknown = audit(findings=[found("made-up")])
    assert "made-up" in words(_render_audit(unknown))
    (row,) = _describe_audit(unknown)["findings"]
    assert (row["title"], row["tries"]) == ("made-up", "")


def test_a_warning_is_not_told_as_evidence_against_the_claim():
    page = words(_render_audit(audit(findings=[found(outcome="warning", p_value=1e-4)])))
    assert "Chance alone gives such evidence at most once in 10,000 audits." in page
    assert "If the claim were true" not in page


def test_nothing_tried_says_nothing():
    assert "says nothing" in _describe_audit(audit(findings=[]))["statement"]
    assert (
        "says nothing" in _describe_audit(audit(findings=[found(outcome="skipped")]))["statement"]
    )
    page = words(_render_audit(audit(findings=[])))
    assert "Nothing was tried." in page
    assert "Not refuted" in page


def test_without_a_claim_there_is_nothing_to_break():
    endless = audit(measured(math.inf, claimed=math.inf), promise=claim(math.inf))
    assert "No limit is claimed" in _describe_audit(endless)["statement"]
    page = words(_render_audit(endless))
    assert "ε = ∞" in page
    assert "makes no promise" in page


def test_no_word_promises_more_than_an_audit_can(leaking, kept):
    for told in (leaking, kept, audit(findings=[])):
        text = words(_render_audit(told))
        assert not SOFT.search(text), SOFT.search(text)
    assert not [name for name, parts in ATTACKS.items() if SOFT.search(" ".join(parts.values()))]
    assert SOFT.search("This is proved safe.")  # the pattern sees such words


# The pictures.


def place(text):
    return float(text.rstrip("%"))


def one_panel(*numbers, promise=None):
    (panel,) = _interval_values(_describe_audit(audit(*numbers, promise=promise)))
    return panel


def test_a_linear_axis_has_equal_steps():
    panel = one_panel(measured(1.95, claimed=1.0, upper=2.0))
    (row,) = panel["rows"]
    unit = place(panel["claim"])
    assert unit == pytest.approx(100 / 2.3, abs=0.01)
    assert place(row["low"]) == pytest.approx(1.95 * unit, abs=0.02)
    assert place(row["high"]) == pytest.approx(2 * unit, abs=0.02)
    ticks = {tick["text"]: place(tick["x"]) for tick in panel["ticks"]}
    assert ticks == pytest.approx({"0": 0, "1": unit, "2": 2 * unit}, abs=0.02)


def test_no_line_is_drawn_where_an_attack_gives_no_upper_bound():
    (row,) = one_panel(measured(5.7, claimed=0.1), promise=claim(0.1))["rows"]
    assert row["high"] is None
    page = _render_audit(audit(measured(5.7, claimed=0.1), promise=claim(0.1)))
    figure = page[page.index('<svg class="bar') : page.index("</svg>")]
    assert 'class="forced' in figure
    assert 'class="reach' not in figure


def test_infinity_has_a_place_of_its_own():
    panel = one_panel(measured(math.inf), measured(8.9))
    first, second = panel["rows"]
    assert (first["low"], first["text"]) == ("100.00%", "unlimited")
    assert place(second["low"]) < 90
    assert panel["ticks"][-1]["text"] == "10"  # and no mark for what is unlimited
    endless = one_panel(measured(2.0, claimed=math.inf), promise=claim(math.inf))
    assert endless["claim"] is None
    assert endless["claim_text"] == "no limit is claimed"


SIZES = [0.0, 5e-324, 1e-300, 1e-9, 1.0, 9.99, 1e5, 1e300, 1.7e308, math.inf]


@pytest.mark.parametrize("claimed", SIZES)
@pytest.mark.parametrize("lower", few(SIZES, SIZES[0], SIZES[4], SIZES[-1]))
def test_every_size_stands_inside_and_in_order(claimed, lower):
    panel = one_panel(measured(lower, claimed=claimed, upper=lower, power=claimed))
    (row,) = panel["rows"]
    places = [place(tick["x"]) for tick in panel["ticks"]]
    assert places == sorted(set(places))
    assert 1 <= len(places) <= 7
    ends = [at for at in (panel["claim"], row["low"], row["high"]) if at is not None]
    inside = [*map(place, ends), *places]
    assert all(0 <= x <= 100 for x in inside)
    assert row["high"] is None or place(row["low"]) <= place(row["high"])
    if claimed < lower:
        assert place(panel["claim"]) <= place(row["low"])


def test_each_scale_and_each_claim_has_a_figure_of_its_own(kept):
    panels = _interval_values(_describe_audit(kept))
    assert [panel["scale"] for panel in panels] == [
        "ε per label: less privacy to the right",
        "μ: less privacy to the right",
        "bounded range: less privacy to the right",
    ]
    mixed = audit(measured(0.1), measured(0.2, metric="mu"), measured(0.3))
    assert [len(panel["rows"]) for panel in _interval_values(_describe_audit(mixed))] == [2, 1]


def test_figures_say_in_words_what_they_show(leaking, kept):
    panels = _interval_values(_describe_audit(leaking))
    assert panels[0]["label"] == (
        "ε: claimed: 0.1; measured at least 5.723 with 99.9% confidence; measured at least 0.02 "
        "and at most 0.211 with 99.9% confidence; would have detected 0.31 or more."
    )
    for page, number in ((_render_audit(leaking), 1), (_render_audit(kept), 3)):
        figures = re.findall(r'<svg[^>]*role="img" aria-label="([^"]+)".*?</svg>', page, re.DOTALL)
        assert len(figures) == page.count("<desc>") == number


def test_bars_are_red_only_where_an_attack_refutes(leaking):
    assert [row["breaks"] for row in _interval_values(_describe_audit(leaking))[0]["rows"]] == [
        True,
        False,
    ]


def test_names_of_a_file_that_are_too_long_are_cut():
    name = "n" * 3000
    finding = Finding(
        attack="column", outcome="warning", summary=f"Column {name} tells.", details={name: 1}
    )
    many = Finding(attack="column", outcome="warning", summary="many names " * 300)
    page = _render_audit(audit(findings=[finding, many], subject=name))
    assert "n" * 160 + "…" in page
    assert "n" * 161 not in page
    assert page.count("many names") < 100
    assert f"Column {'n' * 160}… tells." in page


# The page.


GUARANTEE = {**claim().to_dict(), "trust": "central"}


def report(*audits):
    return render_report(summarize({"guarantee": GUARANTEE}, audits=audits))


def test_the_page_says_what_was_claimed_measured_and_tried(leaking):
    told = Reader(_render_audit(leaking)).words
    for text in (
        "Audit: answers.jsonl",
        "REFUTED",
        "It does not hold. The claim reads:",
        "ε = 0.1",
        "at most 52.5% after",
        "≥ 5.723",
        "Only judgments are protected",
        "Order of the two answers",
        "Breaks the claim",
        "Came of seed.",
        "Reads out 99.96% of the labels.",
        "chance alone would give such evidence at most once in 3.1 × 10⁸ audits",
        "would have detected 0.31 or more",
        "Not tried",
        "at most once in 1,000 audits",
        sordino.__version__,
    ):
        assert text in told, text
    assert told.index("Came of position") < told.index("Came of repeats")


def test_confidential_audits_and_simulated_claims_say_so_first(leaking, kept):
    seeded = audit(promise=claim(randomness="simulated", caveats=("simulated",)))
    confidential = "CONFIDENTIAL Computed from raw judgments: not for publication."
    pages = {_render_audit(leaking): confidential, report(kept, leaking): confidential}
    pages |= {_render_audit(seeded): "SIMULATED Randomness came from a seed"}
    for page, text in pages.items():
        assert text in words(page)
        assert Reader(page).values("class")[0] == "banner"
    for absent in ("CONFIDENTIAL", "SIMULATED", 'class="banner"'):
        assert absent not in _render_audit(kept)


def test_a_verdict_is_red_or_it_is_not(leaking, kept):
    refuted, other = _render_audit(leaking), _render_audit(kept)
    assert '<dd class="breaks">REFUTED</dd>' in refuted
    assert "<dd>Not refuted</dd>" in other
    assert "REFUTED" not in other
    both = report(leaking, kept)
    assert '<strong class="badge breaks">REFUTED</strong>' in both
    assert '<strong class="badge">Not refuted</strong>' in both


def test_a_report_tells_what_was_tried_and_is_silent_where_nothing_was(full, kept, leaking):
    page = render_report(summarize(full))
    assert "tried against it" not in page
    assert ".finding" not in page
    page = render_report(summarize(full, audits=kept))
    assert "audits" in Reader(page).values("id")
    for text in ("What was tried against it", "RandomizedResponse(epsilon=1.0)", "Not refuted"):
        assert text in words(page)
    told = words(render_report(summarize(full, audits=[leaking])))
    assert "Too weak a promise. An audit refutes what is claimed" in told
    assert "An audit refutes what is claimed" not in words(page)
    assert "REFUTED What is claimed of answers.jsonl does not hold." in told


def test_infinite_numbers_survive_json():
    endless = audit(measured(math.inf, upper=math.inf, power=math.inf), promise=claim(math.inf))
    summary = summarize({"guarantee": GUARANTEE}, audits=[endless])
    assert render_report(json.loads(json.dumps(summary, allow_nan=False))) == report(endless)


def test_pages_are_written_whole_and_never_over_another(tmp_path, kept, leaking):
    path = tmp_path / "audit.html"
    write_audit(path, kept)
    assert path.read_text(encoding="utf-8") == _render_audit(kept)
    with pytest.raises(UsageError, match="exists already"):
        write_audit(path, leaking)
    write_audit(path, leaking, force=True)
    assert "REFUTED" in path.read_text(encoding="utf-8")


def test_one_page_from_a_certificate(tmp_path, leaking, open_ledger, linear_world):
    pairs, _ = linear_world(60, 2)
    ledger = open_ledger(2.0)
    private = sordino.privatize(pairs, sordino.RandomizedResponse(2.0), ledger=ledger)
    certificate = sordino.certify(sordino.fit_reward(private, ridge=1.0), ledger)
    sordino.write_report(tmp_path / "a.html", certificate)
    sordino.write_report(tmp_path / "b.html", certificate, ledger=ledger, audits=leaking)
    short, full = ((tmp_path / name).read_text(encoding="utf-8") for name in ("a.html", "b.html"))
    assert "://" not in short + full
    assert ledger.head.digest in full
    assert "tried against it" not in short
    assert "What was tried against it" in full
    with pytest.raises(UsageError, match="exists already"):
        sordino.write_report(tmp_path / "a.html", certificate)
