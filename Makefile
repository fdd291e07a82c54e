# `make check` is what CI runs. `make verify CHECK=name` measures: checks/README.md lists the checks and what they need.
PYTHON ?= python
# options of a check, each given on only if it is set:
#   DATA: a folder with the question sets; MODELS: a folder with the models; RUN: a run directory;
#   BEFORE: an older checkout; VLLM_PYTHON: a Python with vLLM and anchorscope;
#   LITELLM_PYTHON: a Python with litellm[proxy]; INSPECT_PYTHON: one with anchorscope[inspect];
#   PEERS_PYTHON: a Python with torch, transformer-lens==4.3.* and nnsight==0.8.*;
#   OPTIONS: steps and any other options, as `python checks/NAME.py --help` lists them
GIVEN = $(foreach each,DATA MODELS RUN BEFORE VLLM_PYTHON LITELLM_PYTHON INSPECT_PYTHON PEERS_PYTHON,$(if $($(each)),$(FLAG_$(each)) $($(each))))
FLAG_DATA = --data
FLAG_MODELS = --models
FLAG_RUN = --run
FLAG_BEFORE = --before
FLAG_VLLM_PYTHON = --vllm-python
FLAG_LITELLM_PYTHON = --litellm-python
FLAG_INSPECT_PYTHON = --inspect-python
FLAG_PEERS_PYTHON = --peers-python
CHECKS = $(patsubst checks/%.py,%,$(shell grep -l __main__ checks/*.py))

.PHONY: check quick lint types test changes docs results bench verify
check: lint types test

# while you write: lint, types, and the tests of what differs from main, side by side (tests/of_changes.py)
quick:
	@$(MAKE) --no-print-directory -j 2 lint types changes

changes:
	PYTHONPATH=tests $(PYTHON) -m pytest -q -p of_changes --durations=5 || [ $$? -eq 5 ]

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --no-logo

types:
	$(PYTHON) -m mypy

# tests run in parallel, those of one file in one process, because they share models (tests/conftest.py)
test:
	$(PYTHON) -m pytest -n 2 --dist loadscope --no-loadscope-reorder --durations=15

# one measurement; leave the machine alone meanwhile if it measures time
verify:
	$(if $(filter $(CHECK),$(CHECKS)),,$(error There is no check '$(CHECK)'. Type: make verify CHECK=NAME, where NAME is one of: $(CHECKS)))
	$(PYTHON) checks/$(CHECK).py $(OPTIONS) $(GIVEN)

bench:
	$(PYTHON) benchmarks/bench.py $(OPTIONS) $(foreach each,DATA MODELS PEERS_PYTHON,$(if $($(each)),$(FLAG_$(each)) $($(each))))

# the documentation site, into site/; any warning is an error. Needs the extra docs
docs:
	$(PYTHON) docs/tools/pipeline.py
	$(PYTHON) docs/tools/drawings.py
	$(PYTHON) docs/tools/generate.py
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

# the figures of results/ drawn again and its pages filled again from the tables beside them; no run is needed
results:
	$(PYTHON) docs/tools/results_redrawn.py
	$(PYTHON) docs/tools/generate.py
