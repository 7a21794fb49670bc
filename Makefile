# Two commands matter: `make demo` runs the main job, `make test` runs the tests. Both set everything up first.
# Nothing is reinstalled while pyproject.toml is unchanged. PYTHON=/path/to/python3.11 chooses another interpreter.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
FLIGHTS ?= 20000

# Compiled modules and tests are kept, whatever the environment says: without them every process that a test starts
# compiles all of them again, and pytest rewrites 400 files.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-lowest test-all test-complete archive suite complete-suite short-contract long-contract check fast lint docs docs-serve release-check torture contract spark-oldest clients browser bench bench-page soak clean client-suites

help:
	@echo "make demo     set up, then run the main job on real flights (FLIGHTS=$(FLIGHTS), CONSOLE=1: watch it in the browser)"
	@echo "make test     set up, then run lint, types, import contracts and the tests, those marked complete aside"
	@echo "make test-all all of it: also kills, browsers, Spark, Apache Kafka's contract"
	@echo "make check    lint, types, import contracts and the fast tests: under a minute"
	@echo "make docs     the documentation as a site, in build/docs-site/site; make docs-serve shows it while you write"
	@echo "make release-check  build wheel and sdist, examine them, install and use them in fresh environments"
	@echo "make setup    only set up: $(VENV) with everything installed, and a Java for Spark"
	@echo "make simulate clusters in a simulated world, from seeds (SEEDS=20 FIRST=1 BROKERS=3 MINUTES=2)"
	@echo "make lint     ruff, mypy, import contracts and plain words alone"
	@echo "make contract   what the docs promise about the broker, tested on it; KAFKA=real or KAFKA=4.1.0: on Apache Kafka (needs Maven)"
	@echo "make clients  Kafka clients of other languages on the embedded broker (needs their tools and registries)"
	@echo "make browser  the console's pages and the documentation in a real Chromium (installs Playwright; needs: apt-get install chromium-headless-shell, or chromium)"
	@echo "make bench    Ottla beside its peers, less than 30 minutes (ONLY=broker|cluster|sdk|columnar|spark|connector|telemetry|messaging|once|columns|growth|operations|planner QUICK=1)"
	@echo "make spark-oldest  the Spark tests on the oldest PySpark, with Spark Connect and Spark's own connector (needs Maven)"
	@echo "make soak     the demo's services under load and faults (MINUTES=30): flat memory, nothing lost"

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

# Before each commit: what decides (no client, few brokers), and what keeps pages and files true. Properties are tried
# with few examples; `make test` tries them with more. JOBS=4 where there are more cores.
FAST := tests/wire tests/serdes tests/sdk/consumer tests/sdk/failures tests/sdk/config tests/cli/shared \
	tests/broker/raft/test_raft_machine.py tests/broker/time tests/broker/replication/test_leader_state.py \
	tests/broker/storage/test_log.py tests/broker/storage/test_validator.py tests/broker/storage/test_retention.py \
	tests/broker/groups/test_classic_group.py tests/broker/groups/test_assignors.py \
	tests/broker/server/test_produce_and_fetch.py tests/broker/quotas/test_quota_policy.py \
	tests/admin/test_facts.py tests/docs/test_repository_files.py tests/docs/test_comparison_page.py
check: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint fast

fast: $(STAMP)
	@echo "==> fast tests"
	@HYPOTHESIS_PROFILE=brisk $(PY) -m pytest -q -n $(or $(JOBS),2) -m "not slow and not soak and not clients" $(FAST)

# Pages of docs/ and pages made from the code, without a warning, with links and spelling checked: half a minute.
# VERSION=0.2 also puts the site beside those of other versions, in build/docs-site/versions.
docs: $(STAMP)
	@PYTHONPATH=tools $(PY) -m docs_site build $(addprefix --version ,$(VERSION))

docs-serve: $(STAMP)
	@PYTHONPATH=tools $(PY) -m docs_site serve

# What has to be true before a release: make release-check [VERSIONS="3.12 3.13"]. Packages and report go to build/release.
# With PUBLISH=yes it also fails where a supported Python or an address of the project is missing.
release-check: $(STAMP)
	@PYTHONPATH=tools $(PY) -m release_check $(addprefix --python ,$(VERSIONS)) $(if $(PUBLISH),--to-publish)

# Long rounds of faults under an oracle, from a seed: make torture SECONDS=600 SEED=1 [SHELLS=threads RECORDS=... FAULTS=...
# RETRY_TOPICS=yes WISHES=yes]
torture: SECONDS ?= 300
torture: SEED ?= 1
torture: SHELLS ?= threads,asyncio,columns,mixed
torture: RECORDS ?= 4000
torture: FAULTS ?= 18
torture: $(STAMP)
	@$(PY) -m pytest -m soak
	@PYTHONPATH=tests/torture $(PY) -m torture_kit --seconds $(SECONDS) --seed $(SEED) --shells $(SHELLS) \
		--records $(RECORDS) --faults $(FAULTS) $(if $(RETRY_TOPICS),--retry-topics) $(if $(WISHES),--wishes)

# The Spark tests once more, with all that can be had beside PySpark only for some of its versions.
spark-oldest: setup
	@$$($(PY) tools/spark_connector.py) -m pytest tests/spark tests/columnar

# The tests that need no Spark once more, with the oldest versions of what Ottla depends on.
test-lowest: $(STAMP)
	@$(PY) -m pip install --quiet --upgrade --no-warn-conflicts --target build/lowest -r tests/lowest.txt
	@PYTHONPATH=build/lowest $(PY) -m pytest $(LOWEST)

