# Each command sets up what it needs. Times are of two cores, from a ready environment.
#   make demo      a report of simulated people
#   make check     lint, types, imports, and the tests of what has changed since main
#   make test      all tests but the deep ones
#   make test-some deep tests for ten minutes, those first whose turn it is by the commit
#   make test-all  every test
#   make docs      the site, in site/index.html
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= auto
# Browsers, clusters and killed programs are waited for: one more than there are cores.
MORE_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')
MINUTES ?= 10
# Hundreds of tests start a process of their own: without compiled files each compiles the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-some test-all lint types imports format docs benchmark clean

demo: $(VENV)/.core
	@rm -rf runs/demo
	@$(BIN)/sordino demo runs/demo

check: $(VENV)/.check lint types imports
	@CHANGED=$$($(BIN)/python tests/changed.py); if [ -z "$$CHANGED" ]; then echo "No test belongs to what has changed."; \
	else $(BIN)/python -m pytest -n $(WORKERS) -m "not deep" $$CHANGED; fi

test: $(VENV)/.dev lint types imports
	$(BIN)/python -m pytest -n $(WORKERS) -m "not deep"

test-some: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) -m deep --for-minutes $(MINUTES)

test-all: $(VENV)/.dev lint types imports
	$(BIN)/python -m pytest -n $(MORE_WORKERS)

lint: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.check
	$(BIN)/mypy

imports: $(VENV)/.check
	$(BIN)/lint-imports

format: $(VENV)/.check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "The site is in $(CURDIR)/site/index.html"

benchmark: $(VENV)/.dev
	for script in benchmarks/speed/*.py; do $(BIN)/python $$script || exit 1; done

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("sordino needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

$(VENV)/.check: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[check]'
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	@touch $@ $(VENV)/.core

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev,language,scale,collect]'
	@touch $@ $(VENV)/.core $(VENV)/.check $(VENV)/.docs

clean:
	rm -rf $(VENV) build dist runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
