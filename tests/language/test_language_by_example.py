"""The page of examples comes out, and every public name of the language part stands in it."""

import doctest
import re
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

from sordino import language
from sordino.language.models.loading import quiet

from .test_hub import FakeHub

PAGE = Path(__file__).parents[2] / "docs/language_by_example.md"


CODE = "\n".join(re.findall(r"^ +(?:>>>|\.\.\.) (.*)$", PAGE.read_text(), re.MULTILINE))


def test_every_name_is_in_an_example():
    assert [n for n in language.__all__ if not re.search(rf"\blanguage\.{n}\b", CODE)] == []


@pytest.mark.deep
def test_all_examples_come_out(tiny_llama, shared_model):
    given = {"model": str(tiny_llama), "sentences": str(shared_model), "hub": FakeHub()}
    with quiet():
        found = doctest.testfile(str(PAGE), module_relative=False, globs=given)
    assert found.failed == 0
    assert found.attempted > len(language.__all__)
