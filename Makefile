# Holdfast: two commands. `make run` serves on http://127.0.0.1:8000, `make test` tests everything.
# Only python3 (3.11 or newer), make and pip are needed; everything else is installed into .venv.
# `make test-system` is for who has nginx, PgBouncer, Chromium and node as well.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1 $(BIN)/uv
RUNTIME := $(VENV)/.runtime-installed
TESTING := $(VENV)/.testing-installed
BENCHING := $(VENV)/.benching-installed
CLIENTS := tests/system/clients/node_modules/.package-lock.json

.DEFAULT_GOAL := help
.PHONY: help run test test-system check chaos mutants bench format reference docs clean

help:  ## Show what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

run: $(RUNTIME)  ## Serve, with an embedded Postgres unless DATABASE_URL is set
	@exec $(BIN)/holdfast serve

test: check  ## Everything that CI runs: lint, contracts, types and all tests
	@$(BIN)/pytest

test-system: $(TESTING)  ## What needs programs from the distribution, and the journeys that take long
	@$(BIN)/python -m tests.system.programs
	@$(MAKE) --no-print-directory $(CLIENTS)
	@$(BIN)/pytest tests/system tests/trials

check: $(TESTING)  ## Lint, import contracts and types only
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy app holdfast tests migrations examples

chaos: $(TESTING)  ## Break everything for SECONDS (60), by the plan of SEED, and check that nothing is lost
	@$(BIN)/python -m tests.journeys.chaos --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(if $(PAUSE),--pause $(PAUSE))

mutants: $(TESTING)  ## Change one token at a time, by SEED (1) or where ONLY says, and count which changes the tests notice
	@$(BIN)/python -m tests.mutation --seed $(or $(SEED),1) $(if $(COUNT),--count $(COUNT)) $(if $(PACKAGES),--packages $(PACKAGES)) $(if $(ONLY),--only "$(ONLY)")

bench: $(BENCHING)  ## Measure this tree against the floor, in one table
	@$(BIN)/python -m bench

format: $(TESTING)  ## Format, and mend what can be mended
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

reference: $(TESTING)  ## Write the generated pages of docs/reference from the code
	@$(BIN)/python -m docs.generate

docs: reference  ## Build the documents into site/
	@$(BIN)/zensical build --clean --strict

clean:  ## Remove everything that was installed or generated here
	@rm -rf $(VENV) site tests/system/clients/node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=python3.12 run")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'

$(RUNTIME): $(BIN)/uv uv.lock pyproject.toml
	@$(UV) sync --quiet --frozen --inexact --no-default-groups --extra embedded
	@touch $@

$(TESTING): $(BIN)/uv uv.lock pyproject.toml
	@$(UV) sync --quiet --frozen --inexact --all-extras --group dev
	@touch $@ $(RUNTIME)

$(CLIENTS): tests/system/clients/package-lock.json
	@cd tests/system/clients && npm ci --silent
	@touch $@

$(BENCHING): $(TESTING)
	@$(UV) sync --quiet --frozen --inexact --all-extras --group dev --group bench
	@touch $@
