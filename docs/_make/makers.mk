# What makes the pages, tables, figures and models of this repository again: make help-makers lists it.

.PHONY: fuzz adversary sharding sharding-scale stability peers judged-peers clients soak serve-mixes serve-load scoreboard fixtures models formats lookup measurements cases skills skills-models diagnosis right-engines studies plots broken-engine golden

PEERS := .venv-peers
NUMPY1 := .venv-numpy1
MEASURE := PYTHONPATH=docs/_make $(BIN)/python -m measure

adversary: $(VENV)/.dev ## faulty engines, right ones and cheats through `tritgold check`, the tables of docs/diagnosis.md (an hour; goes on where it stopped)
	$(BIN)/python tests/adversary --out docs/data/adversary.json
	$(BIN)/python docs/_make/measured_tables.py

fuzz: $(VENV)/.dev ## damaged checkpoints, the long run: make fuzz CASES=5000000 SEED=1 (two million are a quarter of an hour)
	$(BIN)/python tests/fuzz --cases $(or $(CASES),2000000) --seed $(or $(SEED),158)

sharding: $(VENV)/.dev ## the same hashes of logits, traces and tokens on 1 to 8 devices, and over processes (an hour; goes on where it stopped)
	$(MEASURE).sharding_bits --out docs/data/sharding-bits.json
	$(BIN)/pytest -m sharding tests/accelerated/sharding tests/accelerated/processes
	$(BIN)/python docs/_make/measured_tables.py

sharding-scale: $(VENV)/.dev ## a step and a prompt on 1 and 2 devices, and what two processes hold (minutes; on a quiet machine)
	mkdir -p build
	$(MEASURE).sharding > build/sharding.json && mv build/sharding.json docs/data/sharding.json
	$(MEASURE).sharding_memory > build/sharding-memory.json && mv build/sharding-memory.json docs/data/sharding-memory.json
	$(BIN)/python docs/_make/measured_tables.py

stability: $(VENV)/.dev $(NUMPY1)/.ready build/.other-numpy ## the golden digests over NumPy versions, BLAS kernels, threads
	$(BIN)/pytest tests/stability

peers: $(PEERS)/.ready $(VENV)/.dev ## judge against transformers, llama.cpp and pytritium, run live in an environment of their own
	TRITGOLD_PEERS_PYTHON=$(PEERS)/bin/python $(BIN)/pytest tests/peers

judged-peers: $(PEERS)/.ready $(VENV)/.dev ## judge transformers and llama.cpp on kjv-ar and kjv-dlm: docs/peers-judged.md again
	mkdir -p build
	TRITGOLD_PEERS_PYTHON=$(PEERS)/bin/python PYTHONPATH=docs/_make $(BIN)/python tests/peers/judged.py > build/peers-judged.json
	mv build/peers-judged.json docs/data/peers-judged.json
	$(BIN)/python docs/_make/measured_tables.py

clients: $(VENV)/.dev ## ask `tritgold serve` with clients that others wrote, of npm and PyPI, installed into build/clients
	mkdir -p build/clients
	test -d build/clients/node_modules/openai || npm install --no-audit --no-fund --prefix build/clients openai || true
	test -x build/clients/venv/bin/lm_eval || { $(BIN)/python -m venv build/clients/venv && \
		build/clients/venv/bin/pip install --quiet llm 'lm_eval[api]' transformers; }
	$(BIN)/pytest -q tests/conformance/serving/test_installed_clients.py

soak: $(VENV)/.dev ## an hour of all kinds of clients for each backend of `tritgold serve`: docs/data/serve-soak.json
	for backend in reference xla; do $(MEASURE).serving_soak --backend $$backend --out docs/data/serve-soak.json || exit; done

serve-mixes: $(VENV)/.dev ## 1,000 random mixes of requests to each backend's scheduler beside each one alone: docs/data/serve-mixes.json (minutes)
	for backend in reference xla; do $(MEASURE).serving_mixes --backend $$backend --mixes 1000 --out docs/data/serve-mixes.json || exit; done
	$(BIN)/python docs/_make/measured_tables.py

serve-load: $(PEERS)/.ready $(VENV)/.dev ## `tritgold serve` under crowds until it refuses, beside llama.cpp's server and make serve-load LLAMA_SERVER=ik_llama.cpp=/path/to/llama-server (ten minutes)
	$(MEASURE).serving_load --out docs/data/serve-load.json $(if $(LLAMA_SERVER),--llama-server $(LLAMA_SERVER)) \
		--peer "llama.cpp=$(CURDIR)/$(PEERS)/bin/python $(CURDIR)/tests/peers/llama_cpp_server.py {model} --port {port} --slots 4 --context 1024 --defaults"
	$(BIN)/python docs/_make/measured_tables.py

scoreboard: $(VENV)/.dev ## install, judge and time the engines of the field, or one: make scoreboard ENGINE=pytritium; docs/scoreboard.md
	PYTHONPATH=docs/_make $(BIN)/python -m scoreboard $(ENGINE)
	$(BIN)/python docs/_make/measured_tables.py
	$(BIN)/python docs/_make/lookup_pages.py

fixtures: $(PEERS)/.ready $(VENV)/.dev ## make the checked-in fixtures and recordings of tests/peers again
	$(PEERS)/bin/python tests/peers/make_fixtures.py tests/peers/fixtures
	PYTHONPATH=tests/peers:tests/reference/helpers $(BIN)/python tests/peers/light_cases.py $(PEERS)/bin/python

KJV := kjv-ar kjv-dlm kjv-ar-v2 kjv-dlm-v2

