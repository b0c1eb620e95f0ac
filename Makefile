# Every target sets up what it needs from nothing: a virtual environment in .venv with the
# versions of constraints.txt. PYTHON=python3.12 make test uses another interpreter.
PYTHON ?= python3
VENV ?= .venv
# Test files run side by side, so many at a time.
JOBS ?= 2
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo smoke evidence test coverage lint format bench docs release clean help
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] <= (3, 13) else "Hadamard needs Python 3.11 to 3.13, and $(PYTHON) is " + sys.version.split()[0] + "; choose another with PYTHON=python3.12 make ...")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing the package and its development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

demo: $(VENV)/.dev ## Train tanh and tanh + HR agents on MinAtar and write the page that compares them
	@$(BIN)/hadamard demo --output demo_output

smoke: $(VENV)/.dev ## Make every figure and table of the paper at smoke scale (about 5 minutes on 2 cores)
	@$(BIN)/hadamard reproduce all --scale smoke

evidence: $(VENV)/.dev ## Write docs/evidence.md and its figures from the packed runs in results/
	@$(BIN)/python docs/write_evidence.py

test: $(VENV)/.dev ## Run all tests, the README's snippets and the docstrings' examples included
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

coverage: $(VENV)/.dev ## Run all tests and show which lines they reach (a quarter slower)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report=term

lint: $(VENV)/.dev ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.dev ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev ## Measure the layer, the diagnosis and training on this machine
	@$(BIN)/python benchmarks/bench_layer.py
	@$(BIN)/python benchmarks/bench_health.py
	@$(BIN)/python benchmarks/bench_train.py

docs: $(VENV)/.docs ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

release: ## Build wheel and sdist, check them, and run the quickstart with the wheel alone
	@PYTHON=$(PYTHON) .ci/release

clean: ## Remove the environment and everything built
	@rm -rf $(VENV) site demo_output example_output dist .mypy_cache .ruff_cache .pytest_cache .coverage
