"""The site: built without a warning, complete, near at hand, and with nothing from elsewhere."""

import html
import importlib.util
import re
import sys
from pathlib import PurePosixPath

import pytest

import sordino
from sordino import language

PUBLIC = {f"sordino.{name}" for name in sordino.__all__ if name != "__version__"} | {
    f"sordino.language.{name}" for name in language.__all__
}


def read(path):
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def settings(root):
    yaml = pytest.importorskip("yaml", reason="the extra 'docs' is not installed")
    return yaml.safe_load(read(root / "mkdocs.yml"))


@pytest.fixture(scope="module")
def hooks(root):
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    spec = importlib.util.spec_from_file_location("docs_hooks", root / "docs/hooks.py")
    module = sys.modules["docs_hooks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def article(path):
    """Return what a page itself says, without the navigation around it."""
    return re.search(r"<article.*?</article>", read(path), re.DOTALL)[0]


def targets(site, page, text):
    """Return the pages of the site that links of a text lead to."""
    found = set()
    for link in re.findall(r'href="([^"#]+)', text):
        path = (site / page).parent / link
        if "://" not in link and path.suffix == ".html" and path.exists():
            found.add(path.resolve().relative_to(site.resolve()).as_posix())
    return found


def tabs(nav):
    """Return the pages of every tab, in order."""

    def leaves(entry):
        if isinstance(entry, str):
            yield str(PurePosixPath(entry.replace("README.md", "index.md")).with_suffix(".html"))
        else:
            for inside in entry if isinstance(entry, list) else entry.values():
                yield from leaves(inside)

    return [list(leaves(tab)) for tab in nav]


@pytest.mark.deep
def test_every_page_is_two_clicks_from_the_start(built_site, settings):
    """A tab leads to its first page, and that page shows all of its tab beside itself."""
    shown = tabs(settings["nav"])
    pages = {
        path.relative_to(built_site).as_posix()
        for path in built_site.rglob("*.html")
        if path.name != "404.html" and "source" not in path.relative_to(built_site).parts
    }
    assert {page for tab in shown for page in tab} <= pages
    bar = re.search(r'<nav class="md-tabs".*?</nav>', read(built_site / "index.html"), re.DOTALL)[0]
    one = targets(built_site, "index.html", bar + article(built_site / "index.html"))
    two = set()
    for tab in shown:  # what stands beside a page is its tab, as far as the page really links there
        for page in one & set(tab):
            two |= set(tab) & targets(built_site, page, read(built_site / page))
    for page in one - {page for page in one if page.startswith("source/")}:
        two |= targets(built_site, page, article(built_site / page))
    assert pages - one - two - {"index.html"} == set()


@pytest.mark.deep
def test_the_reference_has_every_public_name_with_an_example_and_no_other(built_site):
    found = {}
    for path in (built_site / "reference").glob("*.html"):
        parts = re.split(r'<h2 id="(sordino[\w.]+)" class="doc', article(path))
        found |= dict(zip(parts[1::2], parts[2::2], strict=True))
    assert set(found) == PUBLIC
    for name, text in found.items():
        assert "doc-contents" in text, name
        assert re.search(r"<p>\w", text), f"{name} is not explained"
        runs = '<span class="gp">' in text or "In an example that runs" in text
        assert runs, f"{name} has no example"


@pytest.mark.deep
def test_no_docstring_is_shown_as_it_is_typed(built_site):
    """A role or a prompt that is left over was not understood."""
    for path in (built_site / "reference").glob("*.html"):
        shown = html.unescape(re.sub(r"<pre.*?</pre>", "", article(path), flags=re.DOTALL))
        assert not re.findall(r":\w+:<code>|^\s*>>> |``", shown, re.MULTILINE), path.name


@pytest.mark.deep
def test_commands_are_on_the_site_as_they_are_in_the_manual(built_site, root):
    shown = html.unescape(re.sub(r"<[^>]+>", "", article(built_site / "cli.html")))
    manual = read(root / "docs/cli.md")
    blocks = re.findall(r"^```text\n(.*?)^```$", manual, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 20
    assert [block for block in blocks if block not in shown] == []


@pytest.mark.deep
def test_nothing_is_fetched_from_elsewhere(built_site):
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^ >]+")
    for path in built_site.rglob("*.html"):
        assert fetched.findall(read(path)) == [], path.name
    for path in built_site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", read(path)) == [], path.name


@pytest.mark.deep
def test_links_out_of_the_folder_lead_to_what_they_name(built_site, root):
    page = article(built_site / "local.html")
    found = {link for link in targets(built_site, "local.html", page) if link.startswith("source/")}
    assert found or "../tests/" not in read(root / "docs/local.md")
    shown = read(built_site / "source/tests/soundness/test_ties.py.html")
    assert html.unescape(shown).count(read(root / "tests/soundness/test_ties.py")) == 1


def test_an_executed_notebook_is_shown_with_its_output(hooks):
    cells = [
        {"cell_type": "markdown", "source": ["# A title\n", "and a [link](../tour.md)"]},
        {"cell_type": "code", "source": ["print(1 < 2)"], "outputs": [
            {"output_type": "stream", "text": ["\x1b[1mTrue\x1b[0m < so\n"]},
            {"output_type": "display_data", "data": {"image/png": "aGk=\n", "text/plain": "x"}},
        ]},
        {"cell_type": "code", "source": ["x = 1"], "outputs": []},
    ]  # fmt: skip
    text, (shown,) = hooks.notebook({"cells": cells})
    assert text.startswith("# A title\nand a [link](../tour.md)\n\n```python\nprint(1 < 2)\n```")
    assert "True &lt; so" in shown
    assert 'src="data:image/png;base64,aGk="' in shown
    assert text.count('<div class="output"') == 1


def test_make_docs_counts_warnings(root):
    """With --quiet they are hidden before they are counted, and --strict ends with 0."""
    (built,) = re.findall(r"mkdocs build(.*)", read(root / "Makefile"))
    assert built == " --strict"


@pytest.mark.deep
def test_every_notebook_is_on_the_site(built_site, root):
    there = {path.stem for path in (root / "docs").glob("notebooks/*.ipynb")}
    shown = {path.stem for path in built_site.glob("notebooks/*.html")}
    assert there <= shown
