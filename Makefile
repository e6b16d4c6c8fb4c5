# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= auto

.PHONY: demo test lint types imports pytest format benchmark clean

demo: $(VENV)/.core
	@rm -rf runs/demo && mkdir -p runs/demo
	$(BIN)/sordino simulate pairs --n 4000 --out runs/demo/prefs.jsonl --truth runs/demo/truth.json
	$(BIN)/sordino align runs/demo/prefs.jsonl --way local --epsilon 2 --out runs/demo/run --truth runs/demo/truth.json
	@echo "The report is in $(CURDIR)/runs/demo/run/report.html"

test: $(VENV)/.dev lint types imports pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(VENV)/.dev
	for script in benchmarks/speed/*.py; do $(BIN)/python $$script || exit 1; done

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("sordino needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev,language,scale,collect]'
	@touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
