# make check is what CI runs. The verify- targets are longer and end with one line of JSON.
PYTHON ?= python

.PHONY: check lint types test verify-foundation verify-answers verify-spine verify-library verify-trust verify-evidence verify-detectors verify-report verify-engine bench docs results

check: lint types test

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --no-logo

types:
	$(PYTHON) -m mypy

# side by side, a file's tests in one process: they share models
test:
	$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=15

verify-foundation:
	$(PYTHON) checks/foundation.py --data ../shared/data/qa

# VLLM_PYTHON: a Python with vLLM and anchorscope (pip install torch, vllm, then -e . --no-deps); without it that step is left out
verify-answers:
	$(PYTHON) checks/answers.py $(if $(VLLM_PYTHON),--vllm-python $(VLLM_PYTHON))

# PEERS_PYTHON: a Python with torch, transformer-lens==4.3.* and nnsight==0.8.*; RUNS: where the run is kept, to go on with it
verify-spine:
	$(PYTHON) checks/spine.py $(if $(PEERS_PYTHON),--peers-python $(PEERS_PYTHON)) $(if $(RUNS),--runs $(RUNS))

# BEFORE: an older checkout, to measure commands and mistakes against
verify-library:
	$(PYTHON) checks/library.py $(if $(BEFORE),--before $(BEFORE))

# RUN: a run of small-models (anchorscope run small-models --data …); BEFORE: an older checkout, for the cost
verify-trust:
	$(PYTHON) checks/coverage.py
	$(PYTHON) checks/trust.py $(RUN) $(if $(BEFORE),--before $(BEFORE))

# the ledger in worlds whose truth is known
verify-evidence:
	$(PYTHON) checks/evidence.py

# RUN: a run that `anchorscope detect eval` has compared; without it, promises and intervals in made-up worlds alone
verify-detectors:
	$(PYTHON) checks/detectors.py $(if $(RUN),--run $(RUN))

# BEFORE: an older checkout, for what is measured against it. Hours; parts of it: python checks/engine.py --help
verify-engine:
	$(PYTHON) checks/verify_engine.py $(if $(BEFORE),--before $(BEFORE))

# in a real browser ($CHROMIUM or /usr/bin/chromium, Node 20); RUN: a run of your own, beside made-up ones. No model
verify-report:
	$(PYTHON) checks/report.py $(if $(RUN),--run $(RUN))

# PEERS_PYTHON as above. Leave the machine alone meanwhile: what is measured are times
bench:
	$(PYTHON) benchmarks/bench.py $(if $(PEERS_PYTHON),--peers-python $(PEERS_PYTHON))

# the documentation site, into site/; any warning is an error. Needs the extra docs
docs:
	$(PYTHON) docs/tools/pipeline.py
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

# the figures of results/ drawn again from the tables beside them, and the published ones above ours; no run is needed
results:
	$(PYTHON) checks/results.py
