"""A file is as long as its subject, but nobody reads a thousand lines at once."""

MOST_LINES = 900


def test_no_file_is_long(modules, root):
    lines = {
        str(module.path.relative_to(root)): module.path.read_text(encoding="utf-8").count("\n")
        for module in modules
    }
    assert [f"{path}: {n}" for path, n in lines.items() if n > MOST_LINES] == []
