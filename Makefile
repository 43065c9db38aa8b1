# Everything a fresh machine needs, given Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
PIP_FLAGS := -q -c constraints.txt --disable-pip-version-check
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: run test check lint guarantees clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[tables,report]'
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[tables,report,bayes,search,dask,test]'
	touch $@ $(VENV)/.run

run: $(VENV)/.run  ## the main job: the paper's Diabetes experiment in full, and its page
	$(BIN)/dco reproduce diabetes --out out
	$(BIN)/dco report out/diabetes --out out/diabetes.html --force

test: $(VENV)/.test  ## all tests, warnings as errors, a file to a core
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.test  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test  ## what CI runs

guarantees: $(VENV)/.test  ## every statistical check at full size
	DCO_GUARANTEES=full $(BIN)/python -m pytest tests/guarantees -s --timeout=3600

clean:
	rm -rf $(VENV) build dist
