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

PEERS := .venv-peers
NUMPY1 := .venv-numpy1

.PHONY: help run test check fuzz adversary stability peers judged-peers fixtures models golden formats lookup docs measurements diagnosis forms plots broken-engine clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

run: $(VENV)/.run ## judge the JAX engine against the golden model on the embedded model
	$(BIN)/tritgold check --engine xla

test: $(VENV)/.dev build/.other-numpy ## every test, `pytest conformance/` included
	$(BIN)/pytest -n auto --dist worksteal --durations 20

check: $(VENV)/.dev ## ruff, ruff format, mypy strict, import-linter, the wheel as a user gets it
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q -m wheel tests/packaging

fuzz: $(VENV)/.dev ## damaged checkpoints, the long run: make fuzz CASES=5000000 SEED=1 (two million are a quarter of an hour)
	$(BIN)/python tests/fuzz --cases $(or $(CASES),2000000) --seed $(or $(SEED),158)

adversary: $(VENV)/.dev ## faulty engines, right ones and cheats through `tritgold check`: build/adversary.jsonl (an hour; goes on where it stopped)
	$(BIN)/python tests/adversary

stability: $(VENV)/.dev $(NUMPY1)/.ready build/.other-numpy ## the golden digests over NumPy versions, BLAS kernels, threads
	$(BIN)/pytest tests/stability

peers: $(PEERS)/.ready $(VENV)/.dev ## judge against transformers, llama.cpp and pytritium, run live in an environment of their own
	TRITGOLD_PEERS_PYTHON=$(PEERS)/bin/python $(BIN)/pytest tests/peers

judged-peers: $(PEERS)/.ready $(VENV)/.dev ## judge transformers and llama.cpp on the embedded models: docs/peers-judged.md anew
	mkdir -p build
	TRITGOLD_PEERS_PYTHON=$(PEERS)/bin/python $(BIN)/python tests/peers/judged.py > build/peers-judged.json
	mv build/peers-judged.json docs/data/peers-judged.json
	$(BIN)/python docs/measured_tables.py

fixtures: $(PEERS)/.ready $(VENV)/.dev ## make the checked-in fixtures and recordings of tests/peers anew
	$(PEERS)/bin/python tests/peers/make_fixtures.py tests/peers/fixtures
	PYTHONPATH=tests/peers:tests/reference/helpers $(BIN)/python tests/peers/light_cases.py $(PEERS)/bin/python

models: $(VENV)/.dev ## train the embedded models anew: make models TEXT=training/kjv.txt (two hours and more; goes on where it stopped)
	@test -n "$(TEXT)" || { $(BIN)/python -m tritgold_xla.training --help; exit 2; }
	$(BIN)/python -m tritgold_xla.training "$(TEXT)" training
	rm -rf reference/tritgold/golden/kjv-ar reference/tritgold/golden/kjv-dlm
	cp -r training/kjv-ar training/kjv-dlm training/training.json reference/tritgold/golden/
	$(MAKE) golden

formats: $(VENV)/.dev ## the pages and byte maps of docs/formats anew
	$(BIN)/python docs/format_pages.py
	$(BIN)/python plots byte_maps

lookup: $(VENV)/.dev ## the pages that are looked up (faults, modes, presets, schemes, rules, commands, the report) anew
	$(BIN)/python docs/lookup_pages.py

docs: $(VENV)/.dev ## the site: build/docs/index.html, to be read without a network; broken links and lost pictures fail
	$(BIN)/sphinx-build -n -W --keep-going -q -j auto -c docs . build/docs
	$(BIN)/python docs/site_checks.py build/docs

measurements: $(VENV)/.dev ## what docs/decoding.md, kv-cache.md and sparsity.md measured, their tables and plots anew (half an hour)
	$(BIN)/python -m tritgold_conformance.measurements.kv_error > docs/data/kv-error.json
	$(BIN)/python -m tritgold_conformance.measurements.sparsity_cosine > docs/data/sparsity-cosine.json
	$(BIN)/python -m tritgold_conformance.measurements.diffusion_thresholds > docs/data/diffusion-thresholds.json
	$(MAKE) plots

