"""The page on sentence models says what was measured."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_is_what_was_recorded():
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    stored = ROOT / "benchmarks" / "results" / "sentence_embeddings.json"
    found = json.loads(stored.read_text(encoding="utf-8"))
    for features in {row["features"] for row in found["results"]}:
        rows = [row for row in found["results"] if row["features"] == features]
        cells = [
            f"{row['mean']:.3f} ± {row['standard_deviation']:.3f}"
            for row in sorted(rows, key=lambda row: row["epsilon"])
        ]
        assert f"| {features} | {rows[0]['dimension']} | {' | '.join(cells)} |" in page
    assert found["train"] in page
    assert found["evaluate"] in page
