# `make demo` and `make test` do all their own set-up; they need Python >= 3.11 and make.

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PY := $(BIN)/python

# buf finds its plugins here.
export PATH := $(abspath $(BIN)):$(PATH)
export GRPC_ENABLE_FORK_SUPPORT ?= 0
# Rewritten test modules are compiled once, not at each run.
unexport PYTHONDONTWRITEBYTECODE

SOURCES := supervisor clients/python
RELEASED := proto/released/v1.binpb
TYPED := $(SOURCES) $(if $(wildcard benchmarks/*.py),benchmarks)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(STAMP) ## Make the virtual environment with everything that the other targets need

$(STAMP): pyproject.toml constraints.txt scripts/find_python.sh
	@test -x $(PY) || "$$(sh scripts/find_python.sh)" -m venv $(VENV)
	@echo "installing into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

# Start-up is quick with compiled files, also where PYTHONDONTWRITEBYTECODE is set.
.PHONY: compiled
compiled: $(STAMP)
	@$(PY) -m compileall -q $(SOURCES)

.PHONY: demo
demo: compiled ## Run the main job on real processes, in under a minute
	@$(PY) -m pinfold.demo

.PHONY: test
test: compiled ## Run the test suite
	@$(PY) -m pytest $(PYTEST_ARGS)

.PHONY: stress
stress: compiled ## Sixty-four agents at random for a minute, then what must hold of their log
	@PINFOLD_STRESS_SECONDS=$${PINFOLD_STRESS_SECONDS:-60} \
	$(PY) -m pytest -s tests/agents/test_stress.py $(PYTEST_ARGS)

.PHONY: check
check: compiled check-python check-imports check-proto check-stubs ## Lint, types, import layers, contract, stubs
	@echo "all checks passed"

.PHONY: check-python
check-python: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)

.PHONY: check-imports
check-imports: $(STAMP)
	$(BIN)/lint-imports

.PHONY: check-proto
check-proto: $(STAMP)
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against $(RELEASED)

.PHONY: check-stubs
check-stubs: $(STAMP)
	@sh scripts/check_stubs.sh

.PHONY: stubs
stubs: $(STAMP) ## Generate the stubs of all languages from proto/
	@rm -f clients/python/pinfold/v1/*_pb2*
	$(BIN)/buf generate

.PHONY: release-contract
release-contract: $(STAMP) ## Make the present contract the one that later changes may not break
	@mkdir -p $(dir $(RELEASED))
	$(BIN)/buf build --exclude-source-info -o $(RELEASED)

.PHONY: conformance
conformance: compiled ## Run the conformance scenarios through every client
	@$(PY) -m pytest tests/conformance $(PYTEST_ARGS)

BENCH_STAMP := $(VENV)/.bench-stamp

$(BENCH_STAMP): $(STAMP)
	@$(PY) -m pip install --quiet --disable-pip-version-check -e '.[bench]' -c constraints.txt
	@touch $@

.PHONY: bench
bench: compiled $(BENCH_STAMP) ## Measure against floors of the same run, in seven minutes
	@$(PY) -m benchmarks

.PHONY: bench-quick
bench-quick: compiled $(BENCH_STAMP) ## The main questions with few repeats, in two minutes
	@$(PY) -m benchmarks --quick

.PHONY: clean
clean: ## Remove the virtual environment and everything generated that is not in git
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
