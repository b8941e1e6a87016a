# Each target sets up what it needs in .venv; a machine with Python 3.11 or later is enough.
#
#   make run      the page (ARGS are for app.py); the command line is `.venv/bin/python -m inflight`
#   make test     the tests, with a few of the page; SLOW=1 runs the slow ones too, ARGS are for pytest
#   make test-page  all tests of the page, in Chromium (SLOW=1: in Firefox, too)
#   make lint     ruff, mypy; Prettier, tsc and ESLint where Node is there
#   make mutants  make each fault of tests/mutants/faults.py, one by one, and see the tests notice it; ARGS choose by words
#   make docs     the documents as a site, in build/docs
#   make traces   record the shipped runs anew

PYTHON ?= python3
# Tests wait for browsers, servers and other processes about as long as they compute.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * os.cpu_count())')
VENV := .venv
BIN := $(VENV)/bin
WHICH := $(if $(SLOW),--ignore tests/page,-m "(smoke or not page) and not slow")
# CONSTRAINTS=requirements-lowest.txt sets up, where nothing is set up yet, with the lowest versions that are allowed.
LIMITS := $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
TORCH := $(if $(CONSTRAINTS),$(shell sed -n 's/^torch==//p' $(CONSTRAINTS)),2.13.0)

.PHONY: run test test-page lint mutants docs traces clean
.DELETE_ON_ERROR:

run: $(VENV)/.run
	@[ -f $(VENV)/.fetched ] || { $(BIN)/python -m inflight models --fetch smollm2 >/dev/null && touch $(VENV)/.fetched; } || true
	@if [ -f app.py ]; then exec $(BIN)/python app.py $(ARGS); else exec $(BIN)/python -m inflight run --preset gpt2-six $(ARGS); fi

test: $(VENV)/.test
	@.ci/browser $(BIN)/python
	@.ci/javascript test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(WHICH) $(ARGS)

test-page: $(VENV)/.test
	@.ci/browser $(BIN)/python
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "page$(if $(SLOW),, and not slow)" $(ARGS) tests/page

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 --follow-imports=silent core/recorders/vllm/inflight_vllm
	@.ci/javascript lint

mutants: $(VENV)/.test
	$(BIN)/python tests/mutants $(ARGS)

docs: $(VENV)/.test
	$(BIN)/zensical build --strict

traces: $(VENV)/.run
	$(BIN)/python tests/measure/record.py $(ARGS)

clean:
	rm -rf $(VENV) node_modules build .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit("Inflight needs Python 3.11 or later, not %d.%d: make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "Python's venv module is missing; on Debian or Ubuntu install python3-venv."; exit 1; }

# Without an NVIDIA GPU the CPU build of torch is all that is needed, if the configured package index has it.
$(VENV)/.run: requirements.txt | $(BIN)/pip
	@command -v nvidia-smi >/dev/null || $(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/pip install -q 'torch==$(TORCH)+cpu' 2>/dev/null || true
	$(BIN)/pip install -q -r requirements.txt $(LIMITS)
	@touch $@

$(VENV)/.test: requirements-test.txt $(VENV)/.run
	$(BIN)/pip install -q -r requirements-test.txt $(LIMITS)
	@touch $@
