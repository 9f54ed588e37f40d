# Each target sets up .venv by itself; nothing else needs to be installed but Python 3.11+, make and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check test-recorded bench clean

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

demo: $(STAMP)  ## play a sample session through the proxy and print what was logged
	@$(BIN)/ctxpager demo

test: $(STAMP)  ## every test that needs nothing but this checkout
	@$(BIN)/python -m pytest --cov --cov-report=term -m "not recorded" tests

check: $(STAMP)  ## lint, format, types, import contracts, architecture
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest --no-cov tests/architecture

test-recorded: $(STAMP)  ## recorded requests of real clients, from CTXPAGER_RECORDINGS=DIR
	@$(BIN)/python -m pytest -m recorded tests

bench: $(STAMP)  ## the figures the README quotes
	@$(BIN)/python -m benchmarks.overhead

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
