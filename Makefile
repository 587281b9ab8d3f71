# Every target sets itself up: a virtual environment in .venv, uv in it, the rest by uv, as constraints.txt pins it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
READY := $(VENV)/.ready

.PHONY: setup demo test lint typecheck lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       four losses x three seeds on handwritten digits, and the report (reports/demo/index.html)"
	@echo "make test       the test suite"
	@echo "make lint       ruff: rules and formatting; import-linter: the doors between packages"
	@echo "make typecheck  mypy --strict"
	@echo "make lock       pin what is installed now into constraints.txt"
	@echo "make setup      only the environment; every target above does it where it is missing"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $@

demo: $(READY)
	$(BIN)/milbench run demo || failed=$$?; $(BIN)/milbench report demo && exit $${failed:-0}

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

typecheck: $(READY)
	$(BIN)/mypy milbench losses tasks tests

lock: $(READY)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip freeze --exclude-editable | grep -v '@' > constraints.txt

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
