# Each target sets up what it needs: `make run` and `make test` work on a fresh machine with Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROMPT ?= Explain in one sentence why the sky is blue.

.PHONY: run test check bench clean help

help:
	@echo "make run    answer a prompt with the default model (PROMPT=...)"
	@echo "make test   run the test suite"
	@echo "make check  lint and type-check"
	@echo "make bench  measure speed on the default model"
	@echo "make clean  remove the virtual environment and caches of tools"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/test.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/run.stamp

$(VENV)/check.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test,check]'
	touch $@ $(VENV)/test.stamp $(VENV)/run.stamp

run: $(VENV)/run.stamp
	$(BIN)/prism run "$(PROMPT)"

test: $(VENV)/test.stamp
	$(BIN)/python tests/fetch_models.py
	$(BIN)/python -m pytest

check: $(VENV)/check.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/run.stamp
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
