# Every target sets itself up: a virtual environment in .venv, uv in it, the rest by uv, as constraints.txt pins it.
# The environment of test-lowest has the oldest versions that pyproject.toml allows instead.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
READY := $(VENV)/.ready
READY_DOCS := $(VENV)/.ready-docs
READY_RELEASE := $(VENV)/.ready-release
LOWEST := .venv-lowest
# Many tests wait for processes that they start, so that one worker more than two cores keeps both busy.
TEST := -m pytest -n 3 --dist worksteal

.PHONY: setup demo test test-kills test-simulations test-lowest lint typecheck docs release-check lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo         four losses x three seeds on handwritten digits, and reports/demo/index.html"
	@echo "make test         the test suite"
	@echo "make test-lowest  the test suite with the oldest dependencies that pyproject.toml allows"
	@echo "make test-kills   a hundred launches killed at random moments, files damaged after half of them; disks that fail"
	@echo "make test-simulations  how often intervals and verdicts are wrong, counted on simulated losses (half an hour)"
	@echo "make lint         ruff: rules and formatting; import-linter: which package may import which"
	@echo "make typecheck    mypy --strict"
	@echo "make docs         the site, into site/: broken links and requests to other hosts are errors"
	@echo "make release-check  wheel and sdist, each installed into an empty environment and used there (ten minutes)"
	@echo "make lock         pin what is installed now into constraints.txt"
	@echo "make setup        only the environment; every target above does it where it is missing"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --compile-bytecode --constraint constraints.txt --editable '.[all]' --group dev
	touch $@

$(READY_DOCS): $(READY)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --compile-bytecode --constraint constraints.txt --group docs
	touch $@

$(READY_RELEASE): $(READY)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --compile-bytecode --constraint constraints.txt --group release
	touch $@

demo: $(READY)
	$(BIN)/milbench run demo || failed=$$?; $(BIN)/milbench report demo && exit $${failed:-0}

# Processes that tests start would each compile the modules anew where bytecode is not written.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(READY)
	$(BIN)/python $(TEST)

test-kills: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m kills tests/store tests/running

test-simulations: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -rP -m simulation tests/report

test-lowest: $(LOWEST)/.ready
	$(LOWEST)/bin/python $(TEST)

$(LOWEST)/.ready: pyproject.toml $(READY)
	test -x $(LOWEST)/bin/python || $(UV) venv --quiet --python 3.11 $(LOWEST)
	VIRTUAL_ENV=$(CURDIR)/$(LOWEST) $(UV) pip install --quiet --resolution lowest-direct --editable '.[all]' --group dev
	touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

typecheck: $(READY)
	$(BIN)/mypy milbench losses tasks benchmarks tests website .ci/release_check.py

docs: $(READY_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --clean --quiet
	$(BIN)/python -m website.check site

release-check: $(READY_RELEASE)
	$(BIN)/python .ci/release_check.py

lock: $(READY_DOCS) $(READY_RELEASE)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip freeze --exclude-editable | grep -v '@' > constraints.txt

clean:
	rm -rf $(VENV) $(LOWEST) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
