# Everything runs in .venv, which the first target to need it makes. PYTHON names another
# interpreter (3.10 or later): make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

# Python's caches are kept, whatever the surroundings say: they halve the time to collect tests.
unexport PYTHONDONTWRITEBYTECODE

# One worker a core, and one thread a worker.
unit test test-all audit mutants: export OPENBLAS_NUM_THREADS = 1

.PHONY: demo live unit test test-all test-engines check lint audit mutants bench soak scale crash docs smoke \
	clean

# Needs the library and pictures only.
demo: $(VENV)/runs
	$(BIN)/beam-dpcount demo

# The live example, killed by kill -9 in the middle and started again: every release that was seen must
# be that of a run without interruption. To look at it: .venv/bin/python -m examples.live
LIVE_SECONDS ?= 600
live: $(VENV)/ready
	$(BIN)/python -m benchmarks.live --seconds $(LIVE_SECONDS)

# What needs no pipeline and is quick: about a minute.
unit: $(VENV)/ready
	$(BIN)/python -m pytest -rs -n $(JOBS) --dist worksteal -m "not (audit or exhaustive or pipeline or slow)" tests

# Of long tests, cases that have each mechanism, law, path and runner; of those that run pipelines,
# three at most.
test: $(VENV)/ready
	$(BIN)/python -m pytest -rs -n $(JOBS) --dist worksteal -m "not (audit or exhaustive)" tests

# Every case of every test. PART=K/N leaves out all but one in N of the long cases, and of those that
# make test leaves out, for each K < N others.
PART ?=
test-all: $(VENV)/ready
	$(BIN)/python -m pytest -rs -n $(JOBS) --dist worksteal $(PART:%=--part %) tests

# Prism is built from source and Flink comes from PyPI if need be, into ~/.cache/beam_dpcount/engines
# or BEAM_DPCOUNT_ENGINES, before the tests have a network of loopback alone: some engines listen on
# all interfaces. BEAM_FLINK_JOB_SERVER=FILE names the jar of Beam's job server for Flink. CI leaves
# out what is marked exhaustive: ENGINES="not audit and not exhaustive".
ENGINES ?= not audit
test-engines: $(VENV)/ready
	-$(BIN)/python -m engines.prism
	-$(BIN)/python -m tests.engines.flink.install
	$(BIN)/python -m engines.loopback --if-permitted $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup \
		-m "$(ENGINES)" tests/engines

# What a change must pass. CI runs it with PART, and test-engines.
check: lint test-all

# What trials prove of every counter and transform, as in docs/audit.md; then longer forms of tests
# that `make test-all` has in short, but for the mutants, which have a target of their own.
audit: $(VENV)/ready
	$(BIN)/python -m tests.audit --jobs $(JOBS)
	$(BIN)/python -m pytest -rs -n $(JOBS) -m audit tests --deselect tests/test_mutants.py::test_all_mutants_die

# Breaks one promise at a time in a copy, and runs the check that is to notice: a line each.
mutants: $(VENV)/ready
	$(BIN)/python -m tests.mutants --jobs $(JOBS)

# The documentation as a site, out/docs/index.html. Warnings are errors.
docs: $(VENV)/ready
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs out/docs

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every target of speed, size and growth, met or missed: a quarter of an hour, 3 GB.
bench: $(VENV)/ready
	$(BIN)/python -m benchmarks.bench

# Five million events over ten thousand keys: a minute.
soak: $(VENV)/ready
	$(BIN)/python -m benchmarks.soak --skewed

# Bounding each of up to ten million people, and a million keys that nobody listed, beside a
# GroupByKey; what docs/scale.md rests on: half an hour, 5 GB.
scale: $(VENV)/ready
	$(BIN)/python -m benchmarks.people
	$(BIN)/python -m benchmarks.keys
	$(BIN)/python -m benchmarks.stages
	$(BIN)/python -m benchmarks.partitions

# 20 times kill -9 for each kind of count, on Flink and on an engine of our own: half an hour on a
# quiet machine. docs/reliability.md says how to read the summaries.
crash: $(VENV)/ready
	$(BIN)/python -m tests.crash --kills 20 --transform all
	$(BIN)/python -m tests.crash --kills 20 --transform all --engine flink
	$(BIN)/python -m engines.loopback --if-permitted $(BIN)/python -m pytest -m audit tests/engines

# The sdist and of it the wheel, into dist/; the wheel is installed where nothing else is, and its
# commands run. SMOKE="python3.10 python3.13" does so for other Pythons.
SMOKE ?= $(PYTHON)
smoke:
	$(PYTHON) tests/smoke.py $(SMOKE)

$(VENV)/runs: pyproject.toml beam_dpcount/mechanisms/_blt.c
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[plots]'
	touch $@

$(VENV)/ready: $(VENV)/runs
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) out build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
	rm -f beam_dpcount/mechanisms/_blt.*so
