"""One word for one thing."""

import ast
import re

COMMANDS = "cli"  # its modules are named after the commands, which are verbs
VERBS = {
    "account", "add", "align", "audit", "build", "calibrate", "certify", "check", "choose",
    "clip", "compose", "compute", "convert", "draw", "estimate", "evaluate", "fit", "load", "make",
    "measure", "optimize", "parse", "plan", "predict", "privatize", "read", "release", "render",
    "run", "sample", "save", "simulate", "solve", "spend", "train", "validate", "verify", "write",
}  # fmt: skip
ALSO_NOUNS = {"spend", "release", "audit", "account", "draw", "measure", "run"}
FORBIDDEN = {"eta", "beta", "phi", "sigma", "adjacency", "ref", "prior", "embed", "privacy_params"}
ABOUT_PRIVACY = {"privacy", "mechanisms", "privatization", "auditing", "collection", "runs", "cli"}
ABOUT_PRIVACY_ALSO = {
    "sordino.algorithms.online_alignment",  # what an answer on a device costs
    "sordino.algorithms.policy_optimization",  # what a run promises
    "sordino.environments.preference_worlds",  # whose devices randomize
    "sordino.algorithms.offline_bandit",  # what draws may show together
    "sordino.policies.gibbs",  # what draws promise
    "sordino.rewards.forecast",  # what an epsilon would cost
    "sordino.rewards.pair_losses",  # the likelihood of a randomized answer
    "sordino.rewards.private_metrics",  # what metrics may cost
    "sordino.rewards.vote_release",  # what votes may cost
    "sordino.reporting.wording",  # how a spend reads
    "sordino.reporting.result",  # what an epsilon was foreseen to give
}


def test_modules_are_nouns(modules):
    wrong = [
        module.name
        for module in modules
        if module.stage != COMMANDS
        and (
            module.leaf.strip("_") in VERBS - ALSO_NOUNS
            or module.leaf.endswith(("ize", "ify", "ise"))
        )
    ]
    # The checks of arguments read as sentences (`_validate.positive(...)`): the one verb.
    assert wrong == ["sordino._validate"]


def test_no_function_shares_its_modules_name(functions):
    wrong = [
        function.where
        for function in functions
        if function.module.stage != COMMANDS
        and function.name in function.module.name.split(".")[-2:]
        and not function.parents
    ]
    assert not wrong, "\n".join(wrong)


def test_no_forbidden_argument(functions):
    wrong = [
        f"{function.where}({argument.arg})"
        for function in functions
        if function.public
        for argument in function.arguments
        if argument.arg in FORBIDDEN
    ]
    assert not wrong, "\n".join(wrong)


def test_no_forbidden_field(definitions):
    wrong = [
        f"{definition.where}.{item.target.id}"
        for definition in definitions
        if not definition.is_function
        for item in definition.node.body
        if hasattr(item, "annotation") and hasattr(item, "target") and hasattr(item.target, "id")
        if item.target.id in FORBIDDEN
    ]
    assert not wrong, "\n".join(wrong)


def test_epsilon_and_delta_are_only_ever_privacy(functions):
    wrong = [
        f"{function.where}({argument.arg})"
        for function in functions
        for argument in function.arguments
        if argument.arg in {"epsilon", "delta"}
        and function.public
        and function.module.stage not in ABOUT_PRIVACY
        and function.module.name not in ABOUT_PRIVACY_ALSO
    ]
    assert not wrong, "\n".join(wrong)


REFUSES_NONE = {
    # Left out, the unit is the budget's (of several the first for reading alone: opening refuses).
    "sordino.privacy.ledger.open",
    "sordino.privacy.ledger.read",
}
# What a promise of many steps on samples rests on.
OF_SAMPLES = {"sampling_probability", "steps", "expected_batch"}
SAMPLED = {"sampling_probability", "expected_batch"}  # steps of anything else cost nothing


def has_default(value):
    """Return whether the value of a field is a default: `field(...)` alone gives none."""
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "field":
        return any(given.arg in {"default", "default_factory"} for given in value.keywords)
    return value is not None


def test_relations_units_and_trust_have_no_default(functions):
    """An epsilon without them says nothing, so nobody may leave them out by accident."""
    wrong = []
    for function in functions:
        if function.module.stage in {COMMANDS, "runs"} or not function.public:
            continue  # a command chooses for its user, and says so
        if f"{function.module.name}.{function.name}" in REFUSES_NONE:
            continue
        given = function.node.args
        pairs = [
            *zip(reversed(given.args), reversed(given.defaults), strict=False),
            *((a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d),
        ]
        wrong += [
            f"{function.where}({argument.arg}=)"
            for argument, _ in pairs
            if argument.arg in {"unit", "neighbors", "trust"}
            or (argument.arg in OF_SAMPLES and any(a.arg in SAMPLED for a in function.arguments))
        ]
    assert not wrong, "\n".join(wrong)


def test_settings_of_steps_on_samples_have_no_default(definitions):
    seen, wrong = set(), []
    for definition in definitions:
        if definition.is_function or definition.module.stage == COMMANDS:
            continue
        fields = {
            item.target.id: item.value
            for item in definition.node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        if SAMPLED & fields.keys():
            seen.add(definition.name)
            wrong += [
                f"{definition.where}.{name}"
                for name in sorted(OF_SAMPLES & fields.keys())
                if has_default(fields[name])
            ]
    assert {"CentralPrivacy", "PoissonGaussianEvent"} <= seen
    assert not wrong, "\n".join(wrong)


def test_no_bound_is_printed_as_the_nearest_number(modules):
    """An epsilon or a delta is rounded up where it is printed (never_less), what is left down."""
    found, loss, nearest = [], r"(epsilon|delta|spend)('\])?$", r"[efg]'$"
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                shown, form = ast.unparse(node.value), ast.unparse(node.format_spec)
                if re.search(loss, shown) and re.search(nearest, form):
                    found.append(f"{module.name}:{node.lineno} {shown}")
    # that one names a file
    assert [place for place in found if "_language_study" not in place] == []
