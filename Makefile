# FedWard. `make demo` runs a whole study, `make test` the tests; both set up .venv first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STUDY ?= deploy/demo/exam
DATA ?=
NAME ?=
OPTIONS ?=
OUT ?= demo-out
SEED ?= 100
WORKERS ?= 2
KEY ?= fedward-release.key
CONSTRAINTS := constraints.txt

.PHONY: help demo test test-slow campaign every-state reliability ledger-faults lint proto clean audit bench gpu abuse mutants release release-key locked

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[silo,coordinator,demo,dicom,export,dev]'
	@touch $@

demo: $(VENV)/.installed ## A whole private study on this machine; STUDY=folder DATA=folder for real data.
	$(BIN)/python -m deploy.demo --study $(STUDY) --out $(OUT) --seed $(SEED) $(if $(DATA),--data $(DATA))

test: $(VENV)/.installed ## All that a change could commonly break; ten minutes. Properties draw from a fixed seed.
	FEDWARD_TESTS_UNTIL=inf $(BIN)/python -m pytest -n $(WORKERS) -m "not slow" --durations=25

test-slow: $(VENV)/.installed ## The rest, and the properties again with draws of chance.
	$(BIN)/python -m pytest -n $(WORKERS) -m "(slow or hypothesis) and not campaign" --hypothesis-profile=random --durations=25

campaign: $(VENV)/.installed ## What `make test-slow` leaves out: two of three cases where there are many, and the longest stories.
	$(BIN)/python -m pytest -n $(WORKERS) -m campaign

every-state: $(VENV)/.installed ## All states of a sealed sum and of a round of four and five silos.
	FEDWARD_EVERY_STATE=1 $(BIN)/python -m pytest -s -n $(WORKERS) tests/simulation/test_every_state.py

reliability: $(VENV)/.installed ## Kill coordinator and silo at every durable write of a study; half an hour.
	FEDWARD_CRASH_STRIDE=1 $(BIN)/python -m pytest tests/reliability

ledger-faults: $(VENV)/.installed ## Kill a ledger, its hospital and who countersigns at every durable write; three minutes.
	FEDWARD_LEDGER_STRIDE=1 $(BIN)/python -m pytest tests/policies/test_ledger_histories.py tests/integration/test_ledger_faults.py

lint: $(VENV)/.installed ## Style, types, import contracts, generated code.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m protos.generate --check
	$(BIN)/python -m policies.documents.schema --check
	$(BIN)/python -m policies.documents.table --check
	$(BIN)/python -m deploy.monitoring --check
	$(BIN)/python -m deploy.manual --check

proto: $(VENV)/.installed ## Generate the wire's Python code.
	$(BIN)/python -m protos.generate

bench: $(VENV)/.installed ## A bench: NAME=exam; without a name they are listed. DATA=folder, OPTIONS="--workers 1".
	$(BIN)/python -m bench $(NAME) $(if $(DATA),--data $(DATA)) $(OPTIONS)

gpu: $(VENV)/.installed ## All that runs on a GPU, with the card and date: tests, steady kernels, step times, a study.
	$(BIN)/python -m bench gpu $(OPTIONS)

audit: $(VENV)/.installed ## An attacker's lower bounds on epsilon, with and without planted faults; three minutes.
	$(BIN)/python -m bench.attacks.audit

mutants: $(VENV)/.installed ## Plant 100 faults into each module that privacy stands on, 150 into each room; MUTANTS="--rooms pki".
	$(BIN)/python -m bench.mutants $(MUTANTS)

abuse: $(VENV)/.installed ## One hostile member beside a study of three honest silos, and in the roster of one; 20 minutes.
	$(BIN)/python -m bench.attacks.abuse

release: $(VENV)/.installed ## Wheel, sources, pinned requirements, bills of materials, signature, in dist/; KEY=file.
	$(BIN)/python -m deploy.release build --key $(KEY) --out dist

release-key: $(VENV)/.installed ## Make a release key in KEY=file; FEDWARD_RELEASE_PASSPHRASE protects it.
	$(BIN)/python -m deploy.release key $(KEY)

locked: $(VENV)/.installed ## Resolve the pinned requirements of a release anew, after constraints.txt has changed.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[release]'
	$(BIN)/python -m deploy.release locked

clean: ## Remove what was built; never a ledger.
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
