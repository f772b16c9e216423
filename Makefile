# PYTHON makes the environment (3.11 or newer) in VENV; several Pythons need one each.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
# What packages ask for that nothing here uses: ipykernel's debugger, IPython's other completer, and
# what mplfonts, those of fontpkg and axe-playwright-python need beside the file that we read (one has
# no wheel).
UNUSED := debugpy jedi parso fire fontmeta fontpkg termcolor playwright pyee
# Those that are locked: all but [cluster], as Ray is larger than most of the rest together.
EXTRAS := data anthropic mcp local
LIBRARIES := interpreter_bot/kernels/libraries
PYTEST = $(BIN)/pytest -p no:cacheprovider $(RERUNS) -raR --durations 10 --durations-min 5
# `make test-all` sets these to have everything. Of what takes long on a busy machine, something may be
# late: it has two more chances then, and the summary names it.
CHOSEN := not deploy and not slow
RERUNS :=
TWO_MORE := --reruns 2 --reruns-delay 1
export HYPOTHESIS_PROFILE := quick
# In this order: what takes longest first, so that little is left to wait for at the end.
SUITES := attacks unit integration/slack integration/sessions integration/web acceptance \
	unit/guest contracts integration/discord integration/mcp_servers integration/store
LOCKED := --quiet --require-hashes --only-binary :all: --python $(BIN)/python
INSTALL_BOT := $(UV) pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python --editable .
# Kernels have libraries of their own, compiled by `interpreter-bot libraries`: here, tests compile
# what they import of those. What else cannot be compiled is a template, or of another Python.
OF_KERNELS := altair|bokeh|fontTools|mpmath|networkx|offlinefolium|pip|plotly|pypdf|reportlab|scipy|setuptools|statsmodels|sympy
COMPILE_MODULES := $(BIN)/python -m compileall -qq -j 0 -x '/tests?/|/($(OF_KERNELS))/' $(VENV)/lib interpreter_bot || true
# By itself uv trusts only the certificates it ships.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS := true
endif
# As new as the newest thing that was installed from: all, and what a bot needs that only runs.
STAMP := $(VENV)/.setup-done
RUNTIME := $(VENV)/.runtime-done

.DEFAULT_GOAL := help
.PHONY: help run install setup test test-all check test-others test-deploy format bench docs lock assets clean
.PHONY: test-as-others test-plain test-plain-with-ids test-in-container
.PHONY: $(SUITES:%=test-%)

help: ## Say what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

run: $(if $(wildcard $(STAMP)),$(STAMP),$(RUNTIME)) ## Be the bot: the web page, and every platform that is set up
	@$(BIN)/interpreter-bot run

setup: $(STAMP) ## Install the bot, what code may import and the development tools, as locked

# Tests import what code in kernels does, so that is in the bot's environment too.
$(STAMP): requirements.lock requirements-dev.lock $(LIBRARIES)/core.lock $(LIBRARIES)/full.lock \
		$(LIBRARIES)/media.lock pyproject.toml | $(UV)
	@echo "Installing the bot and the development tools…"
	@$(UV) pip sync $(LOCKED) requirements.lock requirements-dev.lock $(LIBRARIES)/*.lock
	@$(INSTALL_BOT)
	@$(COMPILE_MODULES)
	@$(BIN)/interpreter-bot libraries full media
	@touch $(RUNTIME) $@

$(RUNTIME): requirements.lock pyproject.toml | $(UV)
	@echo "Installing the bot…"
	@$(UV) pip install --no-deps $(LOCKED) --requirements requirements.lock
	@$(INSTALL_BOT)
	@touch $@

install: $(RUNTIME) ## Install the bot and what code may import, for a service that may not write here
	@$(COMPILE_MODULES)
	@$(BIN)/interpreter-bot libraries

# uv installs everything, itself included, at a tenth of pip's time.
$(UV):
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "'$(PYTHON)' was not found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "'$(PYTHON)' is older than Python 3.11; name a newer one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments; install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "Making $(VENV)…"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	@awk '/^[^ #]/ {is_uv = /^uv==/} is_uv' requirements.lock >$(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --no-deps --require-hashes --only-binary :all: -r $(VENV)/uv.lock

test: setup ## Check format, lint, types and architecture, then run the tests but for the slow ones
	@$(RUN_SUITES)

test-all: setup ## Run all tests: also the slow ones, and attacks as the other users and in a container
	@$(RUN_SUITES) CHOSEN="not deploy" RERUNS="$(TWO_MORE)" HYPOTHESIS_PROFILE=thorough $(AS_OTHERS)

# The attacks once more as users whose walls are others.
AS_OTHERS := test-plain test-plain-with-ids test-in-container
test-as-others: setup
	@$(MAKE) --no-print-directory -j3 --keep-going --output-sync=target RERUNS="$(TWO_MORE)" $(AS_OTHERS)

# Where no bytecode is written, each of hundreds of processes would compile all of it anew, and pytest
# the tests. Tests wait as well as compute, so there are three suites a core. mypy computes for a
# minute, which must not be the last one.
RUN_SUITES = $(BIN)/python -m compileall -q -j 0 interpreter_bot; \
	PYTHONDONTWRITEBYTECODE= $(MAKE) --no-print-directory -j6 --keep-going --output-sync=target \
	test-others check $(SUITES:%=test-%)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# `make test-unit`: the tests of one directory, but for those below that are a suite of their own.
$(SUITES:%=test-%): test-%: setup
	$(PYTEST) -m "$(CHOSEN)" $(patsubst %,--ignore=tests/%,$(filter $*/%,$(SUITES))) tests/$*

