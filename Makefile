# The one task runner. On a fresh machine with python3 (venv), git and make: `make demo`, then `make test`.

VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
READY  := $(VENV)/.ready
DEMO   := .cache/demo

.PHONY: help demo test check format docs bench chaos e2e full toolchains package clean

help:  ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)  ## run a bundled goal with a scripted agent to "met", and show the result
	@rm -rf $(DEMO) && mkdir -p $(DEMO) && cp -r goals/quickstart $(DEMO)/project
	@cp goals/quickstart.yaml goals/quickstart.script.yaml $(DEMO)/project/
	@cd $(DEMO)/project && git init --quiet && git add --all \
	  && git -c user.name=demo -c user.email=demo@localhost commit --quiet --message 'a small project with a bug'
	@cd $(DEMO)/project && PATH="$(abspath $(BIN)):$$PATH" LOOPD_STATE="$(abspath $(DEMO))/state" sh -c \
	  'for words in "run quickstart.yaml" "status last" "diff last"; do \
	     printf "\n\$$ loopd %s\n" "$$words"; loopd $$words || exit; done'

test: $(READY)  ## every test but the slow suites, under 10 minutes on 2 cores
	$(PYTEST) tests/unit tests/contract tests/integration -n 2 -m 'not chaos'

check: $(READY)  ## format, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=supervisor $(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

format: $(READY)  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## generate the reference, the schema, the help texts and the table of requirements
	$(BIN)/python docs/generate.py

e2e: $(READY)  ## real packages from PyPI, npm and Debian, through the whole loop
	$(PYTEST) tests/e2e

chaos: $(READY)  ## hostile process trees and kills, 20 of each; LOOPD_CHAOS=200 for all of them
	$(PYTEST) tests/integration -m chaos

bench: $(READY)  ## measure against bash and a peer; writes benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py $(BENCH)

full: check test e2e  ## everything with all counts
	LOOPD_CHAOS=200 $(PYTEST) tests/integration -m chaos
	$(BIN)/python benchmarks/run.py

toolchains:  ## Debian packages that the whole test suite needs, those that are missing (root)
	@missing=""; for one in bwrap:bubblewrap git:git go:golang-go node:nodejs npm:npm tmux:tmux; do \
	  command -v $${one%%:*} > /dev/null || missing="$$missing $${one#*:}"; done; \
	python3 -c 'import ensurepip' 2> /dev/null || missing="$$missing python3-venv"; \
	if [ -n "$$missing" ]; then apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; fi

package: $(READY)  ## wheel from sdist, installed elsewhere
	rm -rf dist && $(BIN)/python -m build --outdir dist

clean:  ## remove what was made here
	rm -rf $(VENV) .cache dist build
