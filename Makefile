# One-word commands. Each makes the environment it needs, once; after that they work offline.

# Tests start hundreds of processes; without bytecode, each of them would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
RUN := .venv/bin/python
# Many tests wait more than they work.
WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
SIDE_BY_SIDE = $(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# In CI a test that fails is run again alone, and that decides; the log has both results (docs/flaky.md).
ALONE = $(if $(CI),|| $(RUN) -m pytest --last-failed --last-failed-no-failures none -p scripts.alone)

.PHONY: help up demo test test-long spark-test lint fuzz sim chaos mutate bench docs format clean gateway dev

help:                ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: gateway          ## start Penstock here, show it working, stay up until Ctrl-C
	@$(RUN) -m penstock up $(ARGS)

demo:                ## a shop's evening on three nodes and Spark, audited and drawn, in under two minutes
	@$(PYTHON) scripts/environment.py demo
	@$(RUN) -m examples.demo $(ARGS)

test: dev            ## every test but the long ones; names what this machine could not run
	@$(SIDE_BY_SIDE) $(or $(ARGS),-m "not slow" --ignore=tests/spark) $(ALONE)

test-long: dev       ## the rest: whole clusters under faults, the simulator, the pipeline on Spark
	@$(SIDE_BY_SIDE) -m slow --ignore=tests/spark $(ALONE)
	@$(RUN) -m pytest -m "not heavy" tests/spark $(ALONE)

spark-test: dev      ## every test of the pipeline on Spark, the long ones too: real Spark clusters, kills at random
	@$(RUN) -m pytest tests/spark $(ARGS)

lint: dev            ## ruff, mypy --strict, the layers, and the vocabulary
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(RUN) scripts/vocabulary.py

fuzz: dev            ## a million hostile frames against a running broker (FRAMES=…, SEED=…)
	@$(RUN) -m tests.fuzz.run $(if $(FRAMES),--frames $(FRAMES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

sim: dev             ## whole clusters in virtual time, from seeds, with everything going wrong (SEEDS=…, SEED=…)
	@$(RUN) -m tests.sim $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos: dev           ## three real processes killed, paused, cut off and restarted under load (MINUTES=…, FAULT=…)
	@$(RUN) -m tests.chaos.run $(if $(MINUTES),--minutes $(MINUTES)) $(foreach fault,$(FAULT),--fault $(fault)) $(ARGS)

mutate: dev          ## one mutation at a time in a copy of the code: does a test fail? (SAMPLE=…, SEED=…, ARGS="--only raft")
	@$(RUN) -m tests.mutation.run $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: dev           ## Penstock next to its peers, in one run; writes docs/benchmarks.md
	@$(RUN) -m bench $(ARGS)

docs: dev            ## write the generated pages and modules anew
	@$(RUN) -m penstock.wire.generate
	@$(RUN) -m scripts.async_clients
	@$(RUN) -m penstock.config.document
	@$(RUN) -m penstock.api.document
	@$(RUN) -m penstock.gateway.metrics_document

format: dev          ## let ruff format and fix what it can
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

clean:               ## forget the environment and what tests fetched
	rm -rf .venv .tools build src/*.egg-info src/penstock/*/*.so native/*.c

gateway:
	@$(PYTHON) scripts/environment.py gateway

dev:
	@$(PYTHON) scripts/environment.py dev
