"""Feature maps: bounded for every text, the same everywhere, blind to all other rows."""

import hashlib
import json

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.preferences import features
from sordino.preferences import features as _tokens
from sordino.preferences.features import (
    SIGNALS,
    FunctionFeatures,
    HashedText,
    differences,
    features_from_dict,
)

EXTREME = [
    "",
    " ",
    "\n\n\t ",
    "\u00a0\u3000",
    "a",
    "?" * 5000,
    "!?." * 300,
    "word " * 20000,
    "I can't. " * 999,
    "1 " * 500,
    "`" * 77,
    "- item\n" * 400,
    "x" * 200_000,
    "👩‍👩‍👧‍👦🎻" * 50,
    "，。？" * 40,
    "\ud800 lone",
    "\x00\xff\uffff",
    "http://www. " * 30,
    "’" * 9,
    "i you maybe sorry no " * 100,
]
TEXTS = st.one_of(
    st.sampled_from(EXTREME), st.text(max_size=80), st.text("I?!. -\n1,a'", max_size=90)
)
FIXED = [
    ("What is a fugue?", "A fugue is a piece for several voices, built on one subject."),
    ("How do I tune a viola?", "I'm not sure. Do you have a tuner?"),
    ("List 3 keys", "Sure!\n1. C\n2. G (one sharp)\n- D: two sharps, see http://example.org"),
    ("", ""),
    ("Größe?", "“Ça va” – 🎻 don’t"),
]
DIGEST = "91099e4d6e127dc08456be738bebca0a9c541b8314eab0510463958da560cde4"


def norms(rows):
    if scipy.sparse.issparse(rows):
        rows = rows.toarray()
    return np.sqrt((rows.astype(np.longdouble) ** 2).sum(axis=1))


def digest(rows):
    whole = hashlib.sha256()
    for part, kind in ((rows.indptr, "<i8"), (rows.indices, "<i8"), (rows.data, "<f8")):
        whole.update(part.astype(kind).tobytes())
    return whole.hexdigest()


def dense(map_, prompts, answers):
    return map_.transform(prompts, answers).toarray()


def signal(name, answer, prompt=""):
    """Return one signal of one answer, as it was before centering and scaling."""
    row = dense(HashedText(), [prompt], [answer])[0, list(SIGNALS).index(name)]
    return row / 0.4 + SIGNALS[name]


class TestHashedTextBound:
    @settings(max_examples=150)
    @given(
        st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5),
        st.sampled_from([1, 2, 3, 7, 57, 64, 512, 2**20]),
        st.sampled_from([1e-100, 0.3, 1.0, 7.0, 1e100]),
        st.sampled_from([0.0, 0.15, 1.0]),
    )
    def test_no_text_passes_the_bound(self, rows, dimension, bound, word_norm):
        map_ = HashedText(dimension, feature_bound=bound, word_norm=word_norm)
        found = map_.transform(*zip(*rows, strict=True))
        assert found.shape == (len(rows), dimension)
        assert found.dtype == np.float64
        assert np.isfinite(found.data).all()
        found.data /= bound
        assert (norms(found) <= 1).all()

    @pytest.mark.parametrize(
        "setting",
        [
            {"dimension": 0},
            {"dimension": 2**31},
            {"dimension": 5.0},
            {"feature_bound": 0.0},
            {"feature_bound": np.inf},
            {"feature_bound": np.nan},
            {"feature_bound": 1e-101},
            {"feature_bound": 1e101},
            {"word_norm": -0.1},
            {"word_norm": 1.1},
        ],
    )
    def test_settings_that_could_not_hold_are_refused(self, setting):
        with pytest.raises(UsageError, match=next(iter(setting))):
            HashedText(**setting)


class TestHashedTextIsAFixedFunction:
    def test_digest(self):
        rows = HashedText().transform(*zip(*FIXED, strict=True))
        assert digest(rows) == DIGEST

    @settings(max_examples=60)
    @given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), st.data())
    def test_a_row_depends_on_nothing_else(self, rows, data):
        index = data.draw(st.integers(0, len(rows) - 1))
        together = (
            HashedText(96, word_norm=1.0).transform(*zip(*rows, strict=True)).toarray()[index]
        )
        alone = HashedText(96, word_norm=1.0).transform(*zip(rows[index], strict=True)).toarray()[0]
        assert together.tobytes() == alone.tobytes()

    def test_chunks_change_nothing(self, monkeypatch):
        prompts, answers = zip(*(FIXED * 9), strict=True)
        whole = HashedText().transform(prompts, answers)
        apart = differences(HashedText(), prompts, answers, answers[::-1])
        monkeypatch.setattr(features, "_CHUNK", 100)
        assert digest(HashedText().transform(prompts, answers)) == digest(whole)
        assert digest(differences(HashedText(), prompts, answers, answers[::-1])) == digest(apart)

    def test_forgetting_words_changes_nothing(self, monkeypatch):
        prompts, answers = zip(*FIXED, strict=True)
        whole = HashedText().transform(prompts, answers)
        monkeypatch.setattr(_tokens, "_CACHED", 2)
        assert digest(HashedText().transform(prompts, answers)) == digest(whole)

    def test_the_memory_of_words_is_bounded(self, monkeypatch):
        monkeypatch.setattr(_tokens, "_CACHED", 10)
        numbers = _tokens.Numbers()
        _tokens._tokenize([" ".join(f"w{i}" for i in range(1000))], numbers)
        assert len(numbers) <= 10

    def test_a_word_cannot_pass_for_the_end_of_a_text(self):
        numbers = _tokens.Numbers()
        end = numbers["\uffff".encode()]
        numbers[b"forged"] = end & 0xFFFFFFFF  # a word that was made to have the same CRC-32
        assert len(_tokens._tokenize(["a forged b", "c"], numbers).ends) == 2

    def test_the_mark_between_texts_is_taken_out_of_texts(self):
        marked = [text.replace(" ", "\uffff") for _, text in FIXED]
        whole = HashedText().transform([""] * 5, [text for _, text in FIXED])
        found = HashedText().transform([""] * 5, marked)
        assert (found.toarray() == whole.toarray())[:, len(SIGNALS) :].all()


