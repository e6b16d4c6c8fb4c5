"""Every public definition says what it returns; whatever adds noise says what it promises."""

import ast
import re

SECTION = re.compile(
    r"^(?P<indent> *)(?P<open>\*\*)?(?P<name>Guarantee|Source):(\*\*)?(?P<rest>.*)$"
)
OTHER = re.compile(r"^ *(\*\*)?(Args|Returns|Raises|Yields|Example|Attributes|Guarantee|Source):")
NAMED_TEST = re.compile(r"tests/[\w/]+\.py")
NAMED_PAGE = re.compile(r"(docs/\w+\.md)(?:, \"?([^\".;:()]+))?")
SENTENCE_BREAK = re.compile(r"[\w)]\. +[A-Z]")
ARGUMENT = re.compile(r"^    (\S+):", re.MULTILINE)
DRAWS = {"words"}  # what a source of entropy is asked for
NOISE_FREE = {
    "sordino.policies.gibbs": "draws from a policy that was released already: nothing to hide",
    "sordino._random": "is the source of randomness",
    "sordino.preferences.rankings": "shuffles ballots, whose order in a file says who voted",
}


def sections(docstring):
    """Yield (name, text, whether in Google style) of every Guarantee and Source section."""
    lines = docstring.splitlines()
    for number, line in enumerate(lines):
        found = SECTION.match(line)
        if not found:
            continue
        inline = found["open"] is not None
        text = [found["rest"].strip()]
        for following in lines[number + 1 :]:
            inside = following.startswith(found["indent"] + "    ")
            if OTHER.match(following) or (not inline and following.strip() and not inside):
                break
            if inline and not following.strip():
                break
            text.append(following.strip())
        yield found["name"], " ".join(part for part in text if part), not inline


def every_section(modules, definitions):
    for module in modules:
        for section in sections(ast.get_docstring(module.tree) or ""):
            yield str(module.path), *section
    for definition in definitions:
        for section in sections(definition.docstring):
            yield definition.where, *section


def test_both_styles_are_understood():
    google = "One.\n\nGuarantee:\n    Pure ε.\n    Shown.\n\nSource:\n    Warner 1965.\n"
    inline = "One.\n\n**Guarantee:** pure ε,\nshown.\n\n**Source:** Warner."
    assert list(sections(google)) == [
        ("Guarantee", "Pure ε. Shown.", True),
        ("Source", "Warner 1965.", True),
    ]
    assert list(sections(inline)) == [
        ("Guarantee", "pure ε, shown.", False),
        ("Source", "Warner.", False),
    ]
    assert list(sections("One.\n\nSource:\n\nArgs:\n    a: b")) == [("Source", "", True)]


def test_every_module_and_public_definition_is_documented(modules, definitions):
    missing = [module.name for module in modules if not ast.get_docstring(module.tree)]
    missing += [d.where for d in definitions if d.public and not d.docstring]
    assert not missing, "\n".join(missing)


def test_the_first_line_is_one_sentence(definitions):
    wrong = []
    for definition in definitions:
        if not definition.public or not definition.docstring:
            continue
        first = definition.docstring.splitlines()[0]
        if not first.endswith(".") or SENTENCE_BREAK.search(first) or len(first) < 12:
            wrong.append(f"{definition.where}: {first}")
    assert not wrong, "\n".join(wrong)


def test_every_argument_that_is_described_is_in_the_signature(definitions):
    """The site is not built where one is missing."""
    classes = {d.name: d for d in definitions if not d.is_function}
    starts = {d.parents[-1]: d for d in definitions if d.name == "__init__" and d.parents}

    def parameters(definition):
        if definition.is_function:
            given = definition.node.args
            named = {one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs]}
            return named | ({f"**{given.kwarg.arg}"} if given.kwarg else set())
        if (start := starts.get(definition.name)) is not None:
            return parameters(start)
        bases = [getattr(getattr(base, "value", base), "id", "") for base in definition.node.bases]
        inherited = (parameters(classes[name]) for name in bases if name in classes)
        body = definition.node.body
        fields = {part.target.id for part in body if isinstance(part, ast.AnnAssign)}
        return fields.union(*inherited)

    wrong = []
    for definition in definitions:
        args = definition.docstring.partition("Args:\n")[2].partition("\n\n")[0]
        if definition.public and args:
            missing = set(ARGUMENT.findall(args)) - parameters(definition)
            wrong += [f"{definition.where}: {name}" for name in missing]
    assert not wrong, "\n".join(wrong)


