"""What is installed is what was tested: metadata, workflows, images and the wheel itself."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sordino

READ = {"contents": "read"}


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def workflows(root):
    files = sorted((root / ".github/workflows").glob("*"))
    return {file.name: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


def test_every_file_has_the_version_of_the_package(root):
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    recipe = yaml.safe_load((root / "recipe/recipe.yaml").read_text(encoding="utf-8"))
    assert citation["version"] == recipe["context"]["version"] == sordino.__version__


def test_the_recipe_needs_what_the_package_needs(root, project):
    recipe = yaml.safe_load((root / "recipe/recipe.yaml").read_text(encoding="utf-8"))
    needed = {str(Requirement(line)) for line in recipe["requirements"]["run"]}
    named = [f"python{project['requires-python']}", *project["dependencies"]]
    assert needed == {str(Requirement(line)) for line in named}


def test_every_requirement_has_a_tested_version(root, project):
    """A name that constraints.txt lacks was never installed here, or was never pinned."""
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]): line for line in lines if "==" in line}
    extras = project["optional-dependencies"]
    assert {"language", "collect", "scale", "files"} <= set(extras)
    for line in [*project["dependencies"], *(line for each in extras.values() for line in each)]:
        needed = Requirement(line)
        if needed.name == "sordino":
            assert needed.extras <= set(extras)
            continue
        version = pinned[canonicalize_name(needed.name)].partition("==")[2]
        assert needed.specifier.contains(version), line


def test_every_action_is_one_commit(root):
    """A tag can be moved to other code; a commit cannot. Each action has one, and its version."""
    found = {}
    for file in (root / ".github/workflows").iterdir():
        for line in re.findall(r"uses: *(.*)", file.read_text(encoding="utf-8")):
            action = re.fullmatch(r"([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+", line)
            assert action, f"{file.name}: {line}"
            found.setdefault(action[1], set()).add(line)
    assert found
    assert all(len(lines) == 1 for lines in found.values()), found


def test_a_workflow_may_do_only_what_it_needs(workflows):
    """No job has more than reading, but the one that PyPI trusts; none runs what others wrote."""
    assert set(workflows) == {"tests.yml", "docs.yml", "newest.yml", "publish.yml"}
    for name, workflow in workflows.items():
        assert workflow["permissions"] == {}
        assert "pull_request_target" not in workflow[True]  # YAML reads `on` as a boolean
        for job, told in workflow["jobs"].items():
            trusted = (name, job) == ("publish.yml", "pypi")
            assert told["permissions"] == ({"id-token": "write"} if trusted else READ)
            assert told["timeout-minutes"] <= 90
            for step in told["steps"]:
                if "checkout" in step.get("uses", ""):
                    assert step["with"]["persist-credentials"] is False
                assert "${{" not in step.get("run", "")  # a title of a request is no command
    publishing = workflows["publish.yml"]
    assert publishing[True] == {"push": {"tags": ["v*"]}}
    assert [step.get("run") for step in publishing["jobs"]["pypi"]["steps"]] == [None, None]


def test_no_image_runs_as_root(root):
    files = sorted((root / "deploy").glob("*/Dockerfile"))
    assert [file.parent.name for file in files] == ["cli", "collect"]
    for file in files:
        last = file.read_text(encoding="utf-8").rpartition("\nFROM ")[2]
        (user,) = re.findall(r"^USER (\d+):\d+$", last, re.MULTILINE)
        assert int(user) > 0
        assert "COPY --from=build" in last
    assert "dist/sordino-*.whl" in files[0].read_text(encoding="utf-8")


@pytest.mark.deep
def test_the_wheel_needs_no_checkout(root, tmp_path):
    """From an empty environment and an empty folder to a report; no test goes along."""
    pip, environment = [sys.executable, "-m", "pip"], tmp_path / "environment"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*words):
        said = subprocess.run(words, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr[-2000:]
        return said.stdout

    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(root))
    (wheel,) = tmp_path.glob("sordino-*.whl")
    inside = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", "src"], cwd=root, capture_output=True, text=True)
    assert inside == {name.removeprefix("src/") for name in listed.stdout.split()}
    licences = {Path(name).name for name in ZipFile(wheel).namelist() if "/licenses/" in name}
    vendored = (root / "src/sordino/collection/page/vendor").glob("*.LICENSE.txt")
    assert licences == {"LICENSE", *(path.name for path in vendored)}

    run(sys.executable, "-m", "venv", str(environment))
    constraints = ["--constraint", str(root / "constraints.txt")]
    run(
        str(environment / "bin/python"), "-m", "pip", "install", "--quiet", *constraints, str(wheel)
    )
    said = run(str(environment / "bin/sordino"), "demo")
    assert "usable" in said
    assert "<svg" in (tmp_path / "demo/run/report.html").read_text(encoding="utf-8")
