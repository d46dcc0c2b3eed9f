# The commands of the README. Each sets up what it needs, once, in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CHROMIUM := /usr/bin/chromium
CLUSTER := .venv/.cluster
SERVICES := slurm-wlm slurmdbd munge mariadb-server postgresql

.DEFAULT_GOAL := help
.PHONY: help run ui test test-slow test-browser test-cluster fuzz lint clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

run: $(READY) ## Run the paper's experiment over ten seeds, on all cores
	$(BIN)/python scripts/run.py -m experiment=paper 'seed=range(10)'

ui: $(READY) ## Look at the runs in a browser, at http://127.0.0.1:5000
	$(BIN)/mlflow ui --backend-store-uri sqlite:///mlflow.db --host 127.0.0.1

test: $(READY) ## Run the tests
	$(BIN)/python -m pytest -n auto --dist loadfile --durations 12

test-slow: $(READY) ## Run the long tests too
	$(BIN)/python -m pytest -n auto --dist loadfile -m 'not browser and not cluster'

test-browser: $(READY) $(CHROMIUM) ## Look at the report and the MLflow UI in a real browser
	$(BIN)/python -m pytest -m browser tests/browser

fuzz: $(READY) ## Hand random files to all that reads one, for a minute each
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python scripts/fuzz.py seconds=60

test-cluster: $(CLUSTER) ## Lose a worker and the store of a sweep on a real Slurm, and go on
	$(BIN)/python -m pytest -m cluster tests/cluster

lint: $(READY) ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean: ## Remove the environment and the caches, but no results
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist

$(CHROMIUM):
	@test "$$(id -u)" = 0 && command -v apt-get >/dev/null || \
		{ echo "the browser tests need Debian's $(CHROMIUM): apt-get install chromium" >&2; exit 1; }
	apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium

$(CLUSTER): $(READY)
	@test "$$(id -u)" = 0 && command -v apt-get >/dev/null || command -v slurmdbd >/dev/null || \
		{ echo "the cluster tests need Debian's $(SERVICES): apt-get install them" >&2; exit 1; }
	command -v slurmdbd munged mariadbd >/dev/null && test -d /usr/lib/postgresql || \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $(SERVICES); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cluster]'
	@touch $(CLUSTER)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)