class TestHashedWords:
    def words(self, text, width=4096):
        tokens = _tokens._tokenize([text], _tokens.Numbers())
        return _tokens._hashed_words(tokens, width).toarray()[0]

    def test_case_punctuation_and_curly_quotes_do_not_matter(self):
        assert (self.words("Don’t – “STOP”!") == self.words("don't stop")).all()

    def test_repeats_are_damped(self):
        found = np.sort(np.abs(self.words("a a a a b")))[::-1]
        # 1×(start a), 3×(a a), (a b), (b end), 4×a, b: each √(count / 11)
        assert found[:2] == pytest.approx(np.sqrt(np.array([4, 3]) / 11))


class TestSignals:
    @pytest.mark.parametrize(
        ("name", "low", "high"),
        [
            ("words, saturating at 20", "two words", "now here are five words"),
            ("words, saturating at 150", "two words", "now here are five words"),
            ("root of words", "two words", "now here are five words"),
            ("brevity", "now here are five words", "two words"),
            ("commas", "a b", "a, b"),
            ("share of questions", "Yes. Really?", "Yes? Really?"),
            ("refusals", "You can do it.", "I can't do it."),
            ("refusals", "It is not far.", "I'm not sure."),
            ("sentences", "One two.", "One. Two."),
            ("questions only", "Yes. What?", "What? Why?"),
            ("ends with a question", "What? Yes.", "Yes. What? "),
            ("speaks of itself", "They like it", "I like it"),
            ("speaks to the reader", "They like it", "You like it"),
            ("opens with a question", "Yes, who knows", "Who knows"),
            ("opens by agreeing", "They are", "Sure they are"),
            ("opens by denying", "They do", "No they do"),
            ("word length", "a bc de", "lengthy expressions here"),
            ("figures", "in May", "in 1977"),
            ("cut off", "It ended.", "It ended and"),
            ("list items", "a\nb", "- a\n- b"),
            ("list items", "1977.\n5.4\n", "1. a\n2) b"),
            ("lines", "a b", "a\nb"),
            ("exclamations", "Yes.", "Yes!"),
            ("hedges", "It is", "Maybe it is"),
            ("links", "see there", "see http://a.b"),
            ("code", "run it", "run `it`"),
            ("asides", "a b", "a (b)"),
            ("colons", "a b", "a: b"),
        ],
    )
    def test_it_tells_these_apart(self, name, low, high):
        assert signal(name, low) < signal(name, high)

    def test_shared_words_are_those_of_the_own_prompt(self):
        place = list(SIGNALS).index("shared words")
        rows = dense(HashedText(), ["red fox", "blue owl"], ["a Red fox", "a red fox"])[:, place]
        shared = rows / 0.4 + SIGNALS["shared words"]
        assert shared == pytest.approx([2 / 5, 0])


class TestMessages:
    @pytest.mark.parametrize(
        "bad",
        [
            None,
            3,
            b"secret",
            {"role": "secret"},
            [{"role": "user"}],
            ["secret"],
            [{"role": "user", "content": ["secret"]}],
            [{"role": 1, "content": "secret"}],
        ],
    )
    def test_what_is_no_text_is_refused_by_index(self, bad):
        with pytest.raises(DataError, match=r"answers\[1\]") as caught:
            HashedText().transform(["p", "q"], ["fine", bad])
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
        with pytest.raises(DataError, match=r"second\[0\]"):
            differences(HashedText(), ["p"], ["fine"], [bad])


