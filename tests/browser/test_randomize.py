"""The page's coins and dice are the library's: same words, same answers, in browser and node."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from sordino import RandomizedResponse
from sordino.mechanisms.randomized_response import KaryRandomizedResponse
from sordino.preferences.records import Levels

_DATA = Path(__file__).resolve().parents[1] / "data" / "randomize_vectors.json"
VECTORS = json.loads(_DATA.read_text())
CASES, LEVELS, DICE = (VECTORS[name] for name in ("cases", "levels", "dice"))
SOURCE = (files("sordino.collection") / "page" / "randomize.js").read_text("utf-8")
LABELS = (0, 1, 2)

# What stands for the system's coins feeds each word once, and counts how many were asked for.
_RUN = """
async ([address, { cases, levels, dice }]) => {
  const coin = await import(address);
  let words = [];
  let drawn = 0;
  const feed = (bytes) => {
    drawn += 1;
    bytes.set(Uint8Array.from(words.shift().match(/../g), (two) => parseInt(two, 16)));
    return bytes;
  };
  Object.defineProperty(globalThis.crypto, "getRandomValues", { value: feed, configurable: true });
  const tossed = (share, threshold, all) => {
    words = [...all];
    drawn = 0;
    const answers = all.map(() => coin.release(share, BigInt(threshold)));
    return `${answers.join("")} ${drawn}`;
  };
  const rolled = (place, count, threshold, draws) => {
    const answers = draws.map((draw) => {
      words = draw.split(" ");
      const answer = coin.releaseChoice(place, count, BigInt(threshold));
      return words.length === 0 ? answer : "left";
    });
    return answers.join("");
  };
  const numbers = (count) => [...Array(count).keys()];
  return {
    cases: cases.map(({ threshold, words: all }) =>
      [coin.SECOND, coin.FIRST, coin.UNDECIDED].map((share) => tossed(share, threshold, all))),
    levels: levels.map(({ threshold, steps, words: all }) =>
      numbers(steps + 1).map((j) => tossed([j, steps], threshold, all.split(" ")))),
    dice: dice.map(({ threshold, categories, draws }) =>
      [coin.NO_CHOICE, ...numbers(categories)].map((place) =>
        rolled(place, categories, threshold, draws))),
  };
}
"""


def _expected():
    return {
        "cases": [
            [f"{case['answers'][str(label)]} {len(case['words'])}" for label in LABELS]
            for case in CASES
        ],
        "levels": [
            [f"{answers} {len(case['words'].split())}" for answers in case["answers"].values()]
            for case in LEVELS
        ],
        "dice": [list(case["answers"].values()) for case in DICE],
    }


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


@pytest.mark.parametrize("case", LEVELS, ids=lambda case: f"{case['epsilon']}, {case['steps']}")
def test_python_gives_the_vectors_of_levels(case):
    coin, words = RandomizedResponse(case["epsilon"]), case["words"].split()
    assert str(coin.threshold) == case["threshold"]
    assert len(case["answers"]) == case["steps"] + 1
    for step, answers in case["answers"].items():
        entropy = _Fed(words)
        labels = np.full(len(words), Levels(0, case["steps"]).code(step), dtype=np.int8)
        assert "".join(map(str, coin.release(labels, entropy=entropy))) == answers
        assert entropy.words(1).size == 0


@pytest.mark.parametrize("case", DICE, ids=lambda case: f"{case['epsilon']}, {case['categories']}")
def test_python_gives_the_vectors_of_dice(case):
    die = KaryRandomizedResponse(case["epsilon"], case["categories"])
    assert str(die.threshold) == case["threshold"]
    assert list(case["answers"]) == [str(place) for place in range(-1, case["categories"])]
    for place, answers in case["answers"].items():
        for draw, answer in zip(case["draws"], answers, strict=True):
            entropy = _Fed(draw.split())
            assert str(die.release(np.array([int(place)]), entropy=entropy)[0]) == answer
            assert entropy.words(1).size == 0


def test_some_vectors_draw_words_of_the_last_round_anew():
    drawn = {case["categories"]: max(len(draw.split()) for draw in case["draws"]) for case in DICE}
    assert drawn == {2: 3, 3: 5, 4: 5, 10: 7}


def _in_node(sources, folder):
    """Return what each of these sources makes of the vectors; one node runs them all."""
    modules = []
    for number, source in enumerate(sources):
        modules.append(folder / f"coin{number}.mjs")
        modules[-1].write_text(source)
    script = folder / "run.mjs"
    script.write_text(
        f"""const run = {_RUN};
        const made = [];
        for (const module of {json.dumps([str(module) for module in modules])}) {{
          made.push(await run([module, {json.dumps(VECTORS)}]).catch((error) => String(error)));
        }}
        console.log(JSON.stringify(made));"""
    )
    done = subprocess.run(["node", script], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")


@needs_node
def test_node_gives_the_vectors(tmp_path):
    assert _in_node([SOURCE], tmp_path) == [_expected()]


def test_chromium_gives_the_vectors(browser, page_files):
    page = browser.new_page()
    page.goto(f"{page_files}/")
    assert page.evaluate(_RUN, [f"{page_files}/page/randomize.js", VECTORS]) == _expected()
    page.close()


def _forbidden(source):
    """Return what the source of a coin must not hold: other randomness, a branch on the label."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.DOTALL)
    coin = re.search(r"function randomize\(.*?\{(.*?)\n\}", code, flags=re.DOTALL)
    die = re.search(r"function releaseChoice\(.*?\n  \}(.*?)\n\}", code, flags=re.DOTALL)
    bodies = coin[1] + die[1] if coin and die else "?"
    branches = re.findall(r"\bif\b|\?|\bswitch\b|&&|\|\||\bwhile\b|\bfor\b", bodies)
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
    "levels rounded up": (
        "BigInt(part)) / BigInt(whole)",
        "BigInt(part) + BigInt(whole) - 1n) / BigInt(whole)",
    ),
    "levels in floating point": (
        "(((WORDS - 2n * threshold) * BigInt(part)) / BigInt(whole))",
        "BigInt(Math.floor(Number(WORDS - 2n * threshold) * (part / whole)))",
    ),
    "levels less private": ("WORDS - 2n * threshold", "WORDS - threshold"),
    "one level more": ("/ BigInt(whole)", "/ BigInt(whole + 1)"),
    "all levels between are undecided": (
        "BigInt(part)) / BigInt(whole)",
        "BigInt(Math.sign(part))) / 2n",
    ),
    "levels squared": (
        "BigInt(part)) / BigInt(whole)",
        "BigInt(part * part)) / BigInt(whole === 2 ? 2 : whole * whole)",
    ),
    "levels turned": (
        "* BigInt(part))",
        "* BigInt(whole === 2 || part === 0 ? part : whole - part))",
    ),
    "one draw more between levels": (
        "return randomize(share, drawWord(), threshold)",
        "if (share[1] > 2) drawWord(); return randomize(share, drawWord(), threshold)",
    ),
    "die: at most": ("drawWord() < threshold", "drawWord() <= threshold"),
    "die: half the noise": ("drawWord() < threshold", "drawWord() < threshold / 2n"),
    "die: the other way": ("drawWord() < threshold", "drawWord() >= threshold"),
    "die: replaced by itself": ("1 + uniform(categories - 1)", "uniform(categories)"),
    "die: always the next": ("1 + uniform(categories - 1)", "1 + 0 * uniform(categories - 1)"),
    "die: drawn only when replaced": (
        "1 + uniform(categories - 1)",
        "1 + (replaced ? uniform(categories - 1) : 0)",
    ),
    "die: fair only for none": (
        "const fair = uniform(categories);",
        "const fair = choice === NO_CHOICE ? uniform(categories) : 0;",
    ),
    "die: none is the first": ("fair * none", "0 * none"),
    "die: none by the biased die": ("return fair * none + moved * (1 - none)", "return moved"),
    "die: no word anew": ("while (word > last) word = drawWord();", ""),
    "die: one word too many anew": ("word > last", "word >= last"),
    "die: the last round counts": ("WORDS - 1n - (WORDS %", "WORDS - (WORDS %"),
    "die: small numbers": ("Number(word % BigInt(count))", "Number(word) % count"),
    "other randomness": (
        "return wordFrom(crypto.getRandomValues(new Uint8Array(8)))",
        "return BigInt(Math.floor(Math.random() * 2 ** 53)) << 11n",
    ),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Return for each planted bug its source and what it makes of the vectors."""
    assert all(SOURCE.count(before) == 1 for before, _ in _BUGS.values())
    mutants = [SOURCE.replace(*bug) for bug in _BUGS.values()]
    made = _in_node(mutants, tmp_path_factory.mktemp("bugs"))
    return dict(zip(_BUGS, zip(mutants, made, strict=True), strict=True))


@needs_node
@pytest.mark.parametrize("bug", _BUGS)
def test_planted_bugs_are_caught(bug, planted):
    source, made = planted[bug]
    assert made != _expected() or _forbidden(source)
