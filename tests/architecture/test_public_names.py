"""What is exported, in the order of the data flow, and what importing it costs."""

import ast
import inspect
import json
import subprocess
import sys

import sordino

PUBLIC = [
    # errors
    "AuditInconclusive",
    "AuditRefuted",
    "BudgetExceeded",
    "ConvergenceError",
    "DataError",
    "FileSystemError",
    "LedgerDamaged",
    "LedgerError",
    "LedgerMismatch",
    "PrivacyError",
    "SordinoError",
    "UsageError",
    # what is promised, and what has been spent
    "ADD_OR_REMOVE_ONE",
    "REPLACE_ONE",
    "REPLACE_SPECIAL",
    "Guarantee",
    "Ledger",
    # how noise is added
    "LabelGaussian",
    "NonPrivate",
    "ObjectivePerturbation",
    "RandomizedResponse",
    "RankingObjectivePerturbation",
    "RankingGaussian",
    "joint_mechanisms",
    # what people said
    "FunctionFeatures",
    "HashedText",
    "Pairs",
    "PrivatePairs",
    "Rankings",
    "read_pairs",
    "find_chunks",
    "read_rankings",
    "Trajectories",
    "read_trajectories",
    "BanditLogs",
    "read_bandit_logs",
    # the randomization
    "privatize_choices",
    "privatize",
    # what people want, and what to do about it
    "fit_reward",
    "FiniteRewards",
    "RewardModel",
    "WithheldReward",
    "estimate",
    "gibbs_policy",
    "optimistic_policy",
    "pessimistic_policy",
    "robust_policy",
    # worlds with a known answer
    "simulate_pairs",
    "plan",
    "linear_policy",
    "multi_armed_policy",
    "align_online",
    "optimize",
    # tying it to its spend, trying to break it, showing it
    "Certificate",
    "certify",
    "audit",
    "write_report",
    # all of it in one call
    "Aligned",
    "align",
    "rank",
]
MOST = 60
HEAVY = (
    "torch", "transformers", "matplotlib", "opendp", "scipy", "dp_accounting", "sklearn", "ray",
    "pyarrow", "pandas",
)  # fmt: skip
FOUND = "print(json.dumps([name for name in HEAVY if name in sys.modules]))"


def test_the_list_is_in_the_order_of_the_data_flow():
    assert [name for name in sordino.__all__ if name != "__version__"] == PUBLIC


def test_the_stub_is_in_the_order_of_the_data_flow(root):
    stub = ast.parse((root / "src/sordino/__init__.pyi").read_text(encoding="utf-8"))
    names = [alias.asname for node in stub.body for alias in node.names]
    assert [name for name in names if name != "__version__"] == PUBLIC


def test_few_names():
    assert len(PUBLIC) <= MOST
    assert len(set(PUBLIC)) == len(PUBLIC)


def test_every_public_object_is_there_and_documented():
    for name in PUBLIC:
        value = getattr(sordino, name)
        if not inspect.isclass(value) and not inspect.isfunction(value):
            value = type(value)  # the relations are values; their class says what they are
        assert inspect.getdoc(value), name
    assert set(PUBLIC) <= set(dir(sordino))


def loaded(program):
    """Which heavy libraries a fresh interpreter holds after running a program."""
    program = f"import json, sys, sordino; HEAVY = {HEAVY!r}; {program}; {FOUND}"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    return set(json.loads(found.stdout))


def test_import_loads_nothing_heavy():
    assert loaded("pass") == set()


def test_a_list_of_commands_loads_nothing_heavy():
    called = "from sordino import cli; cli.app.registered_commands; HEAVY += ('numpy',)"
    assert loaded(called) == set()


def test_the_whole_surface_needs_no_deep_learning():
    optional = "import sordino.engines.ray_data, sordino.preferences.parquet"
    found = loaded(f"[getattr(sordino, name) for name in sordino.__all__]; {optional}")
    assert found <= {"scipy"}
    assert "scipy" in found, "the probe sees what was loaded"
