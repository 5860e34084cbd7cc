# The README's commands. `make demo DATA=folder` takes your own images, `make demo FULL=1` runs the whole SSD study;
# `make PYTHON=python3.12 …` takes another Python.
VENV ?= .venv
BIN := $(VENV)/bin
DATA ?=
FULL ?=

.PHONY: demo test quick pure test-all under-load package budgets lint docs screenshots setup-demo setup-test benchmarks truth \
	overhead faults user-code batch-sizes tuning differences studies rivals clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

demo: setup-demo ## set up, record a training, compare loaders, prove a change: 3 minutes after setting up (FULL=1: the SSD study)
	@FULL=$(FULL) scripts/demo.sh $(BIN) $(DATA)

test: setup-test ## set up, lint, type-check, build the documentation and run the tests: what CI runs
	@$(MAKE) --no-print-directory -j2 lint docs
	@scripts/test.sh $(BIN)

quick: setup-test ## lint, types and the pure layers, in under a minute: while working
	@$(MAKE) --no-print-directory -j2 lint pure

pure: setup-test
	@scripts/test.sh $(BIN) quick

test-all: setup-test ## the same as `test` with what takes long: every program, library and way to start workers
	@$(MAKE) --no-print-directory -j2 lint docs
	@scripts/test.sh $(BIN) all

budgets: setup-test ## how large each package is beside what budgets.toml allows; lowers that where less stands
	@$(BIN)/python scripts/budgets.py --lower

under-load: setup-test ## the tests three times while a busy loop holds each CPU (an hour)
	@scripts/under_load.sh $(BIN) 3

package: setup-test ## wheel and sdist in dist/, checked as a release is
	@scripts/package.sh $(BIN)/python

lint: setup-test ## ruff and mypy
	@scripts/lint.sh $(BIN)

docs: setup-test ## the documentation as a site, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict > /dev/null

screenshots: setup-test ## the pictures in docs/img, of runs made here (needs chromium and tmux)
	@$(BIN)/python scripts/screenshots.py

benchmarks: setup-test ## what records, the sampler and looks at stacks cost, and how fast records and jobs of many ranks are read
	@$(BIN)/python -m benchmarks.record
	@$(BIN)/python -m benchmarks.ranks
	@$(BIN)/python -m benchmarks.sampler
	@$(BIN)/python -m benchmarks.stacks

truth: setup-test ## how far the figures are from ground truth (5 minutes)
	@$(BIN)/python -m benchmarks.truth
	@$(BIN)/python -m benchmarks.attach

overhead: setup-test ## what hooks cost a training, beside torch.profiler and TraceML
	@$(BIN)/python -m benchmarks.overhead --traceml

faults: setup-test ## what the diagnosis makes of planted faults, and of healthy trainings (an hour)
	@$(BIN)/whyidle-bench faults

user-code: setup-test ## what is said of programs with a fault in their own code: cause, line, remedy (25 minutes)
	@$(BIN)/whyidle-bench user-code

batch-sizes: setup-test ## what is said of planted sweeps over the batch size (8 minutes)
	@$(BIN)/whyidle-bench batch-sizes

tuning: setup-test ## how good predicted and proven loader settings are, beside an exhaustive grid and loadtune (an hour)
	@$(BIN)/python -m benchmarks.tuning.grid --json runs/tuning-grid.json
	@$(BIN)/python -m benchmarks.prediction --grid runs/tuning-grid.json
	@$(BIN)/python -m benchmarks.tuning --grid runs/tuning-grid.json --budget 60

differences: setup-test ## how often diff and check are right, of runs whose speed is known (virtual clock)
	@$(BIN)/python -m benchmarks.differences

studies: setup-test ## the four studies in their quick forms; figures under runs/studies (an hour)
	@scripts/studies.sh $(BIN) runs/studies-$$(date +%Y%m%d-%H%M%S)

rivals: setup-test ## the planted faults given to other tools, in an environment of their own (half an hour)
	@$(BIN)/whyidle-bench rivals

setup-demo:
	@scripts/setup.sh $(VENV) dali,fused

setup-test:
	@scripts/setup.sh $(VENV) dali,fused,dev

clean: ## remove what the commands above made, except the images and runs
	rm -rf $(VENV) .mypy_tree .mypy_cache .pytest_cache .ruff_cache build *.egg-info
