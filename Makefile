# FedWard. `make demo` runs a whole study, `make test` the tests; both set up .venv first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STUDY ?= deploy/demo/exam
DATA ?=
OUT ?= demo-out
SEED ?= 100
WORKERS ?= 2
KEY ?= fedward-release.key
CONSTRAINTS := constraints.txt

.PHONY: help demo test test-slow every-state reliability ledger-faults lint proto clean audit bench-exam bench-heart bench-mnist bench-sealed bench-round bench-startup bench-noise bench-private-heads bench-encoder-pays bench-feddar bench-hessian abuse mutants bench-real bench-forecast bench-ablation bench-step bench-mmd bench-two-sample bench-personal bench-invariance bench-choice bench-unseen bench-recipes bench-local-global bench-revocation bench-poisoning release release-key locked

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
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" --durations=25

test-slow: $(VENV)/.installed ## The rest, and the properties again with draws of chance.
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow or hypothesis" --hypothesis-profile=random --durations=25

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

proto: $(VENV)/.installed ## Generate the wire's Python code.
	$(BIN)/python -m protos.generate

audit: $(VENV)/.installed ## An attacker's lower bounds on epsilon, with and without planted faults; three minutes.
	$(BIN)/python -m bench.audit

mutants: $(VENV)/.installed ## Plant 100 faults into each module that privacy stands on, 150 into each room; MUTANTS="--rooms pki".
	$(BIN)/python -m bench.mutants $(MUTANTS)

bench-exam: $(VENV)/.installed ## The demo's study on eight seeds, one also as processes, beside FedAvg and the open fit.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.exam --processes

bench-step: $(VENV)/.installed ## A step of an mlp, the cnn and ResNet-18 beside Opacus and plain torch, on a GPU if there is one.
	$(BIN)/python -m bench.step

bench-private-heads: $(VENV)/.installed ## Solvers of private heads and FedAvg with DP-SGD, 20 seeds at four epsilons; ten minutes.
	$(BIN)/python -m bench.private_heads

bench-encoder-pays: $(VENV)/.installed ## Raw inputs, random features and a trained encoder at three sizes; half an hour.
	$(BIN)/python -m bench.encoder_pays

bench-real: $(VENV)/.installed ## Three public data sets at four epsilons beside other ways to use them; DATA=folder.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.real --processes $(if $(DATA),--data $(DATA))

bench-forecast: $(VENV)/.installed ## What `plan` forecasts of 30 studies against what they come to; a quarter of an hour.
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.forecast

bench-heart: $(VENV)/.installed ## Accuracy on five splits of the four UCI hospitals, with and without noise; DATA=folder.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.heart --processes $(if $(DATA),--data $(DATA))

bench-mnist: $(VENV)/.installed ## Five private silos, MNIST under five angles; DATA=folder.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.mnist --processes $(if $(DATA),--data $(DATA))

bench-sealed: $(VENV)/.installed ## Sealed sums beside NVFLARE's parameters: bytes, CPU, memory, error.
	$(BIN)/python -m bench.sealed

bench-round: $(VENV)/.installed ## Three rounds, two silos, 478,410 weights: what sealing costs beside training.
	$(BIN)/python -m bench.round

bench-poisoning: $(VENV)/.installed ## What one hospital's contributions, flipped or swapped by mistake, do to the demo's study; ten minutes.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.poisoning

bench-startup: $(VENV)/.installed ## CPU seconds of commands that neither train nor count, and of an agent until it is ready.
	$(BIN)/python -m bench.startup

bench-revocation: $(VENV)/.installed ## Seconds from a revocation to the coordinator's first refusal.
	$(BIN)/python -m bench.revocation

bench-feddar: $(VENV)/.installed ## FedDAR's synthetic experiment, in the clear and through sealed sums.
	$(BIN)/python -m bench.feddar

bench-ablation: $(VENV)/.installed ## FedDAR's Table 2 on the demo's cohort, without privacy, five seeds; half an hour.
	$(BIN)/python -m bench.ablation

bench-hessian: $(VENV)/.installed ## Hessians of the heads in closed form against torch.func.hessian.
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.hessian

bench-unseen: $(VENV)/.installed ## FedSR on digits at an angle that no silo has, beside FedAvg; a picture; half an hour.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.unseen $(if $(DATA),--data $(DATA))

bench-mmd: $(VENV)/.installed ## An MK-MMD step with 19 kernels beside one computation for each kernel.
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.mmd

bench-two-sample: $(VENV)/.installed ## Two-sample tests with MK-MMD and MMD-D beside the median kernel; a quarter of an hour.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.two_sample

bench-personal: $(VENV)/.installed ## Personal models of the adaptive-MMD paper, and of hospitals; an hour. DATA=folder.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.personal_models $(if $(DATA),--data $(DATA))

bench-invariance: $(VENV)/.installed ## Coloured MNIST at four silos: FedAvg, federated IRM and PerInvFL under other colours.
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.invariance

bench-recipes: $(VENV)/.installed ## A recipe of each paper through agents, heart disease, epsilon 8; DATA=folder.
	$(BIN)/python -m bench.recipes $(if $(DATA),--data $(DATA))

bench-local-global: $(VENV)/.installed ## LG-FedAvg: two-class digits at 100 silos, and one whose digits are turned; DATA=folder.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.local_global $(if $(DATA),--data $(DATA))

bench-choice: $(VENV)/.installed ## Shared, personal and chosen models of the hospitals of two data sets; half an hour; DATA=folder.
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m bench.choice $(if $(DATA),--data $(DATA))

abuse: $(VENV)/.installed ## One hostile member beside a study of three honest silos, and in the roster of one; 20 minutes.
	$(BIN)/python -m bench.abuse

bench-noise: $(VENV)/.installed ## Nanoseconds of a value of training noise, and training with noise against without.
	$(BIN)/python -m bench.noise

release: $(VENV)/.installed ## Wheel, sources, pinned requirements, bills of materials, signature, in dist/; KEY=file.
	$(BIN)/python -m deploy.release build --key $(KEY) --out dist

release-key: $(VENV)/.installed ## Make a release key in KEY=file; FEDWARD_RELEASE_PASSPHRASE protects it.
	$(BIN)/python -m deploy.release key $(KEY)

locked: $(VENV)/.installed ## Resolve the pinned requirements of a release anew, after constraints.txt has changed.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[release]'
	$(BIN)/python -m deploy.release locked

clean: ## Remove what was built; never a ledger.
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
