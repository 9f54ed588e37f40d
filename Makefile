# Each target sets up .venv by itself; nothing else needs to be installed but Python 3.11+, make and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.runs
PIP := $(BIN)/python -m pip --disable-pip-version-check
REAL := .venv-real
REAL_STAMP := $(REAL)/.installed

.PHONY: demo test check test-recorded bench bench-real clean

# What the program itself needs, and no more: enough for the demo.
$(DEMO_STAMP): pyproject.toml
	@echo "Setting up $(VENV): some 45 packages, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --progress-bar off --editable .
	@touch $@

# With what tests and checks need on top.
$(STAMP): $(DEMO_STAMP)
	@echo "Adding what tests and checks need to $(VENV), once."
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@$(PIP) install --quiet --editable . --group dev
	@touch $@

demo: $(DEMO_STAMP)  ## play a session through the proxy, say what it saved, and show the dashboard
	@$(BIN)/ctxpager demo

# In two processes: tests that talk to real proxies mostly wait, so that the others run beside them.
PYTEST := $(BIN)/python -m pytest --cov --cov-report= --cov-fail-under=0 -m "not recorded"

test: $(STAMP)  ## every test that needs nothing but this checkout
	@rm -f .coverage .coverage.*
	@COVERAGE_FILE=.coverage.wire $(PYTEST) tests/wire tests/e2e tests/browser >.coverage.log 2>&1 & wire=$$!; \
	COVERAGE_FILE=.coverage.unit $(PYTEST) tests/architecture tests/contract tests/unit; status=$$?; \
	wait $$wire || status=1; cat .coverage.log; rm -f .coverage.log; \
	$(BIN)/coverage combine --quiet .coverage.unit .coverage.wire && $(BIN)/coverage report || status=1; \
	exit $$status

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
	@$(BIN)/python -m benchmarks.policies $(if $(CTXPAGER_RECORDINGS),--write)
	$(if $(CTXPAGER_RECORDINGS),@$(BIN)/python -m benchmarks.lifetimes --write)
	$(if $(CTXPAGER_RECORDINGS),@$(BIN)/python -m benchmarks.schemas)

# Compiled for any recent processor of its kind: what a machine says it has is not always what it may use. That is also
# why no wheel is taken from pip's cache, which does not know what one was compiled for.
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
