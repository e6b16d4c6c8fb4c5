"""The installed trl and transformers have what is used of them, and what they removed is said."""

import ast
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import sordino
from sordino.errors import UsageError
from sordino.language import CentralRewardConfig, PrivateDPOConfig, PrivateRewardConfig


def test_the_installed_release_has_what_is_imported():
    found = defaultdict(set)
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in Path(sordino.__file__).parent.rglob("*.py")
    }
    naming = {path: text for path, text in texts.items() if re.search("trl|transformers", text)}
    for path, text in naming.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                if node.module.split(".")[0] in {"trl", "transformers"}:
                    found[node.module].update(alias.name for alias in node.names)
            elif isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
                assert not names & {"trl", "transformers"}, path
    assert "DPOTrainer" in found["trl"]
    lacking = {
        (module, name)
        for module, names in found.items()
        for name in names
        if not hasattr(import_module(module), name)
    } - {("transformers.utils", "logging")}  # a module of it
    assert lacking == set()


@pytest.mark.parametrize(
    ("config", "name", "said"),
    [
        (PrivateDPOConfig, "max_prompt_length", r"trl 1\.0 removed it\. Use max_length"),
        (PrivateDPOConfig, "rpo_alpha", r"trl 1\.0 removed it\. Leave it out"),
        (PrivateRewardConfig, "learning_rat", r"Look at its name again"),
        (CentralRewardConfig, "max_target_length", r"trl 0\.20 removed it"),
    ],
)
def test_settings_that_a_release_removed_are_told_from_mistakes(tmp_path, config, name, said):
    with pytest.raises(UsageError, match=f"has no setting '{name}': {said}.*Nothing was trained"):
        config(str(tmp_path), **{name: 1})
