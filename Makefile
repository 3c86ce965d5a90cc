# Everything a fresh machine needs is in here: `make run` and `make test` install what they use into .venv.

# The newest interpreter that works: JAX for Python 3.12 and later is much faster than the last one for 3.11.
# A name on PATH may be a shim that fails, so each candidate is asked to start and to have venv and ensurepip.
PYTHON ?= $(shell for version in 3.14 3.13 3.12 3.11; do \
	for python in python$$version $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python 2>/dev/null | sort -rV) python3; do \
	"$$python" -c "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != tuple(map(int, '$$version'.split('.'))))" \
	2>/dev/null && echo "$$python" && exit; done; done)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help run test check clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

run: $(VENV)/.run ## judge the JAX engine against the golden model on the embedded model
	$(BIN)/tritgold check --engine xla

test: $(VENV)/.dev ## every test, `pytest conformance/` included
	$(BIN)/pytest

check: $(VENV)/.dev ## ruff, ruff format, mypy strict, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 with venv found; on Debian: apt install python3 python3-venv" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[xla]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[xla,dev]'
	touch $@ $(VENV)/.run

clean: ## remove the environments and all caches
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
