# Every target does its own set-up; `make` alone lists them. Works from any folder: make -C path/to/checkout demo
ROOT := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
BIN := .venv/bin
SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types lock bench clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' "$(ROOT)/Makefile" | expand -t 14

setup: ## fill .venv/ and find or fetch Prometheus, Alertmanager and Envoy
	@"$(ROOT)/deploy/setup.sh"

demo: setup ## show the whole loop on a real trace (DEMO_SECONDS shortens it)
	@cd "$(ROOT)" && exec $(BIN)/tidegate demo

test: setup ## run every test (ARGS="tests/core -q" runs some)
	@cd "$(ROOT)" && exec $(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n 2 --dist loadgroup)

lint: setup ## check style, format and the layers
	@cd "$(ROOT)" && $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports

types: setup ## check the types
	@cd "$(ROOT)" && exec $(BIN)/mypy

lock: setup ## write requirements/*.lock again (LOCK_ARGS=--upgrade moves the pins)
	@"$(ROOT)/deploy/lock.sh"

bench: setup ## run the benchmarks
	@cd "$(ROOT)" && set -e; for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

clean: ## remove everything that the other targets made
	@cd "$(ROOT)" && rm -rf .venv .cache demo-out dist build .coverage .hypothesis .*_cache
	@find "$(ROOT)" -name __pycache__ -type d -prune -exec rm -rf {} +
