# Two commands do all the set-up:  make check   and   make test.   `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# the default of images/versions.toml
VARIANT ?= $(shell python3 images/versions.py default)
# the variants that `make test` builds and tests
TEST_VARIANTS ?= cuda cpu
# shared memory of `make check`; it costs nothing until it is used
SHM_SIZE ?= 8g
SCRIPT ?=
# auto: use a Docker engine, set one up where there is none.  never: check this host in a virtual environment
ENGINE ?= auto
PYTEST ?=
# processes that test; a file is never split, for its fixtures' sake
JOBS ?= 2
PARALLEL = -n $(JOBS) --dist loadfile
export ENGINE
export TORCH_DOCTOR_TEST_VARIANTS = $(TEST_VARIANTS)

VENV := .venv
BIN := $(abspath $(VENV))/bin
# the CPU row's torch without its local version: pip's own configuration says which build that is
TORCH = $(firstword $(subst +, ,$(shell python3 images/versions.py get cpu torch)))
# a test that needs an engine fails without one, unless ENGINE=never asked for that
NEED_ENGINE = $(filter-out never,$(ENGINE))
SHELL_FILES = $(shell find images entrypoint tests -name '*.sh' | sort) .ci/run

.PHONY: help check test test-unit test-image test-gpu image engine lock lint bench wheel clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make check SCRIPT=train.py       is this machine fit for this script?"
	@echo "  make check ENGINE=never          check this host, without Docker"
	@echo "  make image VARIANT=NAME          $$(python3 images/versions.py variants | paste -sd' ')"

check: ## is this machine fit to train? builds the image where its inputs changed and checks in it
	@VARIANT=$(VARIANT) SHM_SIZE=$(SHM_SIZE) VENV_BIN=$(BIN) images/check.sh $(SCRIPT)

test: prepare $(VENV)/.ready ## all tests, those against real containers included
	@$(MAKE) engine
	@for variant in $(TEST_VARIANTS); do images/build.sh $$variant; done
	@TORCH_DOCTOR_TESTS_NEED_ENGINE=$(NEED_ENGINE) $(BIN)/python -m pytest tests $(PARALLEL) $(PYTEST)

test-unit: $(VENV)/.ready ## the tests that need neither engine nor GPU, in seconds
	@$(BIN)/python -m pytest tests -m 'not engine and not gpu and not slow' $(PARALLEL) $(PYTEST)

test-image: $(VENV)/.ready engine ## the tests against real containers
	@for variant in $(TEST_VARIANTS); do images/build.sh $$variant; done
	@TORCH_DOCTOR_TESTS_NEED_ENGINE=$(NEED_ENGINE) $(BIN)/python -m pytest tests -m engine $(PARALLEL) $(PYTEST)

test-gpu: $(VENV)/.ready ## the tests that need an NVIDIA GPU; skipped, with the reason, where there is none
	@$(BIN)/python -m pytest tests/gpu $(PYTEST)

image: engine ## build one variant: make image VARIANT=cpu
	@images/build.sh $(VARIANT)

lock: $(VENV)/.ready ## resolve the requirements of every variant into hash-locked files
	@images/lock.sh $(BIN)/uv

lint: $(VENV)/.ready ## ruff, mypy, shellcheck, shfmt, hadolint
	$(BIN)/ruff check --config doctor/pyproject.toml doctor tests images
	$(BIN)/ruff format --check --config doctor/pyproject.toml doctor tests images
	cd doctor && $(BIN)/mypy
	$(BIN)/shellcheck $(SHELL_FILES)
	$(BIN)/shfmt -d $(SHELL_FILES)
	$(BIN)/hadolint Dockerfile
	python3 images/versions.py sync-dockerfile --check

bench: $(VENV)/.ready engine ## the speed and size budgets, as measured here
	@for variant in $(TEST_VARIANTS); do images/build.sh $$variant; done
	@$(BIN)/python tests/bench/run.py $(BENCH)

wheel: $(VENV)/.ready ## a wheel and an sdist of the doctor, for pipx and uv tool install, in dist/
	@$(BIN)/python -m build --outdir dist doctor

clean: ## remove what make wrote here: virtual environment, wheels, caches (images stay: docker image rm)
	rm -rf $(VENV) dist build .make images/*/wheels images/shm/build doctor/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis doctor/.mypy_cache

# ---------------------------------------------------------------------------------------------------

engine:
	@images/engine.sh ensure

.PHONY: prepare
prepare:
	@images/host.sh

$(VENV)/.ready: tests/requirements.txt doctor/pyproject.toml images/versions.toml
	@images/host.sh python
	@echo "make: preparing $(VENV)" >&2
	@python3 -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt torch==$(TORCH) -e doctor
	@touch $@