MATRIX := $(BIN)/python -m tritgold_conformance.measurements
RIGHT := $(MATRIX).right_engines --out docs/data/right-engines.json

diagnosis: $(VENV)/.dev $(PEERS)/.ready ## how often each fault is named, docs/diagnosis.md (an hour; goes on where it stopped)
	$(MATRIX).diagnosis --model kjv-ar --pairs 100 --noise-runs 60 --out docs/data/diagnosis-kjv-ar.json
	$(MATRIX).diagnosis --model kjv-dlm --pairs 20 --noise-runs 70 --out docs/data/diagnosis-kjv-dlm.json
	$(MATRIX).diagnosis --model seeded --pairs 100 --noise-runs 500 --out docs/data/diagnosis-seeded.json
	$(MATRIX).diagnosis --model llama --pairs 20 --noise-runs 300 --out docs/data/diagnosis-llama.json
	$(MATRIX).diagnosis --model untied --pairs 20 --noise-runs 70 --out docs/data/diagnosis-untied.json
	for threads in 1 2 4; do $(RIGHT) --engine xla --threads $$threads --runs 10 || exit; done
	TRITGOLD_PEERS_PYTHON=$(PEERS)/bin/python $(RIGHT) --engine transformers --runs 10
	$(MAKE) plots

forms: $(VENV)/.dev ## the forms of docs/xla-cpu.md timed anew, one thread (five minutes; on a quiet machine)
	mkdir -p build
	NPROC=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tritgold_xla.forms > build/xla-forms.json
	mv build/xla-forms.json docs/data/xla-forms.json
	$(MAKE) plots

plots: $(VENV)/.dev ## the figures and tables of docs/ anew, from the reports in docs/data
	$(BIN)/python plots
	$(BIN)/python docs/measured_tables.py

broken-engine: $(VENV)/.dev ## the report behind the picture of README.md: engine.c with one mistake, judged
	mkdir -p build
	sed 's/h \* kv_heads \/ heads/h % kv_heads/' docs/examples/engine.c > build/engine.c
	$(CC) -O2 -std=c99 -o build/engine build/engine.c -lm
	$(BIN)/tritgold check --engine cmd:build/engine --no-speed --report docs/data/check-kv-heads-tiled.json || test $$? = 1
	$(BIN)/python plots checked

golden: $(VENV)/.dev ## the golden outputs, model cards and curves of the embedded models anew
	$(BIN)/python -m tritgold_conformance.golden_outputs
	$(BIN)/python -m tritgold_conformance.model_card
	$(BIN)/python plots training_curves activations

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

# NumPy 1.26 has wheels up to Python 3.12, so it needs an interpreter of its own.
$(NUMPY1)/.ready: pyproject.toml
	@python="$(call find_python,3.12 3.11)"; \
	if test -n "$$python"; then \
		"$$python" -m venv $(NUMPY1) && $(NUMPY1)/bin/pip install --quiet --editable . 'numpy<2' threadpoolctl && touch $@; \
	else echo "no Python 3.11 or 3.12 here: the digests are not proved with NumPy 1.26 (that test is skipped)"; fi

# torch for Linux is a build of several gigabytes with CUDA, unless a CPU build is at hand; hence the separate place.
# Python 3.11 first: it is the version for which such a build is most often at hand.
$(PEERS)/.ready: tests/peers/requirements.txt
	@test -n "$(call find_python,3.11 3.12 3.13)" || { echo "the peers need Python 3.11 to 3.13" >&2; exit 1; }
	"$(call find_python,3.11 3.12 3.13)" -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --requirement tests/peers/requirements.txt
	touch $@

clean: ## remove the environments and all caches
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
