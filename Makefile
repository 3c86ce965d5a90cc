# Everything a fresh machine needs is in here: `make run` and `make test` install what they use into .venv.

# The newest interpreter that works: JAX for Python 3.12 and later is much faster than the last one for 3.11.
# A name on PATH may be a shim that fails, so each candidate is asked to start and to have venv and ensurepip.
find_python = $(shell for version in $(1); do \
	for python in python$$version $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python 2>/dev/null | sort -rV) python3; do \
	"$$python" -c "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != tuple(map(int, '$$version'.split('.'))))" \
	2>/dev/null && echo "$$python" && exit; done; done)
PYTHON ?= $(call find_python,3.14 3.13 3.12 3.11)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help help-makers run test check docs clean

LIST = @grep -hE '^[a-z-]+:.*\#\#' $(1) | sed -E 's/^([a-z-]+):.*\#\# /  make \1\t/' | expand -t 20

help: ## list these targets
	$(call LIST,Makefile)
	@echo '  make help-makers  the others: figures, tables, models and proofs of this repository'

help-makers:
	$(call LIST,docs/_make/makers.mk)

run: $(VENV)/.run ## judge the JAX engine against the golden model on the embedded model
	$(BIN)/tritgold check --engine xla --quick

# One BLAS thread a process: OpenBLAS's threads wait by spinning, and where two processes share two cores they spin
# against each other: a test of block diffusion took 104 s instead of 6.
test: $(VENV)/.dev build/.other-numpy ## every test, `pytest conformance/` included
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal --durations 20

check: $(VENV)/.dev ## ruff, ruff format, mypy strict, import-linter, the wheel as a user gets it
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q -m wheel tests/packaging

docs: $(VENV)/.dev ## the site: build/docs/index.html, to be read without a network; broken links and lost pictures fail
	$(BIN)/sphinx-build -n -W --keep-going -q -j auto -c docs . build/docs
	$(BIN)/python docs/_make/site_checks.py build/docs

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 with venv found; on Debian: apt install python3 python3-venv" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[xla]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[xla,train,dev,docs]'
	touch $@ $(VENV)/.run

# The oldest NumPy this interpreter has wheels for, beside the environment's own: tests put it in front of the path.
build/.other-numpy: $(VENV)/bin/python
	mkdir -p build
	for spec in '2' '2.2' '2.4'; do \
		$(BIN)/pip install --quiet --only-binary :all: --no-deps --target build/numpy-below-$$spec "numpy<$$spec" 2>/dev/null && break; \
		rm -rf build/numpy-below-$$spec; done
	touch $@

clean: ## remove the environments and all caches
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

include docs/_make/makers.mk
