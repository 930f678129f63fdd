# make setup | demo | test | lint | lock | clean. Needs a Python of 3.11 or 3.12 with pip, gcc and make.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# One thread a process: with more, the engines' spinning barriers starve one another on few cores.
export OMP_NUM_THREADS := 1
export TORCH_COMPILE_DISABLE := 1
export HF_HUB_OFFLINE := 1

BIN := .venv/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; done)
UV := $(or $(shell uv --version >/dev/null 2>&1 && echo uv),.tools/bin/uv)

.PHONY: help setup demo test lint lock clean sandbox-tools

help:
	@echo "make setup   create .venv from requirements.lock"
	@echo "make demo    solve held-out tasks with and without speculation, side by side"
	@echo "make test    every test that needs no GPU"
	@echo "make lint    ruff, mypy, direction of imports"
	@echo "make lock    resolve pyproject.toml into requirements.lock"
	@echo "make clean   remove .venv, caches and runs"

setup: .venv/installed sandbox-tools

demo: setup
	$(BIN)/obsspec demo --config configs/tiny.yaml

test: setup
	$(BIN)/pytest -m "not gpu and not download"

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: $(filter .tools/bin/uv,$(UV))
	$(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate -o requirements.lock

clean:
	rm -rf .venv .tools runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every engine imports torch and SGLang from their bytecode: compiled here, once, whatever
# PYTHONDONTWRITEBYTECODE says.
.venv/installed: requirements.lock pyproject.toml $(filter .tools/bin/uv,$(UV))
	@test -n "$(PYTHON)" || { echo "obsspec needs Python 3.11 or 3.12 on the PATH; set PYTHON=… to name one." >&2; exit 1; }
	@test -x $(BIN)/python || $(UV) venv --quiet --no-python-downloads --python $(PYTHON) .venv
	@echo "Installing the environment (12 GB on disk; downloads what the cache of uv lacks)."
	$(UV) pip sync --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.tools/bin/uv:
	@test -n "$(PYTHON)" || { echo "obsspec needs Python 3.11 or 3.12 on the PATH; set PYTHON=… to name one." >&2; exit 1; }
	$(PYTHON) -m pip install --quiet --target .tools uv

# What sandboxes use: bubblewrap always; slirp4netns and libfaketime for builds with a network and a fixed clock.
sandbox-tools:
	@if command -v bwrap >/dev/null && command -v slirp4netns >/dev/null && command -v ip >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			bubblewrap slirp4netns iproute2 libfaketime; \
	else echo "Sandboxes need bubblewrap, and slirp4netns to build environments with a network: install the packages \
	'bubblewrap' and 'slirp4netns' (apt, dnf, pacman, …)." >&2; fi
