# ruff: noqa: INP001 (mkdocs loads it by its path)
"""What the site shows beyond the pages of this folder.

Added are the reference of the public names, the pages that lie at the root of the repository,
notebooks as they were executed, and the files that pages link to. Links that lead out of this
folder are turned to those, so that they work in a checkout and on the site.
"""

from __future__ import annotations

import ast
import base64
import html
import inspect
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
TWINS = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
STAGES = {
    "errors": "Errors",
    "privacy": "Privacy",
    "mechanisms": "Mechanisms",
    "preferences": "Judgments",
    "privatization": "Randomization",
    "rewards": "Rewards",
    "policies": "Policies",
    "environments": "Simulated worlds",
    "algorithms": "Algorithms",
    "certificates": "Certificates",
    "auditing": "Audits",
    "reporting": "Reports",
    "runs": "Whole runs",
    "language": "Language models",
}
OVERVIEW = """# Python reference

The public names, in the order in which data flows through them. Each is imported when it is first
used. Every name stands in an example that runs: beside it, or in [by example](../by_example.md) or
[language models by example](../language_by_example.md).
"""
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
DOCTEST = re.compile(r"(?:^ {4}>>> .*\n(?:^ {4}\S.*\n?|^ {5,}.*\n?)*)+", re.MULTILINE)
OUTPUT = '<div class="output" id="output-{}"></div>'
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")

BOOST = {  # of pages and folders in the search: what explains comes before what lists
    "noise.md": 3.0, "threat-model.md": 2.0, "howto": 2.0, "traps": 1.5, "ranking.md": 1.5,
    "guides": 1.2, "what_to_sign.md": 2.0, "tutorial.md": 1.5, "reference": 0.4, "cli.md": 0.7,
    "changelog.md": 0.3, "by_example.md": 0.6, "language_by_example.md": 0.6,
}  # fmt: skip

_outputs: dict[str, list[str]] = {}


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading, as repositories make it; see tests/architecture."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
    return kept.strip().replace(" ", separator)


def exported(package: str) -> dict[str, str]:
    """Return public name → module from the stub of a package."""
    tree = ast.parse((ROOT / "src" / package / "__init__.pyi").read_text(encoding="utf-8"))
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {a.asname or a.name: node.module or "" for node in nodes for a in node.names}


def reference() -> dict[str, str]:
    """Return the pages of the public names, by their places: an overview, and one per stage."""
    listed: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for name, module in exported("sordino").items():
        if name != "__version__":
            listed[module.split(".")[0]].append(f"sordino.{name}")
    listed["language"] = [f"sordino.language.{name}" for name in exported("sordino/language")]
    pages = {}
    overview = [OVERVIEW]
    for stage, names in listed.items():
        said = _first_sentence(stage)
        parts = [f"# {STAGES[stage]}\n\n{said}\n"]
        for name in names:
            parts += [f"::: {name}\n", _examples(name)]
        pages[f"reference/{stage}.md"] = "\n".join(parts)
        linked = ", ".join(f"[`{n.rpartition('.')[2]}`]({stage}.md#{n})" for n in names)
        overview.append(f"## {STAGES[stage]}\n\n{said} See [{stage}]({stage}.md).\n\n{linked}\n")
    return {"reference/index.md": "\n".join(overview), **pages}


def _first_sentence(stage: str) -> str:
    """Return how the code of a stage says what it is."""
    package = ROOT / "src" / "sordino" / stage
    path = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
    said = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]
    return said.replace("``", "`").rstrip(".") + "."


def _examples(name: str) -> str:
    """Return where the pages that run as tests use a public name, as a line of links."""
    short = re.escape(name.removeprefix("sordino."))
    found = []
    for file in ("by_example", "language_by_example", "planning", "policy_optimization", "local"):
        text = (ROOT / "docs" / f"{file}.md").read_text(encoding="utf-8")
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            heading, _, body = section.partition("\n")
            code = "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)$", body, re.MULTILINE))
            if re.search(rf"\b(?:sordino\.)?{short}\b", code):
                found.append(f"[{heading}](../{file}.md#{slug(heading)})")
    return f"In an example that runs: {', '.join(found[:3])}\n" if found else ""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make anchors as repositories do."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and what pages link to outside of this folder."""
    made = reference()
    for outside, inside in TWINS.items():
        if outside != "README.md":
            made[inside] = (ROOT / outside).read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        name = f"notebooks/{path.stem}.md"
        made[name], _outputs[name] = notebook(json.loads(path.read_text(encoding="utf-8")))
        files.remove(files.src_uris[f"notebooks/{path.name}"])
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    wanted = set()
    for file in files.documentation_pages():
        text = FENCE.sub("", file.content_string)
        wanted |= {_repository_path(file.src_uri, target) for target, _ in LINK.findall(text)}
    for path in sorted(wanted):
        if not path.startswith("docs/") and path not in TWINS and (ROOT / path).is_file():
            files.append(File.generated(config, f"source/{path}.html", content=_source(path)))
    return files


def _repository_path(page: str, target: str) -> str:
    """Return where a link leads in the repository, seen from a page of the site."""
    outside = {inside: outside for outside, inside in TWINS.items() if inside != "index.md"}
    folder = posixpath.dirname(outside.get(page, f"docs/{page}"))
    return posixpath.normpath(posixpath.join(folder, target))


def _source(path: str) -> str:
    """Return a page that shows a file of the repository."""
    text = html.escape((ROOT / path).read_text(encoding="utf-8"))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{path}</title>'
        '<meta name="viewport" content="width=device-width"><style>:root{color-scheme:light dark}'
        f"</style><h1>{path}</h1><pre>{text}</pre></html>\n"
    )


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turn links that lead out of this folder, fence indented examples, weigh for the search."""
    page.meta["search"] = {"boost": BOOST.get(page.file.src_uri.split("/")[0], 1.0)}

    def turn(found: re.Match[str]) -> str:
        path = _repository_path(page.file.src_uri, found[1])
        if path.startswith("docs/") and page.file.src_uri not in TWINS.values():
            return found[0].replace(".ipynb", ".md")
        if path.startswith("docs/"):
            inside = path.removeprefix("docs/").replace(".ipynb", ".md")
        else:
            inside = TWINS.get(path)
        inside = inside or f"source/{path}.html"
        anchor = found[2] or ""
        return posixpath.relpath(inside, posixpath.dirname(page.file.src_uri) or ".") + anchor

    parts, at = [], 0
    for fence in [*FENCE.finditer(text), None]:
        prose = text[at : fence.start() if fence else len(text)]
        prose = LINK.sub(turn, prose)
        parts.append(DOCTEST.sub(_fenced, prose))
        if fence:
            parts.append(fence[0])
            at = fence.end()
    return "".join(parts)


def _fenced(found: re.Match[str]) -> str:
    """Return an indented example as a fenced one."""
    return f"```pycon\n{inspect.cleandoc(found[0])}\n```\n"


def notebook(read: dict[str, Any]) -> tuple[str, list[str]]:
    """Return an executed notebook as Markdown, and its outputs, which are put in as they are."""
    parts: list[str] = []
    outputs: list[str] = []
    for cell in read["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif cell["cell_type"] == "code" and text.strip():
            parts.append(f"```python\n{text}\n```")
            shown = "".join(map(_shown, cell["outputs"]))
            if shown:
                parts.append(OUTPUT.format(len(outputs)))
                outputs.append(shown)
    return "\n\n".join(parts) + "\n", outputs


def _shown(output: dict[str, Any]) -> str:
    """Return one output of a cell as HTML: what is richest of what a page can show alone."""
    data = output.get("data", {})
    if "text/html" in data:
        return "".join(data["text/html"])
    for kind in ("image/svg+xml", "image/png"):
        if kind in data:
            code = "".join(data[kind])
            if kind == "image/svg+xml":  # as a picture, so that no name in it meets one outside
                code = base64.b64encode(code.encode()).decode()
            code = code.replace("\n", "")
            return f'<img src="data:{kind};base64,{code}" alt="What the lines above draw">'
    text = "".join(output.get("text") or data.get("text/plain") or output.get("traceback") or [])
    return f'<pre tabindex="0">{html.escape(ESCAPES.sub("", text))}</pre>'


def on_page_content(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Put the outputs of a notebook where they belong."""
    for number, shown in enumerate(_outputs.get(page.file.src_uri, [])):
        empty = OUTPUT.format(number)
        text = text.replace(empty, empty.replace("</div>", f"{shown}</div>"))
    return text


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Name the search for those who cannot see it."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
