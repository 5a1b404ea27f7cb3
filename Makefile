# make run: the demo, from a fresh clone to a pushed model.   make lint: ruff, codespell, import-linter and mypy.
# make test: the tests that prove every system.   make test-all: those of the slow tier, too.
# make torch: PyTorch, which only checks (pytest -m torch) or makes the recorded references of the tests.
# make browser: the page in a real browser, Debian's (`apt-get install chromium`), and axe-core from npm, kept in .venv.
# make cluster: tests with servers of their own, Debian's MariaDB (`apt-get install mariadb-server`), and a Kubeflow pipeline.
# make prism: builds Beam's Prism runner with Go, and prepares text, images and try-on on it.
# make flink, make spark: fetches the engine from PyPI and Beam's job server by Maven, and prepares text, images and
#   try-on on two hosts of this machine, network namespaces, which only root can make.
# make jobset: compares manifests with JobSet's own definition, from GitHub, kept in .venv.
# make references: makes them again.
# make bench: our rates beside peers', in an environment of theirs.   make bench-quick: the same at small sizes, in ten minutes.
# make docs: the pages of docs/, in an environment of their own, into docs/_build; a warning is an error.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
JOBSET := https://raw.githubusercontent.com/kubernetes-sigs/jobset/v0.10.1/config/components/crd/bases
FLINK := $(abspath $(VENV))/flink
SPARK := $(abspath $(VENV))/spark
PRISM := $(abspath $(VENV))/prism
ENGINES_TEST := tests/data_prep/test_clusters.py
JOBSET_TEST := tests/pipelines/engines/test_jobset.py::test_the_manifest_keeps_jobset_s_published_schema

.PHONY: install run test test-all browser cluster jobset prism flink spark torch references bench bench-quick docs lint clean

install: $(VENV)/.installed

# The lock first, so that what runs is what was tested, byte for byte; the package itself brings nothing more.
$(VENV)/.installed: requirements.lock setup.py
	@command -v $(PYTHON) >/dev/null || { echo "Landmark needs Python 3.11, and there is no $(PYTHON) here. Install it, or set PYTHON=/path/to/python3.11."; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "Landmark needs Python 3.11, the last that TensorFlow 2.15 supports; this is %d.%d. Set PYTHON=/path/to/python3.11." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

run: install
	$(BIN)/python -m pipelines.run

test: install
	$(BIN)/python -m pytest -n 2

test-all: install
	$(BIN)/python -m pytest -n 2 -m 'not torch and not browser and not cluster'

browser: install
	$(BIN)/python -m pip install --quiet 'playwright>=1.45,<2'
	test -f $(VENV)/axe/package/axe.min.js || (mkdir -p $(VENV)/axe && cd $(VENV)/axe && npm pack --silent axe-core@4 && tar xzf axe-core-*.tgz)
	AXE=$(VENV)/axe/package/axe.min.js $(BIN)/python -m pytest -n 0 -m browser

cluster: install
	$(BIN)/python -m pytest -n 0 -m cluster --deselect $(JOBSET_TEST) --ignore $(ENGINES_TEST)

prism: $(PRISM)/prism
	PRISM=$(PRISM)/prism $(BIN)/python -m pytest -n 0 -m cluster $(ENGINES_TEST) -k prism

# The version nearest to the lock's apache-beam that Go's proxy has: it refuses 2.72.0.
$(PRISM)/prism: $(VENV)/.installed
	@command -v go >/dev/null || { echo "Prism is built with Go, and there is no \`go\` here. Install Go 1.26 or newer."; exit 2; }
	mkdir -p $(PRISM)
	cd $(PRISM) && rm -f go.mod go.sum && go mod init prism && go get github.com/apache/beam/sdks/v2@v2.73.0 \
	    && go build -mod=mod -o prism github.com/apache/beam/sdks/v2/go/cmd/prism

flink: $(FLINK)/.installed
	FLINK=$(FLINK) $(BIN)/python -m pytest -n 0 -m cluster $(ENGINES_TEST) -k flink

spark: $(SPARK)/.installed
	SPARK=$(SPARK) $(BIN)/python -m pytest -n 0 -m cluster $(ENGINES_TEST) -k spark

$(FLINK)/.installed: ENGINE := flink-1.19
$(FLINK)/.installed: LIBRARIES := apache-flink-libraries==1.19.3
$(SPARK)/.installed: ENGINE := spark-3
$(SPARK)/.installed: LIBRARIES := pyspark==3.5.6

$(FLINK)/.installed $(SPARK)/.installed: $(VENV)/.installed tests/support/job_server.xml
	@command -v java >/dev/null && command -v mvn >/dev/null || { echo "Flink and Spark need Java, and Maven fetches Beam's job server. Install them: apt-get install openjdk-17-jre-headless maven."; exit 2; }
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(@D)/cluster $(LIBRARIES)
	mvn --quiet --file tests/support/job_server.xml dependency:copy-dependencies -Dengine=$(ENGINE) -DoutputDirectory=$(@D)/job-server
	touch $@

jobset: install
	test -f $(VENV)/jobset.yaml || curl -fsSLo $(VENV)/jobset.yaml $(JOBSET)/jobset.x-k8s.io_jobsets.yaml
	JOBSET_CRD=$(VENV)/jobset.yaml $(BIN)/python -m pytest -n 0 -m cluster $(JOBSET_TEST)

torch: install
	$(BIN)/python -m pip install --quiet torch==2.13.0

references: torch
	PYTHONPATH=.:tests $(BIN)/python -m support.make_references

bench: install $(VENV)-bench/.installed
	$(BIN)/python -W ignore benchmarks/speed/side_by_side.py --peers $(VENV)-bench/bin/python --out runs/bench

bench-quick: install $(VENV)-bench/.installed
	$(BIN)/python -W ignore benchmarks/speed/side_by_side.py --peers $(VENV)-bench/bin/python --quick --rounds 3 --seconds 1 --out runs/bench-quick

# The lock first here too: then pip has little left to look for, and both sides have one TensorFlow.
$(VENV)-bench/.installed: requirements.lock setup.py
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(VENV)-bench/bin/python -m pip install --quiet '.[bench]'
	touch $@

docs: $(VENV)-docs/.installed
	$(VENV)-docs/bin/python -m sphinx -b html -W --keep-going -q docs docs/_build
	@echo "docs: docs/_build/index.html; links to other hosts, not fetched, are in docs/_build/external-links.txt"

$(VENV)-docs/.installed: docs/requirements.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --requirement docs/requirements.txt
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/lint-imports
	$(BIN)/mypy

clean:
	rm -rf build dist docs/_build *.egg-info
