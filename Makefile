# FedWard. `make demo` runs a whole study, `make test` the tests; both set up .venv first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STUDY ?= deploy/demo/exam
DATA ?=
OUT ?= demo-out
SEED ?= 100
CONSTRAINTS := constraints.txt

.PHONY: help demo test lint proto clean bench-exam

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[silo,coordinator,demo,dev]'
	@touch $@

demo: $(VENV)/.installed ## A whole private study on this machine; STUDY=folder DATA=folder for real data.
	$(BIN)/python -m deploy.demo --study $(STUDY) --out $(OUT) --seed $(SEED) $(if $(DATA),--data $(DATA))

test: $(VENV)/.installed ## All tests.
	$(BIN)/python -m pytest

lint: $(VENV)/.installed ## Style, types, import contracts, generated code.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m protos.generate --check

proto: $(VENV)/.installed ## Generate the wire's Python code.
	$(BIN)/python -m protos.generate

bench-exam: $(VENV)/.installed ## Three seeds of the demo's study against hospitals alone and FedAvg.
	$(BIN)/python -m bench.exam

clean: ## Remove what was built; never a ledger.
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