class TestDifferences:
    @settings(max_examples=60)
    @given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=5))
    def test_swapping_changes_the_sign_only(self, rows):
        prompts, first, second = zip(*rows, strict=True)
        map_ = HashedText(64, word_norm=1.0)
        one = differences(map_, prompts, first, second)
        other = differences(map_, prompts, second, first)
        assert (one.toarray() == -other.toarray()).all()
        assert (norms(one) <= 2).all()

    def test_they_are_the_difference_of_the_rows(self):
        prompts, answers = zip(*FIXED, strict=True)
        expected = dense(HashedText(), prompts, answers) - dense(
            HashedText(), prompts, answers[::-1]
        )
        found = differences(HashedText(), prompts, answers, answers[::-1])
        assert isinstance(found, scipy.sparse.csr_array)
        assert (found.toarray() == expected).all()
        assert expected.any()

    def test_lengths_must_agree(self):
        with pytest.raises(DataError, match="2 prompts, 1 first, 2 second"):
            differences(HashedText(), ["a", "b"], ["c"], ["d", "e"])
        with pytest.raises(DataError, match="1 prompts, 0 answers"):
            HashedText().transform(["a"], [])
        with pytest.raises(DataError, match="answers must be a sequence of texts"):
            HashedText().transform(["a", "b"], "ab")


def constant(rows):
    return lambda _prompts, _answers: rows


class TestFunctionFeatures:
    @settings(max_examples=150)
    @given(
        arrays.arrays(
            float, (3, 4), elements=st.floats(allow_nan=False, allow_infinity=False, width=64)
        ),
        st.sampled_from([1e-9, 1.0, 3.0]),
    )
    def test_no_row_passes_the_bound(self, rows, bound):
        map_ = FunctionFeatures(constant(rows), dimension=4, feature_bound=bound, name="f")
        found = map_.transform([""] * 3, [""] * 3)
        assert (norms(found) <= bound).all()
        with np.errstate(over="ignore"):
            inside = np.sqrt((rows**2).sum(axis=1)) < bound * (1 - 1e-9)
        assert (found[inside] == rows[inside]).all()

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_what_is_not_finite_is_refused_by_index(self, bad):
        rows = np.array([[0.0, 1.0], [2.0, 3.0], [bad, 77.0]])
        map_ = FunctionFeatures(constant(rows), dimension=2, name="f")
        with pytest.raises(DataError, match="row 2") as caught:
            map_.transform(["secret"] * 3, ["secret"] * 3)
        assert "secret" not in str(caught.value)
        assert "77" not in str(caught.value)

    @pytest.mark.parametrize(
        "rows",
        [[[1.0]], [1.0, 2.0], [[1.0, 2.0]] * 3, [[1.0], [1.0, 2.0]], [["secret", "b"]] * 2, None],
    )
    def test_a_wrong_shape_or_type_is_refused(self, rows):
        with pytest.raises(DataError) as caught:
            FunctionFeatures(constant(rows), dimension=2, name="f").transform(["p"] * 2, ["a"] * 2)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        "setting", [{"dimension": 0}, {"feature_bound": -1.0}, {"name": ""}, {"name": None}]
    )
    def test_settings_are_checked(self, setting):
        with pytest.raises(UsageError, match=next(iter(setting))):
            FunctionFeatures(constant([]), **{"dimension": 2, "name": "f", **setting})
        with pytest.raises(UsageError, match="callable"):
            FunctionFeatures("f", dimension=2, name="f")


class TestFiles:
    def test_hashed_text_comes_back(self):
        map_ = HashedText(128, feature_bound=2.0, word_norm=0.3)
        assert features_from_dict(json.loads(json.dumps(map_.to_dict()))) == map_

    def test_a_function_is_given_and_never_stored(self):
        function = constant([[1.0, 2.0]])
        map_ = FunctionFeatures(function, dimension=2, name="mine")
        stored = json.loads(json.dumps(map_.to_dict()))
        assert stored == {"kind": "function", "dimension": 2, "feature_bound": 1.0, "name": "mine"}
        assert features_from_dict(stored, features=map_) == map_
        with pytest.raises(UsageError, match="Pass features=sordino"):
            features_from_dict(stored)
        with pytest.raises(DataError, match="These are not the features of the file"):
            features_from_dict(HashedText().to_dict(), features=map_)

    @pytest.mark.parametrize(
        "settings_",
        [
            {},
            [],
            {"kind": "pickle"},
            {"kind": []},
            {"kind": "hashed-text", "secret": 1},
            {"kind": "hashed-text", "dimension": -1},
            {"kind": "hashed-text", "dimension": "secret"},
        ],
    )
    def test_what_is_unknown_is_refused(self, settings_):
        with pytest.raises(DataError, match="kind") as caught:
            features_from_dict(settings_)
        assert "secret" not in str(caught.value)
        assert isinstance(caught.value, SordinoError)


def test_a_text_declares_nothing():
    """Once "no" was taken for a yes."""
    with pytest.raises(PrivacyError, match="declare it"):
        features.caveats_of_reading(known=False, read=False, declared="no")
    assert features.caveats_of_reading(known=False, read=False, declared=True) == (
        "texts-declared",
    )
