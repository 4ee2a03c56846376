# Everything a person types. Needs make and Python 3.11+ with pip; each target makes the environment it needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
DEMO ?= .venv-demo
# The versions CI runs with. `make test CONSTRAINTS=/dev/null` takes the newest of everything.
CONSTRAINTS ?= constraints.txt
# Test processes. DeepSpeed tests start processes of their own.
JOBS ?= 2

install = $(1)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)

# An environment in folder $(1); pip comes from ensurepip, or where a distribution splits that off, from the outer pip.
define environment
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer not found; name one with PYTHON=/path/to/python3" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(1); \
	elif $(PYTHON) -m venv --without-pip $(1) && $(PYTHON) -m pip --python $(1)/bin/python install --quiet pip; then :; \
	else echo "make: $(PYTHON) cannot make an environment; install its venv module (on Debian: python3-venv)" >&2; exit 1; fi
endef

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# --- try it ------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(DEMO)/ready ## plan a real job, then one that cannot fit (no torch needed)
	@$(DEMO)/bin/meshwright plan -f examples/llama-2-7b.yaml --export deepspeed
	@printf '\n%s\n\n' "==== The same node asked for ten times the model: a job that cannot fit ===="
	@status=0; $(DEMO)/bin/meshwright plan -f examples/impossible.yaml || status=$$?; \
	test $$status -eq 3 || { echo "make: expected exit 3 (infeasible), got $$status" >&2; exit 1; }

$(DEMO)/ready: pyproject.toml $(wildcard $(CONSTRAINTS))
	@echo "Installing Meshwright into $(DEMO)"
	$(call environment,$(DEMO))
	@$(call install,$(DEMO)) --editable .
	@touch $@

# --- work on it --------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/ready ## make the development environment: torch (CPU is enough), DeepSpeed, tests, checks

# DeepSpeed builds against the torch that is there, hence the order and no build isolation.
$(VENV)/ready: pyproject.toml $(wildcard $(CONSTRAINTS))
	@echo "Installing torch, DeepSpeed and the tools of the tests into $(VENV) (minutes, the first time)"
	$(call environment,$(VENV))
	@$(call install,$(VENV)) setuptools wheel ninja torch
	@$(call install,$(VENV)) --no-build-isolation deepspeed
	@$(call install,$(VENV)) --editable '.[executor,hub,postgres,dask,dev]'
	@touch $@

.PHONY: test
test: lint ## every check, on a fixed sample (25 minutes on two cores at most)
	@$(VENV)/bin/python -m pytest -n $(JOBS) --dist loadgroup

.PHONY: test-all
test-all: lint ## the same checks with larger numbers (90 minutes at most)
	@MESHWRIGHT_TEST_ALL=1 $(VENV)/bin/python -m pytest -n $(JOBS) --dist loadgroup

.PHONY: lint
lint: $(VENV)/ready ## style, spelling, types and the contracts of the tower
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/codespell
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

.PHONY: format
format: $(VENV)/ready ## write the house format and apply safe fixes
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .

.PHONY: docs
docs: $(VENV)/ready ## write what is generated: docs/formulas.md, docs/requests.md, service/examples.json and the examples of README.md and docs/frontiers.md
	$(VENV)/bin/python docs/generate_formulas.py
	PYTHONPATH=. $(VENV)/bin/python docs/generate_requests.py
	PYTHONPATH=. $(VENV)/bin/python docs/generate_answers.py
	$(VENV)/bin/python docs/generate_example.py
	PYTHONPATH=. $(VENV)/bin/python docs/generate_frontiers.py

.PHONY: accuracy
accuracy: $(VENV)/ready ## write docs/accuracy.md, its pictures and docs/verdicts.md (minutes: every term is removed and refitted)
	PYTHONPATH=. $(VENV)/bin/python docs/generate_accuracy.py
	PYTHONPATH=. $(VENV)/bin/python docs/generate_verdicts.py

.PHONY: calibrate
calibrate: $(VENV)/ready ## refit the constants from calibration_data/measurements and write them
	$(VENV)/bin/python -m planner.cli calibrate --write

.PHONY: bench
bench: $(VENV)/ready ## measure how long planning takes
	$(VENV)/bin/python -m benchmarks

.PHONY: constraints
constraints: $(VENV)/ready ## write constraints.txt from what is installed
	$(VENV)/bin/python -m pip list --format=freeze --exclude-editable --exclude pip | sed 's/+[a-z0-9.]*$$//' > constraints.txt

.PHONY: clean
clean: ## remove the environments and caches
	rm -rf $(VENV) $(DEMO) .mypy_cache .ruff_cache .import_linter_cache .hypothesis
