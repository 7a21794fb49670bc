# Two commands matter: `make demo` runs the main job, `make test` runs the tests. Both set everything up first.
# Nothing is reinstalled while pyproject.toml is unchanged. PYTHON=/path/to/python3.11 chooses another interpreter.
# What is not needed every day is in `tools/run`.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
FLIGHTS ?= 20000

# Compiled modules and tests are kept, whatever the environment says: without them every process that a test starts
# compiles all of them again, and pytest rewrites 400 files.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo check test test-all lint docs contract bench clean

help:
	@echo "make demo     set up, then run the main job on real flights (FLIGHTS=$(FLIGHTS), CONSOLE=1: watch it in the browser)"
	@echo "make test     set up, then run lint, types, import contracts and the tests, those marked complete aside"
	@echo "make test-all all of it: also kills, browsers, Spark, Apache Kafka's contract"
	@echo "make check    lint, types, import contracts and the fast tests: under a minute"
	@echo "make lint     ruff, mypy, import contracts and plain words alone"
	@echo "make docs     the documentation as a site, in build/docs-site/site"
	@echo "make contract what the docs promise about the broker, tested on it; KAFKA=real or KAFKA=4.1.0: on Apache Kafka (needs Maven)"
	@echo "make bench    Ottla beside its peers, less than 52 minutes (ONLY=broker|cluster|sdk|hot_paths|columnar|spark|connector|spark_costs|telemetry|messaging|once|columns|growth|operations|planner|handler_costs|workers|queues|bridge QUICK=1)"
	@echo "make setup    only set up: $(VENV) with everything installed, and a Java for Spark"
	@echo "make clean    remove $(VENV) and the caches"
	@echo "tools/run     lists the rest: simulations, torture, other clients, browsers, the check of a release"

setup: $(STAMP)
	@$(PY) -m ottla.spark.jvm.java --ensure

$(STAMP): pyproject.toml
	@echo "==> creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Ottla needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Install it, or name another: make PYTHON=python3.12" % v[:2])'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "==> installing Ottla and what it needs from the package registry (a minute or two, once)"
	@# The pip of Python 3.11 gives up where two families of packages are halfway through a release; newer ones find a way.
	@$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

demo: setup
	@$(VENV)/bin/ottla demo --flights $(FLIGHTS) $(if $(CONSOLE),--console)

lint: $(STAMP)
	@echo "==> ruff"
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@echo "==> mypy --strict"
	@$(VENV)/bin/mypy
	@echo "==> import contracts"
	@$(VENV)/bin/lint-imports
	@echo "==> plain words"
	@$(PY) tools/plain_words.py

check: $(STAMP)
	@tools/suite fast

# SUITE=--rerun is what CI gives, see tools/suite.
test: setup
	@tools/suite quick $(SUITE)

test-all: test
	@tools/suite complete

# Pages of docs/ and pages made from the code, without a warning, with links and spelling checked: half a minute.
# VERSION=0.2 also puts the site beside those of other versions, in build/docs-site/versions.
docs: $(STAMP)
	@PYTHONPATH=tools $(PY) -m docs_site build $(addprefix --version ,$(VERSION))

# The same tests on the embedded broker and, with KAFKA=real, on Apache Kafka from its Maven packages (the newest that
# can be had, or the version that KAFKA names). `make test-all` runs there what one node is enough for, this also what
# takes three, and the exchange of files.
contract: $(STAMP)
	@KAFKA=$(KAFKA) $(PY) -m pytest tests/contract

# Peers that are Python packages live in an environment of their own, and Quix Streams in one beside it: it asks for an
# older confluent-kafka than Ottla.
# BENCH_VENV names another place for it; results go to bench-results/, the page and its plots to docs/.
BENCH_VENV ?= build/bench-venv
bench: setup $(BENCH_VENV)/.installed $(BENCH_VENV)-quix/.installed
	@$(PY) tools/spark_connector.py > /dev/null || true
	@$(BENCH_VENV)/bin/python benchmarks/run.py --python $(PY) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

$(BENCH_VENV)/.installed: benchmarks/peers.txt
	@echo "==> installing the peers into $(BENCH_VENV)"
	@test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[avro,arrow]' -r benchmarks/peers.txt
	@touch $@

$(BENCH_VENV)-quix/.installed: benchmarks/peers-quix.txt
	@test -x $(BENCH_VENV)-quix/bin/python || $(PYTHON) -m venv $(BENCH_VENV)-quix
	@$(BENCH_VENV)-quix/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers-quix.txt
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
