"""The source as syntax trees, read once, for rules that hold everywhere."""

import ast
import importlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "sordino"


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    tree: ast.Module

    @property
    def leaf(self):
        return self.name.rpartition(".")[2]

    @property
    def stage(self):
        """The folder or file right below the root: ``privacy``, ``errors``, ..."""
        return [*self.name.split("."), "__init__"][1]


@dataclass(frozen=True)
class Definition:
    """A class or a function that is not local to another function."""

    module: Module
    node: ast.AST
    parents: tuple = field(default=())

    @property
    def name(self):
        return self.node.name

    @property
    def where(self):
        path = self.module.path.relative_to(ROOT)
        return f"{path}:{self.node.lineno} {'.'.join([*self.parents, self.name])}"

    @property
    def public(self):
        return not any(part.startswith("_") for part in [*self.parents, self.name])

    @property
    def is_function(self):
        return isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef)

    @cached_property
    def docstring(self):
        return ast.get_docstring(self.node) or ""

    @property
    def arguments(self):
        given = self.node.args
        return [*given.posonlyargs, *given.args, *given.kwonlyargs]

    @property
    def keyword_only(self):
        return {
            argument.arg: ast.unparse(argument.annotation) if argument.annotation else ""
            for argument in self.node.args.kwonlyargs
        }

    @cached_property
    def calls(self):
        """Last name of everything that is called inside, with the line of the call."""
        found = []
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call):
                target = node.func
                name = getattr(target, "attr", None) or getattr(target, "id", None)
                found.append((name, node.lineno))
        return found


def _is_overload(node):
    """Return whether this is but a signature of a function that follows."""
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)


def definitions_in(module, body=None, parents=()):
    for node in module.tree.body if body is None else body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not (
            isinstance(node, ast.FunctionDef) and _is_overload(node)
        ):
            yield Definition(module, node, parents)
        if isinstance(node, ast.ClassDef):
            yield from definitions_in(module, node.body, (*parents, node.name))


def resolves(dotted):
    """Return whether a dotted name is something that can be imported."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            value = getattr(value, name, None)
        return value is not None
    return False


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def modules():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        found.append(Module(name, path, ast.parse(path.read_text(encoding="utf-8"))))
    assert len(found) > 50, "the source was not found"
    return found


@pytest.fixture(scope="session")
def definitions(modules):
    return [definition for module in modules for definition in definitions_in(module)]


@pytest.fixture(scope="session")
def functions(definitions):
    return [definition for definition in definitions if definition.is_function]
