# Each target that needs the environment makes it first, once (scripts/setup.sh). `make` alone lists the targets.

.DEFAULT_GOAL := help
.PHONY: help setup install demo test test-slurm slurm-up slurm-down check format bench clean install_conda_env export_conda_env

PYTHON     ?=
PIP_ARGS   ?=
EXPERIMENT ?= train_bert
ARGS       ?=
WORKERS    ?= 2
CONDA_ENV  ?= supertrainer
CONDA_FILE ?= environment.export.yaml
SUPERTRAINER_SLURM_ROOT ?= /tmp/supertrainer-slurm
export PYTHON PIP_ARGS EXPERIMENT WORKERS CONDA_ENV CONDA_FILE SUPERTRAINER_SLURM_ROOT

# Relative, so that a checkout may lie in a folder with spaces in its name.
# A language model is six times as large as the encoder: fewer rows, so that its demo takes minutes too.
DEMO_train_llm := dataset.limits.train=192 trainer.training_kwargs.num_train_epochs=1
# A vision-language model that begins with nothing: every question there is, and it is small enough for that.
DEMO_train_mllm := dataset.limits.train=null dataset.limits.validation=400 dataset.limits.test=2000 trainer.global_batch_size=32 \
    trainer.training_kwargs.per_device_train_batch_size=32 trainer.training_kwargs.num_train_epochs=1.5 \
    trainer.training_kwargs.logging_steps=50

VENV_PYTHON := .venv/bin/python
SOURCES     := src tests scripts benchmarks setup.py

# SLURM_CONF of the testbed where `make slurm-up` wrote one: tests and benchmarks never queue on a machine's own cluster.
USE_TESTBED = if [ -f "$$SUPERTRAINER_SLURM_ROOT/environment" ]; then . "$$SUPERTRAINER_SLURM_ROOT/environment"; fi

help: ## list the targets
	@echo 'usage: make TARGET [NAME=value]'
	@echo
	@sed -n 's/^\([a-z_-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

setup: ## make .venv and install everything, once [PYTHON=python3.11] [PIP_ARGS="--index-url …"]
	@./scripts/setup.sh

install: setup ## the same as setup

demo: ## train a small real encoder on real text, minutes on a CPU [EXPERIMENT=train_bert]
	@test -f "configs/experiment/$$EXPERIMENT.yaml" || { \
	    echo "make demo: there is no experiment '$$EXPERIMENT'. Those that are there:" >&2; \
	    (cd configs/experiment && find . -name '*.yaml' | sed 's|^\./|  |; s|\.yaml$$||' | sort) >&2; exit 2; }
	@./scripts/setup.sh
	@$(VENV_PYTHON) src/supertrainer/main.py "+experiment=$$EXPERIMENT" mode=toy $(DEMO_$(EXPERIMENT)) $(ARGS)

test: setup ## run the tests and print the coverage [ARGS="tests/core -x"] [WORKERS=2]
	@$(USE_TESTBED); ./scripts/run_tests.sh $(ARGS)

test-slurm: setup ## run the tests against a SLURM, which is started for them and stopped after [SLURM_ACCOUNTING=0] [ARGS="-k preempt"]
	@status=0; trap : INT TERM; \
	./scripts/slurm_testbed.sh up && { $(USE_TESTBED); \
	    SUPERTRAINER_SLURM_REQUIRED=1 OMP_NUM_THREADS=1 $(VENV_PYTHON) -m pytest -m slurm tests/slurm $(ARGS); } || status=$$?; \
	./scripts/slurm_testbed.sh down; exit $$status

slurm-up: ## start a SLURM of four small nodes on this machine, beside any other, as root [SLURM_ACCOUNTING=0]
	@./scripts/slurm_testbed.sh up

slurm-down: ## cancel its jobs and stop it
	@./scripts/slurm_testbed.sh down

check: setup ## format, lint, types, import layers and every YAML, all of them even where one fails; changes nothing
	@failed=; run() { echo "== $$*"; "$$@" || failed="$$failed, $$*"; }; \
	run $(VENV_PYTHON) -m ruff format --check --output-format concise $(SOURCES); \
	run $(VENV_PYTHON) -m ruff check $(SOURCES); \
	run $(VENV_PYTHON) -m mypy; \
	run .venv/bin/lint-imports; \
	run env OMP_NUM_THREADS=1 $(VENV_PYTHON) -m pytest -q tests/config/test_every_yaml.py; \
	test -z "$$failed" || { echo "make check: failed: $${failed#, }" >&2; exit 1; }

format: setup ## rewrite the sources as ruff formats them, and mend what lint can mend
	$(VENV_PYTHON) -m ruff format $(SOURCES)
	$(VENV_PYTHON) -m ruff check --fix $(SOURCES)

bench: setup ## run every benchmark in benchmarks/
	@$(USE_TESTBED); for file in benchmarks/*.py; do echo "== $$file"; $(VENV_PYTHON) "$$file" $(ARGS) || exit 1; done

clean: ## remove caches and build outputs; .venv, runs/ and sweeps/ stay
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .coverage .coverage.* src/*.egg-info
	find src tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

install_conda_env: ## create or update a conda environment from environment.yaml [CONDA_ENV=supertrainer]
	@./scripts/conda_env.sh install

export_conda_env: ## write what a conda environment holds, without prefix, paths and builds [CONDA_ENV=…] [CONDA_FILE=…]
	@./scripts/conda_env.sh export
