# Firsttoken. `make demo` and `make test` are all a newcomer needs; both install what they need into .venv.
# Needs: Python 3.11+ (with venv), Go (see go.mod files below local/go), make. No root, no container runtime.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NAME   ?= dev
K      ?=
CLUSTER ?=
OPERATOR ?=
PLAY   ?=
TRACE  ?=
PEERS  ?=
PYTEST := $(BIN)/python -m pytest

export PYTHONDONTWRITEBYTECODE := 1

.DEFAULT_GOAL := help
.PHONY: help possible install check check-bounds lint format types contracts unit generated e2e e2e-real images test build cluster cluster-down clean-cache demo crds chart docs accuracy accuracy-cpu bench-plan bench-load bench-simulator reference-case golden lock clean

help: ## Show the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Before anything slow: is Go there, can the cache be written, is the name a name?
possible:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Firsttoken needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@PYTHONPATH=local $(PYTHON) -m firsttoken_local.check --name "$(NAME)"

install: $(STAMP) ## Install everything locked into .venv

$(STAMP): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Firsttoken needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: install your system's python3-venv package"; exit 1; }
	@echo "installing locked Python packages into $(VENV) (about a minute the first time) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

check: lint types contracts unit ## Everything that needs no cluster (about 6 minutes)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP) ## Fast tests (K=name for some of them)
	$(PYTEST) tests -n 2 $(if $(K),-k "$(K)")

check-bounds: $(STAMP) ## The simulator's property tests with every array index checked (compiles it once more)
	NUMBA_BOUNDSCHECK=1 $(PYTEST) -n 2 $(addprefix tests/simulation/test_,engines_agree.py fleets_agree.py replicas.py live_fleet.py stream.py)

build: possible $(STAMP) ## Build the local control plane (cached outside the tree, by version)
	$(BIN)/python -m firsttoken_local build $(if $(REAL_NODE),--real-node)

e2e: build ## Tests on a real control plane (K=name for some of them)
	$(PYTEST) e2e $(if $(K),-k "$(K)")

images: possible $(STAMP) ## Make the images by script, as OCI archives in the cache (root; no builder, no registry)
	$(BIN)/python -m firsttoken_local images

e2e-real: possible $(STAMP) ## The chart on a real node, with real tokens (Linux, root; K=name; CLUSTER=name keeps the cluster)
	$(BIN)/python -m firsttoken_local build --real-node
	$(BIN)/python -m firsttoken_local images
	FIRSTTOKEN_CLUSTER=$(CLUSTER) $(PYTEST) $(if $(CLUSTER),,e2e/node) e2e/real e2e/engine $(if $(K),-k "$(K)")

# A real node needs Linux, root, and the right to make namespaces and mounts. Who has not got it runs the rest, and is
# told what is left out, and why.
test: check e2e ## Everything CI runs
	@why="$$(PYTHONPATH=local $(PYTHON) -m firsttoken_local.check --real-node 2>&1)" || { \
	  echo "left out: make e2e-real ($${why#error: })"; exit 0; }; $(MAKE) e2e-real

cluster: possible $(STAMP) ## Start the local cluster for your own kubectl apply (NAME=dev; PLAY=0: pods on fake nodes stay silent; REAL_NODE=1: a real node and images, needs root; OPERATOR=0: left to your helm install)
	@$(BIN)/python -m firsttoken_local up --name "$(NAME)" $(if $(filter 0,$(OPERATOR)),--bare,--operator) \
	  $(if $(REAL_NODE),--real-node --images) $(if $(filter 0,$(PLAY)),--no-play)

cluster-down: $(STAMP) ## End it and remove its state (NAME=dev)
	$(BIN)/python -m firsttoken_local down --name "$(NAME)"

demo: possible $(STAMP) ## From kubectl apply to Ready, shown live (KEEP=1 leaves it up; REAL_NODE=1: real tokens, needs root)
	@$(BIN)/python -m firsttoken_local.demo $(if $(KEEP),--keep) $(if $(REAL_NODE),--real-node)

crds: $(STAMP) ## Generate crds/ from the pydantic models
	$(BIN)/python -m firsttoken_operator.generate crds

chart: crds ## Copy CRDs and accelerator catalogue into the chart
	$(BIN)/python charts/sync.py

docs: chart ## Generate the generated documents
	$(BIN)/python -m firsttoken_operator.generate validation
	$(BIN)/python -m firsttoken_operator.generate fields
	$(BIN)/python -m firsttoken_operator.generate cli

accuracy: $(STAMP) ## Write docs/accuracy.md: the time model against measurements (REFIT=1 fits it anew, which takes long)
	$(if $(REFIT),$(BIN)/python -m firsttoken_accuracy fit)
	$(BIN)/python -m firsttoken_accuracy report

accuracy-cpu: possible $(STAMP) ## Write docs/accuracy-cpu.md: the simulator against a real vLLM on this CPU (root for the packages; keep the machine quiet)
	PYTHONPATH=accuracy $(BIN)/python -m firsttoken_accuracy.engine

bench-plan: $(STAMP) ## How long a plan takes, and its candidates in the simulator
	$(BIN)/python bench/plan.py

bench-load: $(STAMP) ## The planner's load model against the simulator, one replica and several behind a router (ten minutes)
	$(BIN)/python bench/load_model.py
	$(BIN)/python bench/load_routers.py

bench-simulator: $(STAMP) ## How fast the simulator is (TRACE=path of the whole trace; PEERS=1 runs others beside it)
	TRACE="$(TRACE)" PEERS="$(PEERS)" $(BIN)/python bench/simulator.py

reference-case: $(STAMP) ## Play the reference case, ours beside the published figures; writes docs/reference-case.md
	$(BIN)/python -m bench.reference_case

golden: $(STAMP) ## Rewrite the golden manifests; read the diff before you commit it
	UPDATE_GOLDEN=1 $(PYTEST) tests/manifests -q

lock: ## Lock the newest versions that pyproject.toml allows
	$(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --upgrade --quiet -o requirements/dev.lock
	$(BIN)/uv pip compile pyproject.toml --extra operator --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --quiet --constraint requirements/dev.lock -o requirements/operator.lock
	$(BIN)/uv pip compile requirements/router.in --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --quiet --constraint requirements/dev.lock -o requirements/router.lock
	$(BIN)/uv pip compile requirements/runtime-cpu.in --override requirements/runtime-cpu.overrides \
	  --excludes requirements/runtime-cpu.excludes --python-version 3.11 --python-platform x86_64-manylinux_2_36 \
	  --only-binary :all: --generate-hashes --no-emit-index-url --no-header --quiet -o requirements/runtime-cpu.lock

clean-cache: $(STAMP) ## Remove what was built outside the tree (the next command that needs it builds it again)
	@$(BIN)/python -m firsttoken_local cache --remove

clean: ## Remove what was installed and generated here (not the cache outside the tree)
	@[ ! -x $(BIN)/python ] || $(BIN)/python -m firsttoken_local down --all
	rm -rf $(VENV) .cluster .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