models: $(VENV)/.dev ## train the embedded models again: make models TEXT=training/kjv.txt (hours; goes on where it stopped)
	@test -n "$(TEXT)" || { $(BIN)/python -m tritgold_xla.training --help; exit 2; }
	$(BIN)/python -m tritgold_xla.training "$(TEXT)" training
	rm -rf $(addprefix reference/tritgold/golden/,$(KJV))
	cp -r $(addprefix training/,$(KJV)) training/training.json reference/tritgold/golden/
	$(MAKE) golden

formats: $(VENV)/.dev ## the pages and byte maps of docs/formats again
	$(BIN)/python docs/_make/format_pages.py
	$(BIN)/python plots byte_maps

lookup: $(VENV)/.dev ## the pages that are looked up (faults, modes, presets, schemes, rules, commands, the report) again
	$(BIN)/python docs/_make/lookup_pages.py
	$(BIN)/python docs/_make/component_tree.py

cases: $(VENV)/.dev ## the manifest of `tritgold vectors` again, after cases or faults changed (minutes)
	$(BIN)/python docs/_make/case_flags.py

measurements: $(VENV)/.dev ## what docs/decoding.md, kv-cache.md and sparsity.md measured, their tables and plots again (half an hour)
	$(MEASURE).kv_error > docs/data/kv-error.json
	$(MEASURE).sparsity_cosine > docs/data/sparsity-cosine.json
	$(MEASURE).diffusion_thresholds > docs/data/diffusion-thresholds.json
	$(MAKE) plots

RIGHT := $(MEASURE).right_engines --out docs/data/right-engines.json

diagnosis: $(VENV)/.dev $(PEERS)/.ready ## how often each fault is named, docs/diagnosis.md (an hour; goes on where it stopped)
	$(MEASURE).diagnosis --model kjv-ar --pairs 100 --noise-runs 60 --out docs/data/diagnosis-kjv-ar.json
	$(MEASURE).diagnosis --model kjv-dlm --pairs 20 --noise-runs 70 --out docs/data/diagnosis-kjv-dlm.json
	$(MEASURE).diagnosis --model seeded --pairs 100 --noise-runs 500 --out docs/data/diagnosis-seeded.json
	$(MEASURE).diagnosis --model llama --pairs 20 --noise-runs 300 --out docs/data/diagnosis-llama.json
	$(MEASURE).diagnosis --model untied --pairs 20 --noise-runs 70 --out docs/data/diagnosis-untied.json
	for model in qwen gemma granite; do \
		$(MEASURE).diagnosis --model $$model --area architecture --pairs 0 --noise-runs 10 --out docs/data/diagnosis-$$model.json || exit; \
	done
	$(MEASURE).diagnosis_places --model seeded --places 40 --out docs/data/diagnosis-places-seeded.json
	$(MEASURE).diagnosis_places --model kjv-ar --places 0 --out docs/data/diagnosis-places-kjv-ar.json
	for threads in 1 2 4; do $(RIGHT) --engine xla --threads $$threads --runs 10 || exit; done
	TRITGOLD_PEERS_PYTHON=$(PEERS)/bin/python $(RIGHT) --engine transformers --runs 10
	$(MAKE) plots

studies: $(VENV)/.dev ## the studies of docs/xla-cpu.md timed again, one thread (five minutes; on a quiet machine)
	mkdir -p build
	NPROC=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tritgold_xla.studies > build/xla-forms.json
	mv build/xla-forms.json docs/data/xla-forms.json
	$(MAKE) plots

right-engines: $(VENV)/.dev ## right engines over models, texts, lengths and policies: none may be accused (an hour; goes on where it stopped)
	$(MEASURE).right_runs --rounds 185 --out docs/data/right-runs.json

plots: $(VENV)/.dev ## the figures and tables of docs/ again, from the reports in docs/data
	$(BIN)/python plots
	$(BIN)/python docs/_make/measured_tables.py

broken-engine: $(VENV)/.dev ## the report behind the picture of README.md: engine.c with one mistake, judged
	mkdir -p build
	sed 's/h \* kv_heads \/ heads/h % kv_heads/' docs/examples/engine.c > build/engine.c
	$(CC) -O2 -std=c99 -o build/engine build/engine.c -lm
	$(BIN)/tritgold check --engine cmd:build/engine --no-speed --report docs/data/check-kv-heads-tiled.json || test $$? = 1
	$(BIN)/python plots checked

skills-models: $(VENV)/.dev ## train skills-ar and skills-dlm again, no download (five hours; goes on where it stopped)
	$(BIN)/python -m tritgold_xla.training.skills training/skills
	rm -rf reference/tritgold/golden/skills-ar reference/tritgold/golden/skills-dlm
	cp -r training/skills/skills-ar training/skills/skills-dlm reference/tritgold/golden/
	cp training/skills/training.json reference/tritgold/golden/skills-training.json
	$(MAKE) golden skills

SKILLS := engines thresholds presets caches sparsity policies faults

skills: $(VENV)/.dev ## docs/skills.md measured again, or parts of it: make skills SKILLS="presets thresholds" (three quarters of an hour)
	mkdir -p build
	for part in $(SKILLS); do $(MEASURE).skills_accuracy $$part > build/$$part.json && mv build/$$part.json docs/data/skills-$$part.json || exit; done
	$(BIN)/python plots skills
	$(BIN)/python docs/_make/measured_tables.py

golden: $(VENV)/.dev ## the golden outputs, model cards and curves of the embedded models again
	$(MEASURE).golden_outputs
	$(MEASURE).model_card
	$(BIN)/python plots training_curves activations

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
