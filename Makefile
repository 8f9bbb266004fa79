# Every target sets itself up in .venv from nothing; it needs python3 (3.11 or newer, with venv), gcc and make.
# What is already set up is told by stamp files in .venv, so a second run starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Installs the packages that follow it, where this is root on a machine with apt.
APT = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends

# $(call wanted,COMMAND=PACKAGE ...) sees to other people's programs. What needs one that stays missing is skipped and says so.
define wanted
@missing=; for each in $(1); do command -v $${each%=*} >/dev/null || missing="$$missing $${each#*=}"; done; \
    [ -z "$$missing" ] || { $(APT) $$missing >/dev/null; } || \
    echo "not here, so what needs it is skipped:$$missing (Debian and Ubuntu: apt-get install$$missing)" >&2
endef
BENCH_TOOLS := iperf3=iperf3
TEST_TOOLS := $(BENCH_TOOLS) redis-server=redis-server ip=iproute2 pkg-config=pkg-config

# Debian splits off what a virtual environment and an extension module need.
COMPLETE = $(PYTHON) -c 'import os, sysconfig, venv, ensurepip; \
    open(os.path.join(sysconfig.get_paths()["include"], "Python.h")).close()' 2>/dev/null

.DEFAULT_GOAL := help
.PHONY: help demo bench test softroce rdma lint style types imports check format clean distclean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

demo: $(VENV)/.stamp-demo  ## the main job on real input, in about a minute
	$(BIN)/nexuskv demo $(ARGS)

bench: $(VENV)/.stamp-bench  ## all figures against their floors (ARGS="core --json" chooses)
	$(call wanted,$(BENCH_TOOLS))
	$(BIN)/nexuskv bench $(ARGS)

test: $(VENV)/.stamp-dev  ## the test suite (ARGS="-k name" chooses)
	$(call wanted,$(TEST_TOOLS))
	$(BIN)/python -m pytest $(ARGS)

softroce: $(VENV)/.stamp-dev  ## the RDMA tests alone, in emulated machines with soft-RoCE (root, x86-64, apt)
	$(BIN)/python -m pytest tests/softroce $(ARGS)

rdma: $(VENV)/.stamp-dev  ## the figures of suite rdma, in such a machine
	$(BIN)/python -m tests.softroce.command $(BIN)/nexuskv bench rdma $(ARGS)

lint: style types imports  ## style, types and import directions, without the tests

style: $(VENV)/.stamp-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.stamp-dev
	$(BIN)/mypy
	$(BIN)/pyright

imports: $(VENV)/.stamp-dev
	$(BIN)/lint-imports

check: lint test  ## lint, then test

format: $(VENV)/.stamp-dev  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:  ## remove what builds and tools left, but keep .venv
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean  ## remove .venv and what guests boot from too
	rm -rf $(VENV) .cache

# The bare `demo` set-up is what a user would install; `bench` and `dev` add an extra each.
$(VENV)/.stamp-demo: EXTRA :=
$(VENV)/.stamp-bench: EXTRA := [bench]
$(VENV)/.stamp-dev: EXTRA := [bench,dev]

$(VENV)/.stamp-%: pyproject.toml $(wildcard nexuskv/native/*.[ch] nexuskv/native/src/*.h) | $(BIN)/pip
	$(PIP) install --editable '.$(EXTRA)'
	@touch $@

# An existing .venv is used as it is; pip comes last into a new one, so one that was interrupted is mended here.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "NexusKV needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	        "Install one and say: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(COMPLETE) || { $(APT) python3-venv python3-dev >/dev/null && $(COMPLETE); } || { \
	    echo "'$(PYTHON)' lacks venv, ensurepip or Python.h; on Debian and Ubuntu: apt-get install python3-venv python3-dev" >&2; \
	    exit 1; }
	$(PYTHON) -m venv $(VENV)
