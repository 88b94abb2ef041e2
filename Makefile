# `make run` and `make test` do everything on a fresh machine with Python ≥ 3.11 and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export HF_HUB_OFFLINE := 1

.PHONY: run test check format lint types bench clean

$(VENV)/installed: pyproject.toml .constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c .constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c .constraints.txt -e '.[dev]'
	touch $@

run: $(VENV)/installed  ## the daemon on this very repository, with the embedded Postgres
	$(BIN)/headwatch run .

test: $(VENV)/installed
	$(BIN)/pytest -n auto --dist loadscope

format: $(VENV)/installed
	$(BIN)/ruff format daemon indexer sql tests

lint: $(VENV)/installed
	$(BIN)/ruff format --check daemon indexer sql tests
	$(BIN)/ruff check daemon indexer sql tests
	$(BIN)/lint-imports

types: $(VENV)/installed
	$(BIN)/mypy
	$(BIN)/pyright

check: lint types test

bench: $(VENV)/installed
	$(BIN)/pytest tests/benchmarks -s -p no:randomly -o python_files="bench_*.py"

clean:
	rm -rf $(VENV) dist build
