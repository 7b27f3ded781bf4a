# One command for each thing that a person or CI does; `make help` lists them.
# Needs Python >= 3.11 (with venv and pip) and make. All that is installed goes into .venv, and
# stamp files in it record what is done, so that a second run does no work twice.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL := smollm2-135m-instruct
# Extra words: `make train ARGS="--minutes 10"`, `make test PYTEST_ARGS="-k engine"`.
ARGS ?=
PYTEST_ARGS ?=

VENV_STAMP := $(VENV)/.made
INSTALL_STAMP := $(VENV)/.installed
MODEL_STAMP := $(VENV)/.model-fetched

# Nothing is installed for it: a machine with a card often has no network, and a torch of its own.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup train test kernels-recording kernels-live lint format bench gpu-check clean

help: ## list these commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1	/' | expand -t 18

setup: $(MODEL_STAMP) ## make .venv, install, fetch the model (93 MB, once a user)

train: setup ## train a PPO controller on the live engine, compare, export
	$(BIN)/python train.py --policy ppo $(ARGS)

# One thread for each of the two workers: on two cores more of them only wait for one another.
# Files in the order of tests/conftest.py: the longest first, not those with the most tests.
test: setup ## check style and types, run every test
	$(MAKE) --no-print-directory -j2 lint kernels-recording kernels-live
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
		$(PYTEST_ARGS)

# Types are checked by one process, which leaves a core for what two workers would both compile;
# the live engine's kernels follow where a core is free first.
kernels-recording kernels-live: kernels-%: $(INSTALL_STAMP)
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m tests.compile_kernels $*

lint: $(INSTALL_STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALL_STAMP) ## let ruff rewrite the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure every figure of the spine, exit 1 when a bar is missed
	$(BIN)/python -m benchmarks.spine --check $(ARGS)

gpu-check: ## check all that needs a card, without a network; writes docs/results/gpu.md
	$(GPU_PYTHON) -m benchmarks.gpu_check $(ARGS)

clean: ## remove .venv and caches (runs/ and the fetched model stay)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV_STAMP):
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(sys.version_info < (3, 11) and \
		f"Python {v} was found, DraftGym needs 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch goes first and by itself: the pinned build is settled before anything else can pull in
# another, and a failed 200 MB download fails early.
# --no-compile: Python compiles what it imports; compiling every file beforehand costs a minute.
$(INSTALL_STAMP): $(VENV_STAMP) pyproject.toml constraints.txt
	$(BIN)/python -m pip install --no-compile -c constraints.txt torch
	$(BIN)/python -m pip install --no-compile -c constraints.txt -e '.[dev]'
	@touch $@

$(MODEL_STAMP): $(INSTALL_STAMP) $(wildcard models/registry.toml)
	$(BIN)/python -m models.fetch $(MODEL)
	@touch $@
