# make check is what CI runs. The verify- targets are longer and end with one line of JSON.
PYTHON ?= python

.PHONY: check lint types test verify-foundation

check: lint types test

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

verify-foundation:
	$(PYTHON) checks/foundation.py --data ../shared/data/qa
