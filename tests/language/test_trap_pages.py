"""The pages say what was measured, lead somewhere, and none is missing from the index."""

import json
import math
import re
from pathlib import Path

import pytest
from scipy.stats import t

ROOT = Path(__file__).resolve().parents[2]
TRAPS = ROOT / "docs" / "traps"
DOCS = ROOT / "docs"
PAGES = sorted([*TRAPS.glob("*.md"), DOCS / "language_models.md", DOCS / "howto/large_models.md"])
OUTSIDE = re.compile(r"\.\./shared|spec/\w+\.md|/home/|/tmp/|/root/|\bissue \d")


@pytest.fixture(scope="module")
def measured():
    """Return what the benchmark recorded."""
    stored = ROOT / "benchmarks" / "results" / "language_traps.json"
    return json.loads(stored.read_text(encoding="utf-8"))


def page(name):
    return (TRAPS / f"{name}.md").read_text(encoding="utf-8")


def short(value, digits=3):
    """Return a number below one as the pages write it."""
    return f"{value:.{digits}f}".removeprefix("0")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    assert OUTSIDE.findall(text) == []
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (path.parent / target).is_file(), f"{path.name} → {target}"


def test_the_index_lists_every_page():
    listed = set(re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", page("README"), re.MULTILINE))
    assert listed == {path.name for path in TRAPS.glob("*.md")} - {"README.md"}


def interval(row, runs):
    """A mean with its 95% interval; of two runs, how far they are apart."""
    if runs == 2:
        return f"{row['mean']:.3f}, {row['standard_deviation'] * math.sqrt(2):.3f} apart"
    half = t.ppf(0.975, runs - 1) * row["standard_deviation"] / math.sqrt(runs)
    return f"{row['mean']:.3f} ± {half:.3f}"


@pytest.mark.parametrize(
    ("name", "trap"), [("plain-reward-loss", "reward_scale"), ("dpo-label-smoothing", "dpo_scale")]
)
def test_scales(measured, name, trap):
    found = measured[trap]
    for way, slope in found["slope"].items():
        cells = interval(slope, found["runs"])
        share = f"{found['share_of_unflipped'][way]:.2f}"
        assert f"| {way.replace('epsilon=', 'ε = ')} | {cells} | {share} |" in page(name), way
    assert f"{found['pairs']:,} pairs" in page(name)
    assert re.search(rf"(of|over) {found['runs']} runs", page(name))


def test_the_smoothing_of_the_default_loss_is_ignored(measured):
    assert measured["dpo_scale"]["smoothing_is_ignored"] is True
    assert "are the same bit by bit" in page("dpo-label-smoothing")


def test_texts_of_fine_tuning(measured):
    for name, row in measured["sft_texts"].items():
        counts = [row[key] for key in list(row)[1:5]]
        cells = " | ".join(f"{count:,}" for count in counts)
        line = f"| {name}, {row['pairs']:,} | {cells} | {short(row['labels_recovered'])} |"
        assert line in page("sft-on-chosen")
    for way, row in measured["likelihoods"].items():
        if isinstance(row, dict):
            cells = " | ".join(short(value) for value in row.values())
            assert f"| {way} | {cells} |" in page("sft-on-chosen")


def test_long_pairs(measured):
    found = measured["overlong"]
    for length in (64, 128, 256):
        reward, dpo = (found[f"max_length={length}"][kind] for kind in ("reward", "dpo"))
        line = (
            f"| {length} | {reward['kept']:,} | {reward['characters_of_a_kept_answer']} | "
            f"{short(reward['longer_is_preferred_among_kept'])} | "
            f"{dpo['an_answer_lost_its_end']:,} | {dpo['only_the_chosen_lost_its_end']} / "
            f"{dpo['only_the_rejected_lost_its_end']} | {dpo['dropped_because_of_the_prompt']} |"
        )
        assert line in page("overlong-pairs")


def test_borders(measured):
    shown = re.findall(r"^\| .* \| ([\d,]+) \| ([\d,]+) \|$", page("border-tokens"), re.MULTILINE)
    rows = [row for row in measured["borders"].values() if isinstance(row, dict)]
    assert [tuple(f"{value:,}" for value in row.values()) for row in rows] == shown


def test_padding(measured):
    for row in measured["padding"].values():
        agrees, other, slope = (row[key] for key in list(row)[1:])
        assert f"| {short(agrees)} | {short(other)} | {short(slope, 2)} |" in page("padding-token")


def test_validation(measured):
    text = page("validation-metrics")
    for name, share in measured["checkpoint_choice"].items():
        if name.endswith("pairs"):
            n = int(name.split()[0])
            assert f"| {n:,} | {short(share)} |" in text
    for name in ("split_by_row", "split_by_question"):
        value = short(measured["repeated_questions"][name])
        assert f"| {name.removeprefix('split_').replace('_', ' ')} | {value} |" in text
    for epsilon, row in measured["accuracy"].items():
        if isinstance(row, dict):
            cells = " | ".join(short(value) for value in row.values())
            assert f"| ε = {epsilon.removeprefix('epsilon=')} | {cells} |" in text


def test_repeated_prompts(measured):
    text = " ".join(page("validation-metrics").split())
    for name, row in measured["repeated_prompts"].items():
        shown = rf"{name}\D+{row['rows']}\D+{row['pairs']:,}\D+{row['most']}\D"
        assert re.search(shown, text), name


def test_defaults(measured):
    text = page("trainer-defaults")
    for field in measured["defaults"]["telemetry"]["fields"]:
        assert f"`{field}`" in text
    for way, times in measured["defaults"]["step"]["times_slower"].items():
        took = measured["defaults"]["step"]["milliseconds"][way]
        assert f"| {way} | {took} | {times:.2f} |" in text


def test_steps():
    text = (ROOT / "docs" / "language_models.md").read_text(encoding="utf-8")
    for name in ("reward_step", "dpo_step"):
        stored = ROOT / "benchmarks" / "results" / f"{name}.json"
        found = json.loads(stored.read_text(encoding="utf-8"))
        for way, share in found["ours_over_peer_processor"].items():
            took = found["processor_milliseconds"][way]
            assert f"{took} | {share:.3f} |" in text, (name, way)


def test_steps_on_an_accelerator():
    text = (ROOT / "docs" / "language_models.md").read_text(encoding="utf-8")
    for name in ("accelerator", "accelerator_64"):
        stored = ROOT / "benchmarks" / "results" / f"{name}.json"
        found = json.loads(stored.read_text(encoding="utf-8"))
        for trained, case in found["cases"].items():
            named = {"all weights": "all of 110 million", "adapters": "adapters on 1.2 billion"}
            kinds = [case["kinds"][kind] for kind in ("trl, no privacy", "opacus", "ours")]
            cells = [f"{one['milliseconds']:.0f} ms, {one['peak_gb']:.1f} GB" for one in kinds]
            noise = f"{kinds[2]['parts']['noise']:.0f} ms"
            row = [named[trained] + f", {found['pairs']}", *cells, f"{kinds[2]['over_trl']}", noise]
            assert f"| {' | '.join(row)} |" in text


def test_the_table_of_sentence_models_is_what_was_recorded():
    page = (DOCS / "language.md").read_text(encoding="utf-8")
    stored = ROOT / "benchmarks" / "results" / "sentence_embeddings.json"
    found = json.loads(stored.read_text(encoding="utf-8"))
    for features in {row["features"] for row in found["results"]}:
        rows = [row for row in found["results"] if row["features"] == features]
        cells = [
            interval(row, found["runs"]) for row in sorted(rows, key=lambda row: row["epsilon"])
        ]
        assert f"| {features} | {rows[0]['dimension']} | {' | '.join(cells)} |" in page
    assert found["train"] in page
    assert found["evaluate"] in page
