# Everything a fresh machine needs, given Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
PIP_FLAGS := -q -c constraints.txt --disable-pip-version-check
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: run docs test check lint guarantees bench clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[tables,report]'
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[tables,report,bayes,search,dask,test]'
	touch $@ $(VENV)/.run

$(VENV)/.docs: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[tables,report,docs]'
	touch $@ $(VENV)/.run

run: $(VENV)/.run  ## the main job: the paper's Diabetes experiment in full, and its page
	$(BIN)/dco reproduce diabetes --out out
	$(BIN)/dco report out/diabetes --out out/diabetes.html --force

docs: $(VENV)/.docs  ## the documentation site, site/index.html; a broken link is an error
	# without --quiet, which would hide broken links from --strict too
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

test: $(VENV)/.test  ## all tests, warnings as errors, a file to a core
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.test  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test  ## what CI runs

guarantees: $(VENV)/.test  ## every statistical check at full size
	DCO_GUARANTEES=full $(BIN)/python -m pytest tests/guarantees -s --timeout=3600

BENCH := .venv-bench
BENCH_FLAGS := -q -c benchmarks/constraints.txt --disable-pip-version-check

$(BENCH)/.ready: pyproject.toml benchmarks/requirements.txt benchmarks/constraints.txt benchmarks/puncc.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install $(BENCH_FLAGS) -r benchmarks/requirements.txt -e '.[tables,bayes,dask]'
	# torchsort is compiled here, and an nvcc on the path would make it ask for CUDA
	-PATH=/usr/bin:/bin $(BENCH)/bin/python -m pip install $(BENCH_FLAGS) --no-build-isolation --no-deps torchsort
	$(BENCH)/bin/python -m pip install $(BENCH_FLAGS) --no-deps torchcp
	$(PYTHON) -m venv $(BENCH)/puncc
	$(BENCH)/puncc/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/puncc.txt
	touch $@

bench: $(BENCH)/.ready  ## ours against the peers; writes benchmarks/RESULTS.md
	$(BENCH)/bin/python benchmarks/run_all.py --puncc $(BENCH)/puncc/bin/python

clean:
	rm -rf $(VENV) $(BENCH) build dist site
