# Everything runs in .venv, which the first target to need it makes. PYTHON names another
# interpreter (3.10 or later): make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test check lint bench clean

demo: $(VENV)/ready
	$(BIN)/python -m pipelines.demo

test: $(VENV)/ready
	$(BIN)/python -m pytest -rs -n $(JOBS) tests

check: lint test

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks.bench

$(VENV)/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) out build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
