# `make check` is what CI runs. The verify- targets measure: checks/README.md says what each needs and how long it takes.
PYTHON ?= python
# DATA: a folder with the question sets; MODELS: a folder with the models (checks/README.md lists both)
DATA ?=
MODELS ?=
# RUN: a run directory; BEFORE: an older checkout to compare with
RUN ?=
BEFORE ?=
# SINCE: an older commit to compare the pages with
SINCE ?=
# VLLM_PYTHON: a Python with vLLM and anchorscope (pip install torch, vllm, then -e . --no-deps)
VLLM_PYTHON ?=
# PEERS_PYTHON: a Python with torch, transformer-lens==4.3.* and nnsight==0.8.*
PEERS_PYTHON ?=

FLAG_DATA = --data
FLAG_MODELS = --models
FLAG_RUN = --run
FLAG_BEFORE = --before
FLAG_SINCE = --since
FLAG_VLLM_PYTHON = --vllm-python
FLAG_PEERS_PYTHON = --peers-python

# $(call need,VARIABLES): stop with one sentence where one of them is not given
need = $(foreach each,$(1),$(if $($(each)),,$(error $@ needs $(each). Type: make $@ $(foreach all,$(1),$(all)=PATH))))
# $(call given,VARIABLES): the options for those of them that are given
given = $(foreach each,$(1),$(if $($(each)),$(FLAG_$(each)) $($(each))))
# $(call measure,CHECK,NEEDED,OPTIONAL): carry out a check
measure = $(call need,$(2))$(PYTHON) checks/$(1).py $(call given,$(2) $(3))

.PHONY: check quick lint types test docs results bench
check: lint types test

# while you write: lint, types, and the tests of what differs from main, side by side (tests/of_changes.py)
quick:
	@$(MAKE) --no-print-directory -j 2 lint types test-changes

.PHONY: test-changes
test-changes:
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

# --- reading and answering
.PHONY: verify-questions verify-resume verify-memory verify-accuracy verify-answers verify-tokens verify-grading

verify-questions:
	$(call measure,question_files,DATA)

verify-resume:
	$(call measure,killed_and_resumed,DATA MODELS)

verify-memory:
	$(call measure,peak_memory,DATA MODELS)

verify-accuracy:
	$(call measure,answer_accuracy,DATA MODELS)

verify-answers:
	$(call measure,answers_by_batch_and_backend,DATA MODELS,VLLM_PYTHON)

verify-tokens:
	$(call measure,token_alignment,DATA MODELS)

# with RUN (a run of small-models) also against readers
verify-grading:
	$(call measure,grader_against_people,DATA)
	$(if $(RUN),$(call measure,grader_against_readers,RUN))

# --- knockouts, statistics, claims
.PHONY: verify-knockout verify-nulls verify-intervals verify-ledger verify-difficulty verify-tables

verify-knockout:
	$(call measure,knockout_against_other_tools,MODELS,PEERS_PYTHON)

verify-nulls:
	$(call measure,null_effects,RUN)

verify-intervals:
	$(call measure,interval_coverage)

verify-ledger:
	$(call measure,ledger_verdicts)
	$(call measure,two_groups_power)

verify-difficulty:
	$(call measure,truth_or_difficulty)

verify-tables:
	$(call measure,result_tables,RUN)

# --- detectors; with RUN (a run that `anchorscope detect eval` has compared) also on that run
.PHONY: verify-detectors
verify-detectors:
	$(call measure,detector_promises)
	$(if $(RUN),$(call measure,detector_quality,RUN))
	$(if $(RUN),$(call measure,detector_in_use,RUN))

# --- what users see
.PHONY: verify-report verify-search verify-commands verify-trial verify-demo verify-library verify-plain verify-lowest

# in a real browser ($CHROMIUM or /usr/bin/chromium, Node 20)
verify-report:
	$(call measure,report_in_browser,,RUN)

verify-search:
	$(call measure,docs_search)

verify-commands:
	$(call measure,commands_and_mistakes,DATA,BEFORE)

verify-trial:
	$(call measure,new_user_trial,,BEFORE)

verify-demo:
	$(call measure,first_chart,DATA MODELS)

verify-library:
	$(call measure,library_page,DATA MODELS)

# words, colons and semicolons of the pages; with SINCE=COMMIT also as they were then
verify-plain:
	$(call measure,plain_words,,SINCE)

# in an environment of its own, with the lowest versions that pyproject.toml admits
verify-lowest:
	$(call measure,lowest_versions)

# --- speed and scale: leave the machine alone meanwhile
.PHONY: verify-ray verify-cost verify-speed verify-bytes verify-prompts verify-saliency verify-house verify-accelerators
.PHONY: gpu-day verify-context verify-live verify-closed

verify-ray:
	$(call measure,ray_against_one_process,DATA MODELS)

verify-cost:
	$(call measure,cost_prediction,DATA MODELS)

verify-speed:
	$(call measure,speed_against_before,BEFORE DATA MODELS)

verify-bytes:
	$(call measure,same_bytes_as_before,BEFORE DATA MODELS)

verify-prompts:
	$(call measure,long_prompt_cost,DATA MODELS)

verify-saliency:
	$(call measure,saliency_cost,RUN MODELS)

# the layout of the code; with BEFORE also against an older checkout, with DATA and MODELS also its bytes
verify-house:
	$(call measure,code_layout,,BEFORE DATA MODELS)

# devices that are not there, and the published models at their real size; no GPU is needed
verify-accelerators:
	$(call measure,accelerators)

# answers with passages; RUN: a run of original and substituted passages (docs/context.md)
verify-context:
	$(call measure,context,DATA MODELS,RUN)

# verdicts inside a vLLM server; DETECTOR and CONFIDENCE: detectors of SmolLM2-135M (combined, confidence)
verify-live:
	$(call measure,live,DATA MODELS,VLLM_PYTHON) --detector $(DETECTOR) --confidence $(CONFIDENCE)

# serving that fails closed, damaged files and files from strangers; with VLLM_PYTHON also a real vLLM server
verify-closed:
	$(call measure,closed,,BEFORE DATA MODELS VLLM_PYTHON)

# an hour with a rented GPU (checks/gpu_day.md); DEVICE=cpu tries the steps without one
DEVICE ?= cuda
DTYPE ?= bfloat16
STUDY_MODEL ?= smollm2-135m
gpu-day:
	$(call measure,gpu_day,DATA MODELS,VLLM_PYTHON) --device $(DEVICE) --dtype $(DTYPE) --study-model $(STUDY_MODEL) --page results/gpu-day.md

bench:
	$(call need,DATA MODELS)$(PYTHON) benchmarks/bench.py $(call given,DATA MODELS PEERS_PYTHON)

# the documentation site, into site/; any warning is an error. Needs the extra docs
docs:
	$(PYTHON) docs/tools/pipeline.py
	$(PYTHON) docs/tools/drawings.py
	$(PYTHON) docs/tools/generate.py
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

# the figures of results/ drawn again and its pages filled again from the tables beside them, and the published ones above ours; no run is needed
results:
	$(PYTHON) checks/results_redrawn.py
	$(PYTHON) docs/tools/generate.py
