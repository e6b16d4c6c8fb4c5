"""Short files and short functions; the figures are in the failure message."""

import ast
import statistics

MOST_LINES = 400
MEDIAN_LINES = 170
MEDIAN_BODY = 8
LONG_BODY = 30  # for nine functions of ten


def body_lines(node):
    """Lines of a function without signature, decorators and docstring."""
    body = node.body
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
        body = body[1:]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_no_file_is_long(modules, root):
    lines = {
        str(module.path.relative_to(root)): module.path.read_text(encoding="utf-8").count("\n")
        for module in modules
    }
    assert [f"{path}: {n}" for path, n in lines.items() if n > MOST_LINES] == []
    real = [n for path, n in lines.items() if not path.endswith("__init__.py")]
    assert statistics.median(real) <= MEDIAN_LINES, f"median {statistics.median(real)}"


def test_functions_are_short(functions):
    lengths = sorted(body_lines(function.node) for function in functions)
    middle, ninth = statistics.median(lengths), lengths[int(0.9 * len(lengths))]
    shown = f"{len(lengths)} functions: median {middle}, 90 % within {ninth} lines"
    assert middle <= MEDIAN_BODY, shown
    assert ninth <= LONG_BODY, shown


def test_the_measure_leaves_out_signature_and_docstring():
    source = 'def f(a):\n    """One.\n\n    Two.\n    """\n    b = a\n    return b\n'
    assert body_lines(ast.parse(source).body[0]) == 2