# Whatever is in none of them, so that no test is forgotten.
test-others: setup
	$(PYTEST) -m "$(CHOSEN)" $(SUITES:%=--ignore=tests/%) tests

# Root of an ordinary container can make none of what follows; then a sentence says so.
MAY_MOUNT := [ "$$(id -u)" = 0 ] && unshare --mount --pid --fork --mount-proc true 2>/dev/null
SAY_SKIPPED = else echo "$@: skipped, as it takes root who may make namespaces and mounts$(ALSO)"

# Once more what was root's: the walls of a plain user are other walls. What kernels send is read by
# one code, whoever the bot is, and so are the programs in place of installers: `any_user` has run.
test-plain: setup
	@if $(MAY_MOUNT); then set -x; $(BIN)/python -m tests.unprivileged \
		$(CURDIR)/$(PYTEST) -m "(attack or stack) and not any_user" \
		tests/attacks tests/acceptance tests/integration/test_analysis.py; $(SAY_SKIPPED); fi

# And what depends on whose files and processes are whose, as one who was granted ids to give away
# (Debian's uidmap).
WITH_IDS := walls artifacts between_sessions watched afterwards
test-plain-with-ids: ALSO := , and Debian's uidmap
test-plain-with-ids: setup
	@if $(MAY_MOUNT) && command -v newuidmap >/dev/null; then set -x; $(BIN)/python -m tests.unprivileged --subordinate \
		$(CURDIR)/$(PYTEST) \
		$(addprefix tests/attacks/test_,$(WITH_IDS:%=%.py)); $(SAY_SKIPPED); fi

# And in what an ordinary container allows, where walls are of another kind.
AT_THIS_LEVEL := container_* walls files network secrets between_sessions processes
DOORS_AND_TOOLS := tests/integration/egress/test_doors.py tests/integration/kernel_host/test_door_leases.py \
	tests/integration/mcp_servers/test_program_transport.py
test-in-container: setup
	@if $(MAY_MOUNT); then set -x; $(BIN)/python -m tests.in_container $(CURDIR)/$(PYTEST) \
		$(wildcard $(AT_THIS_LEVEL:%=tests/attacks/test_%.py)) $(DOORS_AND_TOOLS) \
		tests/integration/test_container_level.py tests/acceptance/test_exec.py; $(SAY_SKIPPED); fi
	@if $(MAY_MOUNT); then set -x; $(BIN)/python -m tests.in_container --plain $(CURDIR)/$(PYTEST) \
		$(wildcard $(AT_THIS_LEVEL:%=tests/attacks/test_%.py)) $(DOORS_AND_TOOLS); fi

# What depends on the Python itself: kernels with their walls and variables, and the bot as people
# start it. For a Python on which not all tests are run; on two cores it takes about five minutes.
PART := unit/guest integration/test_snapshots.py integration/test_analysis.py \
	acceptance/test_exec.py acceptance/test_ask.py acceptance/test_run.py acceptance/test_doctor.py
test-part: setup
	@$(MAKE) --no-print-directory -j2 --keep-going --output-sync=target test-part-attacks test-part-rest

.PHONY: test-part test-part-attacks test-part-rest
test-part-attacks: setup
	$(PYTEST) tests/attacks
test-part-rest: setup
	$(PYTEST) $(PART:%=tests/%)

# As root, with Debian's mmdebstrap, systemd-container, podman and crun; some minutes.
test-deploy: setup
	$(PYTEST) -m deploy tests/deploy

format: setup ## Format, and repair what the linter can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: setup ## Measure
	$(BIN)/python -m bench

docs: setup ## Write what docs/ and manifest.yml have of the settings, figures and commands
	$(BIN)/python docs/generate.py

# All is resolved together first, so that the locks agree on what several of them name.
lock: $(UV) ## Pin pyproject.toml and what code may import anew (UPGRADE=--upgrade for newest versions)
	@cat requirements.lock requirements-dev.lock $(LIBRARIES)/*.lock >$(VENV)/together.lock
	$(PIN) $(UPGRADE) pyproject.toml $(addprefix --extra ,$(EXTRAS)) --group build --group dev \
		$(LIBRARIES)/*.in --output-file $(VENV)/together.lock
	$(PIN) $(TOGETHER) pyproject.toml $(addprefix --extra ,$(EXTRAS)) --group build --output-file requirements.lock
	$(PIN) $(TOGETHER) --group dev --output-file requirements-dev.lock
	for group in core full media; do \
		$(PIN) $(TOGETHER) $(LIBRARIES)/$$group.in --output-file $(LIBRARIES)/$$group.lock || exit 1; done
	@! grep -n '://' *.lock $(LIBRARIES)/*.lock || { echo "a lock names an address" >&2; exit 1; }

PIN := $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --quiet $(addprefix --no-emit-package ,$(UNUSED))
TOGETHER := --upgrade --constraints $(VENV)/together.lock

assets: ## Build what of the page is made of packages, as assets/package-lock.json pins them (needs node)
	cd assets && npm ci --ignore-scripts --no-audit --no-fund && node build.js

clean: ## Remove what was made, but for .venv
	rm -rf dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +
