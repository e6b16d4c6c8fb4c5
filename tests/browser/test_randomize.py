"""The coin of the page is the library's: same words, same answers, in Python, Chromium and node."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from sordino import RandomizedResponse

_DATA = Path(__file__).resolve().parents[1] / "data" / "randomize_vectors.json"
CASES = json.loads(_DATA.read_text())["cases"]
SOURCE = (files("sordino.collection") / "page" / "randomize.js").read_text("utf-8")
LABELS = (0, 1, 2)

# What stands for the system's coins feeds each word once, and counts how many were asked for.
_RUN = """
async ([address, cases]) => {
  const coin = await import(address);
  let words = [];
  let drawn = 0;
  const feed = (bytes) => {
    drawn += 1;
    bytes.set(Uint8Array.from(words.shift().match(/../g), (two) => parseInt(two, 16)));
    return bytes;
  };
  Object.defineProperty(globalThis.crypto, "getRandomValues", { value: feed, configurable: true });
  return cases.map(({ threshold, words: all }) => [0, 1, 2].map((label) => {
    words = [...all];
    drawn = 0;
    const share = [coin.SECOND, coin.FIRST, coin.UNDECIDED][label];
    const answers = all.map(() => coin.release(share, BigInt(threshold)));
    return `${answers.join("")} ${drawn}`;
  }));
}
"""


def _expected():
    return [
        [f"{case['answers'][str(label)]} {len(case['words'])}" for label in LABELS]
        for case in CASES
    ]


class _Fed:
    """Words that are given, each once."""

    randomness = "simulated"

    def __init__(self, words):
        self._bytes = b"".join(map(bytes.fromhex, words))

    def words(self, n):
        taken, self._bytes = self._bytes[: 8 * n], self._bytes[8 * n :]
        return np.frombuffer(taken, dtype="<u8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"epsilon={case['epsilon']}")
@pytest.mark.parametrize("label", LABELS)
def test_python_gives_the_vectors(case, label):
    coin = RandomizedResponse(case["epsilon"])
    assert str(coin.threshold) == case["threshold"]
    entropy = _Fed(case["words"])
    answers = coin.release(np.full(len(case["words"]), label, dtype=np.int8), entropy=entropy)
    assert "".join(map(str, answers)) == case["answers"][str(label)]
    assert entropy.words(1).size == 0  # one word for each label, no more and no fewer


def _in_node(source, folder):
    module = folder / "coin.mjs"
    module.write_text(source)
    given = json.dumps([str(module), CASES])
    script = folder / "run.mjs"
    script.write_text(f"console.log(JSON.stringify(await ({_RUN})({given})))")
    done = subprocess.run(["node", script], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")


@needs_node
def test_node_gives_the_vectors(tmp_path):
    assert _in_node(SOURCE, tmp_path) == _expected()


def test_chromium_gives_the_vectors(browser, page_files):
    page = browser.new_page()
    page.goto(f"{page_files}/")
    assert page.evaluate(_RUN, [f"{page_files}/page/randomize.js", CASES]) == _expected()
    page.close()


def _forbidden(source):
    """Return what the source of a coin must not hold: other randomness, a branch on the label."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.DOTALL)
    body = re.search(r"function randomize\(.*?\{(.*?)\n\}", code, flags=re.DOTALL)
    branches = re.findall(
        r"\bif\b|\?|\bswitch\b|&&|\|\||\bwhile\b|\bfor\b", body[1] if body else "?"
    )
    drawn = re.findall(r"Math\.random|Date|performance|console|fetch|Storage|indexedDB", code)
    return [*branches, *drawn]


def test_the_source_has_no_branch_on_a_label_and_no_other_randomness():
    assert _forbidden(SOURCE) == []
    page = files("sordino.collection") / "page"
    for file in page.iterdir():
        if file.name.endswith(".js"):
            text = file.read_text("utf-8")
            assert "Math.random" not in text, file.name
            assert "console" not in text, file.name
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(", text
            )
            assert not re.search(r"localStorage|sessionStorage|document\.cookie", text), file.name
            assert len(text.splitlines()) <= 300, file.name


_BUGS = {
    "at most": ("word < count", "word <= count"),
    "the other way": ("word < count", "word >= count"),
    "half the noise": ("word < count", "word < count / 2n"),
    "rounded": ("word < count", "Number(word) < Number(count)"),
    "high half only": ("word < count", "(word >> 32n) < (count >> 32n)"),
    "big-endian": ("getBigUint64(0, true)", "getBigUint64(0, false)"),
    "signed": ("getBigUint64(0, true)", "getBigInt64(0, true)"),
    "undecided says 1": ("UNDECIDED = [1, 2]", "UNDECIDED = [1, 1]"),
    "unfair coin": ("UNDECIDED = [1, 2]", "UNDECIDED = [2, 5]"),
    "undecided by the biased coin": ("BigInt(part)) / BigInt(whole)", "0n) / BigInt(whole)"),
    "no coin": ("Number(word < count) ^ first", "first"),
    "no draw for undecided": (
        "return randomize(share, drawWord(), threshold)",
        "return randomize(share, share[1] === 2 ? 0n : drawWord(), threshold)",
    ),
    "one draw more for 1": (
        "return randomize(share, drawWord(), threshold)",
        "if (share[0] === 1) drawWord(); return randomize(share, drawWord(), threshold)",
    ),
    "a branch": (
        "const first = Number(part === whole);",
        "if (whole === 2) return 0; const first = Number(part === whole);",
    ),
    "other randomness": (
        "return wordFrom(crypto.getRandomValues(new Uint8Array(8)))",
        "return BigInt(Math.floor(Math.random() * 2 ** 53)) << 11n",
    ),
}


@needs_node
@pytest.mark.parametrize("bug", _BUGS)
def test_planted_bugs_are_caught(bug, tmp_path):
    before, after = _BUGS[bug]
    assert SOURCE.count(before) == 1
    mutant = SOURCE.replace(before, after)
    assert _in_node(mutant, tmp_path) != _expected() or _forbidden(mutant)