def test_whatever_spends_or_draws_states_its_guarantee(functions):
    wrong = []
    for function in functions:
        if not function.public or function.module.stage in {"runs", "cli"}:
            continue
        spends = "Ledger" in function.keyword_only.get("ledger", "")
        draws = "entropy" in function.keyword_only or any(n in DRAWS for n, _ in function.calls)
        if not (spends or draws) or function.module.name in NOISE_FREE:
            continue
        if "Guarantee" not in {name for name, *_ in sections(function.docstring)}:
            wrong.append(function.where)
    assert not wrong, "\n".join(wrong)


def test_every_mechanism_states_its_guarantee(modules, definitions):
    """A class that has an event and can release is a mechanism, whatever it inherits."""
    classes, methods = {}, {}
    for definition in definitions:
        if definition.is_function and definition.parents:
            methods.setdefault(definition.parents[-1], set()).add(definition.name)
        elif not definition.is_function:
            classes[definition.name] = definition

    def every_method(name):
        bases = classes[name].node.bases if name in classes else []
        inherited = (
            every_method(getattr(getattr(base, "value", base), "id", "")) for base in bases
        )
        return methods.get(name, set()).union(*inherited)

    mechanisms = [
        definition
        for name, definition in classes.items()
        if {"event", "release"} <= every_method(name) and definition.public
        if name != "Mechanism"
    ]
    assert len(mechanisms) >= 20
    for mechanism in mechanisms:
        found = {name: text for name, text, _ in sections(mechanism.docstring)}
        assert NAMED_TEST.search(found.get("Guarantee", "")), f"{mechanism.where} names no test"


def test_no_section_is_empty(modules, definitions):
    short = [
        f"{where} {name}"
        for where, name, text, _ in every_section(modules, definitions)
        if len(text) < 8
    ]
    assert not short, "\n".join(short)


def test_sections_are_in_google_style(modules, definitions):
    inline = {
        where.split(":")[0]
        for where, _, _, google in every_section(modules, definitions)
        if not google
    }
    assert not inline, "\n".join(sorted(inline))


def test_every_test_and_page_that_is_named_exists(modules, definitions, root):
    missing = set()
    for where, _, text, _ in every_section(modules, definitions):
        for path in NAMED_TEST.findall(text):
            if not (root / path).is_file():
                missing.add(f"{where} → {path}")
        for path, cited in NAMED_PAGE.findall(text):
            page = root / path
            if not page.is_file():
                missing.add(f"{where} → {path}")
                continue
            lines = page.read_text(encoding="utf-8").splitlines()
            headings = {line.lstrip("# ").lower() for line in lines if line.startswith("#")}
            if cited and cited.strip().lower() not in {h.partition(".")[0] for h in headings}:
                missing.add(f"{where} → {path}, {cited!r}")
    assert not missing, "\n".join(sorted(missing))


def test_the_source_speaks_of_the_project_alone(modules):
    """No path of a machine and no page that a reader of the repository cannot open."""
    outside = re.compile(r"\.\./shared|\bspec/\w+\.md|/home/|/root/|/tmp/|sordino specification")
    wrong = []
    for module in modules:
        for number, line in enumerate(module.path.read_text(encoding="utf-8").splitlines(), 1):
            if outside.search(line):
                wrong.append(f"{module.path.name}:{number}")
    assert not wrong, "\n".join(wrong)
