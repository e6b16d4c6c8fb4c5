"""Every module imports only downward, and heavy libraries stay where they belong."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

LAZY = {"opendp"}


def lint_imports(root, config):
    command = shutil.which("lint-imports", path=Path(sys.executable).parent)
    assert command, "import-linter is not installed; install the dev extra"
    return subprocess.run(
        [command, "--config", str(config), "--no-cache"],
        cwd=root,
        env=os.environ | {"NO_COLOR": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )


def test_every_contract_is_kept(root):
    result = lint_imports(root, root / "pyproject.toml")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]


def test_a_wrong_order_would_be_noticed(root, tmp_path):
    """The linter sees the package: with two stages swapped it must complain."""
    config = tmp_path / "importlinter.ini"
    config.write_text(
        "[importlinter]\nroot_package = sordino\n\n[importlinter:contract:1]\nname = swapped\n"
        "type = layers\nlayers =\n    sordino.privacy\n    sordino.cli\n",
        encoding="utf-8",
    )
    result = lint_imports(root, config)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "swapped BROKEN" in result.stdout


def test_every_stage_is_a_layer(root, modules):
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (contract for contract in contracts if contract["type"] == "layers")
    listed = {
        name.strip(" ()")
        for layer in layers["layers"]
        for name in layer.replace(":", "|").split("|")
    }
    stages = {module.stage for module in modules} - {"__init__", "__main__", "_version"}
    assert stages - listed == set(), "stages that no layer places"


@pytest.mark.parametrize("library", sorted(LAZY))
def test_slow_libraries_are_imported_inside_functions(modules, library):
    """They cost .3 to .6 s each; whoever does not need them must not wait."""
    at_top = [
        f"{module.name}:{node.lineno}"
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(
            name.split(".")[0] == library
            for name in [getattr(node, "module", None) or "", *(a.name for a in node.names)]
        )
    ]
    assert at_top == []
