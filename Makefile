# The commands of the README. Each sets up what it needs, once, in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CHROMIUM := /usr/bin/chromium
CLUSTER := .venv/.cluster
OPTUNA := .venv-optuna/.ready
RAY := .venv-ray/.ready
SLURM := /usr/sbin/slurmdbd
# one worker more than cores, since tests also wait; files in the order of tests/conftest.py
PARALLEL := -n $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)") --dist loadfile --no-loadscope-reorder
# a third of all files that are installed: compiled when they are imported, which is rare
RARE := /(tests?|testing|pip|databricks|OpenGL|debugpy|networkx|_inductor)/
SERVICES := slurm-wlm slurmdbd munge mariadb-server postgresql

.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE # tests start many processes
.PHONY: help setup run ui test coverage test-slow test-browser test-cluster test-optuna test-ray fuzz docs lint clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

setup: $(READY) ## Install tpd and what its tests need into .venv

run: $(READY) ## Run the paper's experiment over ten seeds, on all cores
	$(BIN)/python scripts/run.py -m experiment=paper 'seed=range(10)'

ui: $(READY) ## Look at the runs in a browser, at http://127.0.0.1:5000
	$(BIN)/tpd-ui

test: $(READY) ## Run the tests
	$(BIN)/python -m pytest $(PARALLEL) --durations 12

coverage: $(READY) ## Run the tests, and print what they cover, which takes longer
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report term

test-slow: $(READY) ## Run the long tests too
	$(BIN)/python -m pytest $(PARALLEL) -m 'not browser and not cluster and not optuna and not ray'

test-browser: $(READY) $(CHROMIUM) ## Look at the report and the MLflow UI in a real browser
	$(BIN)/python -m pytest -m browser tests/browser

fuzz: $(READY) ## Hand random files to all that reads one, for a minute each
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python scripts/fuzz.py seconds=60

test-cluster: $(CLUSTER) $(SLURM) ## Lose a worker and the store of a sweep on a real Slurm, and go on
	$(BIN)/python -m pytest -m cluster tests/cluster

test-optuna: $(OPTUNA) ## Tune a network, in an environment of its own: every start would wait for Optuna
	.venv-optuna/bin/python -m pytest -m optuna tests/run/test_tuning.py

test-ray: $(RAY) ## Run a sweep through Ray, in an environment of its own, .venv-ray
	.venv-ray/bin/python -m pytest -m ray tests/ray

docs: $(READY) ## Build the docs site: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

lint: $(READY) ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean: ## Remove the environment and the caches, but no results
	rm -rf .venv .venv-optuna .venv-ray .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist site

$(CHROMIUM):
	@test "$$(id -u)" = 0 && command -v apt-get >/dev/null || \
		{ echo "the browser tests need Debian's $(CHROMIUM): apt-get install chromium" >&2; exit 1; }
	apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium

$(SLURM):
	@test "$$(id -u)" = 0 && command -v apt-get >/dev/null || \
		{ echo "the cluster tests need Debian's services: apt-get install $(SERVICES)" >&2; exit 1; }
	apt-get update -qq && apt-get install -qq -y --no-install-recommends $(SERVICES)

$(CLUSTER): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cluster]'
	@touch $(CLUSTER)

$(OPTUNA): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-optuna
	.venv-optuna/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,optuna]'
	.venv-optuna/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mobile-env==2.1.0
	@touch $(OPTUNA)

# hydra-ray-launcher wants a cloudpickle below 3, which joblib 1.6 does not take
$(RAY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-ray
	grep -vE '^(cloudpickle|joblib)==' constraints.txt > .venv-ray/constraints.txt
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-ray/constraints.txt --editable '.[dev,ray]'
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mobile-env==2.1.0
	@touch $(RAY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps mobile-env==2.1.0 # see pyproject.toml
	rm -rf .venv/lib/python*/site-packages/tests # mobile-env's, which hides ours from scripts
	$(BIN)/python -m compileall -q -j 0 -x '$(RARE)' .venv/lib >/dev/null || true # templates are no Python
	@touch $(READY)
