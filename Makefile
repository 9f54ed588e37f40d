# Each target sets up .venv by itself, from Python 3.11+, make and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.runs
PIP := $(BIN)/python -m pip --disable-pip-version-check
REAL := .venv-real
REAL_STAMP := $(REAL)/.installed

.PHONY: demo test test-deep coverage check test-recorded bench bench-real clean

# The program's own dependencies: enough for the demo.
$(DEMO_STAMP): pyproject.toml
	@echo "Setting up $(VENV): some 45 packages, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --progress-bar off --editable .
	@touch $@

# The same, and the tools for tests and checks.
$(STAMP): $(DEMO_STAMP)
	@echo "Adding what tests and checks need to $(VENV), once."
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@$(PIP) install --quiet --editable . --group dev
	@touch $@

demo: $(DEMO_STAMP)  ## play a session through the proxy, print what it saved, and serve the dashboard
	@$(BIN)/ctxpager demo

# One process more than there are cores: tests that talk to real proxies mostly wait. Compiled modules are kept, because
# each of these processes and each proxy that they start would compile them again.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m "not recorded" -n $(WORKERS) --dist worksteal

test: $(STAMP)  ## every test that needs nothing but this checkout
	@$(PYTEST) --no-cov tests

test-deep: $(STAMP)  ## the same with many more examples of each law, other ones each time
	@$(PYTEST) --no-cov --hypothesis-profile deep tests

coverage: $(STAMP)  ## the same as test, and which lines and branches it runs; takes twice as long
	@$(PYTEST) --cov --cov-report term tests

check: $(STAMP)  ## lint, format, types, import contracts, architecture
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest --no-cov tests/architecture

test-recorded: $(STAMP)  ## recorded requests of real clients, from CTXPAGER_RECORDINGS=DIR
	@$(BIN)/python -m pytest -m recorded tests

bench: $(STAMP)  ## the figures that the README and docs/benchmarks.md quote
	@$(BIN)/python -m benchmarks.overhead
	@$(BIN)/python -m benchmarks.policies $(if $(CTXPAGER_RECORDINGS),--write)
	$(if $(CTXPAGER_RECORDINGS),@$(BIN)/python -m benchmarks.lifetimes --write)
	$(if $(CTXPAGER_RECORDINGS),@$(BIN)/python -m benchmarks.warmth --write)
	$(if $(CTXPAGER_RECORDINGS),@$(BIN)/python -m benchmarks.schemas)

# Compiled for any recent processor of its kind, because a machine may report features that it can't use. pip's cache is
# not used either: it does not record which processor a wheel was compiled for.
$(REAL_STAMP): pyproject.toml
	@test -x $(REAL)/bin/python || $(PYTHON) -m venv $(REAL)
	@$(REAL)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "setting up $(REAL); to compile llama.cpp takes some minutes, once"
	@CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF" \
		$(REAL)/bin/python -m pip install --quiet --no-cache-dir --editable . --group real
	@touch $@

bench-real: $(REAL_STAMP)  ## what paging spares a real model, served on this machine
	@$(REAL)/bin/python -m benchmarks.real_model

clean:
	rm -rf $(VENV) $(REAL) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