LOWEST ?= tests/serdes tests/sdk/schedule tests/testing_plugin/test_kafka_of_a_test.py tests/wire tests/cli/shared

# The same tests on the embedded broker and, with KAFKA=real, on Apache Kafka from its Maven packages (the newest that
# can be had, or the version that KAFKA names): `make test` runs
# there what one node is enough for, this also what takes three, and the exchange of files.
contract: $(STAMP)
	@KAFKA=$(KAFKA) $(PY) -m pytest tests/contract

# Kafka clients of other languages, one after another; a client that cannot be had is skipped, and said why.
clients: $(STAMP)
	@$(PY) -m pytest tests/clients -m "clients or not clients"

# The console and the documentation in the system's own Chromium; PICTURES=folder keeps a picture of each page.
browser: $(STAMP)
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@OTTLA_CONSOLE_PICTURES=$(PICTURES) OTTLA_SITE_PICTURES=$(PICTURES) $(PY) -m pytest tests/console tests/docs -m browser

# A client's own tests on the embedded broker: make client-suites SUITE=librdkafka SOURCE=its/checkout ARGS="--only 0012"
client-suites: SUITE ?= librdkafka
client-suites: $(STAMP)
	@$(PY) tools/client_suites.py $(SUITE) --source "$(SOURCE)" $(ARGS)

# Whole clusters on a simulated clock, network and disk, with random faults; a seed that fails replays exactly.
simulate: SEEDS ?= 20
simulate: FIRST ?= 1
simulate: BROKERS ?= 3
simulate: MINUTES ?= 2
simulate: $(STAMP)
	@$(PY) -m broker_embedded.cluster.simulation --seeds $(SEEDS) --first $(FIRST) --brokers $(BROKERS) --minutes $(MINUTES)

# Lint comes first, so that a broken rule is shown after a minute. Then the tests run, and beside them those on Apache
# Kafka, whose output is printed at the end. Most tests wait, so there are more processes than cores: JOBS=8 on four.
BY_FILE = -n $(or $(JOBS),5) --dist loadfile
# The tests on Apache Kafka that need one node, and a short part of them.
CONTRACT := tests/contract $(addprefix --ignore=tests/contract/test_contract_of_,replication.py placement.py generated_plans.py files.py)
SHORT_CONTRACT := $(addprefix tests/contract/test_contract_of_,produce.py fetch.py)

test: setup
	@$(MAKE) --no-print-directory -j 2 lint archive
	@$(MAKE) --no-print-directory -j 2 suite short-contract; code=$$?; cat build/short-contract.txt; exit $$code

test-all: test
	@$(MAKE) --no-print-directory -j 2 complete-suite long-contract; code=$$?; cat build/long-contract.txt; exit $$code

# What CI runs behind `make test`: a test that fails, and passes when it runs once more, alone, is printed as FLAKY.
test-complete: setup
	@$(MAKE) --no-print-directory -j 2 complete-suite long-contract RERUN=yes; \
		code=$$?; cat build/long-contract.txt; exit $$code

suite: $(STAMP)
	@mkdir -p build
	@echo "==> tests (make test-all adds those marked complete)"
	@$(PY) -m pytest $(BY_FILE) --complete=without

complete-suite: $(STAMP)
	@mkdir -p build
	@echo "==> complete tests: kills, browsers, Spark, long pages"
	@$(PY) $(if $(RERUN),tools/rerun_alone.py complete,-m pytest) $(BY_FILE) --complete=only

short-contract: $(STAMP)
	@mkdir -p build
	@KAFKA=real $(PY) -m pytest -q -p no:cacheprovider $(SHORT_CONTRACT) > build/short-contract.txt 2>&1

long-contract: $(STAMP)
	@mkdir -p build
	@KAFKA=real $(PY) $(if $(RERUN),tools/rerun_alone.py contract,-m pytest) -q -p no:cacheprovider $(CONTRACT) \
		> build/long-contract.txt 2>&1

archive: $(STAMP)
	@echo "==> an archive of Spark's classes, once: each of its JVMs starts in half the time"
	@$(VENV)/bin/ottla pipeline prepare --if-possible

# Peers that are Python packages live in an environment of their own: Quix Streams asks for an older confluent-kafka.
# BENCH_VENV names another place for it; results go to bench-results/, the page and its plots to docs/.
BENCH_VENV ?= build/bench-venv
bench: setup $(BENCH_VENV)/.installed
	@$(PY) tools/spark_connector.py > /dev/null || true
	@$(BENCH_VENV)/bin/python benchmarks/run.py --python $(PY) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

bench-page: $(BENCH_VENV)/.installed
	@$(BENCH_VENV)/bin/python benchmarks/render.py

$(BENCH_VENV)/.installed: benchmarks/peers.txt
	@echo "==> installing the peers into $(BENCH_VENV)"
	@test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[avro,arrow]' -r benchmarks/peers.txt
	@touch $@

# The demo's services under load, with faults from a seed: make soak MINUTES=30 [SEED=1 RATE=300]
soak: MINUTES ?= 30
soak: SEED ?= 1
soak: RATE ?= 300
soak: $(STAMP)
	@PYTHONPATH=benchmarks:tests/torture $(PY) -m soak --minutes $(MINUTES) --seed $(SEED) --rate $(RATE) \
		--results bench-results

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
