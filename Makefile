# Each target works as the first command in a fresh clone: what it needs, it makes. Debian 12: python3 python3-venv make git.

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input
# PYTHONWARNINGS: setuptools explains at length that an editable installation is editable.
INSTALL := PYTHONWARNINGS=ignore $(PIP) install --no-deps --no-build-isolation --editable .
# Tests see this and nothing else of who runs them: no cloud's variables, no proxy.
CLEAN := env -i PATH="$$PATH" HOME="$$HOME" LANG=C.UTF-8 CI="$$CI" $(if $(KUBEBUILDER_ASSETS),KUBEBUILDER_ASSETS="$$KUBEBUILDER_ASSETS")
# More than there are processors: the long ones mostly wait for a rotation.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
# Most tests run in parallel; then those that are marked `alone` run one after another, and nothing beside them. Each part prints
# pytest's own summary. Both have to pass; ARGS may leave one of them without a test (pytest ends with 5), but not both.
define tests
parallel=0; alone=0; \
$(CLEAN) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal --alone without -m '$(1)' $(ARGS) || parallel=$$?; \
test $$parallel -eq 2 || $(CLEAN) $(BIN)/pytest -q -n 0 --alone only -m '$(1)' $(ARGS) || alone=$$?; \
case $$parallel/$$alone in 0/0|0/5|5/0) ;; 0/*|5/*) exit $$alone ;; *) exit $$parallel ;; esac
endef
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --build-deps-for editable \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host

DOCKER := docker
BASE := python:3.13-slim

.DELETE_ON_ERROR:
.PHONY: run demo test matrix check fmt docs bench fuzz torture lock base image clean

run: .venv/run ## the agent with the example configuration, in the foreground
	@printf '%s\n' \
	  'workload-identity-agent with config.example.yaml; stop it with Ctrl-C. Try in another terminal:' \
	  '  $(BIN)/wi-agent -c config.example.yaml status --watch   # each identity: age, next refresh, where it lies' \
	  '  ls -l run/identities/*/                                 # the files, swapped as kubelet swaps a projected volume' \
	  '  cat run/identities/watch-me/token                       # an identity token, for whoever is asked to trust it' \
	  '  curl -s localhost:9480/metrics | grep ^wi_agent_        # what Prometheus sees; also /healthz and /readyz' \
	  '  curl -s localhost:9482/.well-known/openid-configuration # what a cloud reads of the embedded issuer' \
	  '  $(BIN)/wi-agent -c config.example.yaml renew --all      # now, not when due' \
	  ''
	@exec $(BIN)/wi-agent run -c config.example.yaml --log-format console

demo: .venv/dev ## boto3 and the aws command line take credentials by endpoint and by file, moto in the place of AWS
	@$(CLEAN) sh scripts/demo.sh $(ARGS)

test: .venv/dev ## all but the long ones; in CI the matrix of real SDKs too
	@$(call tests,not torture and not nightly$(if $(CI),, and not matrix))

matrix: .venv/dev ## unmodified SDKs of every cloud, over several rotations
	@$(call tests,matrix)

torture: .venv/dev ## the long ones
	@$(CLEAN) $(BIN)/pytest -m 'torture or nightly' --timeout 3600 $(ARGS)

check: .venv/dev ## what has to be clean before a change is taken
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --strict
	@$(BIN)/lint-imports --no-logo

fmt: .venv/dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .

docs: .venv/dev ## the parts of README.md and docs/ that are made from the code
	@$(BIN)/python scripts/configuration_reference.py
	@$(BIN)/python scripts/command_line.py

bench: .venv/dev ## each figure as a ratio to a floor of the same run; ARGS=start, memory, files, aws, providers, metadata …
	@$(CLEAN) $(BIN)/python -m bench $(ARGS)

fuzz: .venv/dev ## every parser of foreign text, guided by coverage; ARGS="--seconds 600 claims aws …"
	@$(CLEAN) $(BIN)/python -m tests.fuzz $(ARGS)

lock: .venv/dev ## after a change of dependencies; ARGS=--upgrade for newer ones
	@$(COMPILE) $(ARGS) --output-file requirements.lock pyproject.toml
	@$(COMPILE) $(ARGS) --extra dev --constraint requirements.lock --output-file requirements-dev.lock pyproject.toml

base: ## needs docker: the newest digest of the image's base, for all platforms; read what changed, and commit it alone
	@digest="$$($(DOCKER) buildx imagetools inspect --format '{{.Manifest.Digest}}' '$(BASE)')" && \
	  printf '%s\n' "$$digest" | grep -qxE 'sha256:[0-9a-f]{64}' && \
	  sed -i "s/^FROM $(BASE)@sha256:[0-9a-f]*/FROM $(BASE)@$$digest/" Dockerfile && grep "@$$digest" Dockerfile

image: ## needs docker
	$(DOCKER) build -t workload-identity-agent:dev .

clean: ## everything that is not in git but the agent's own files in run/
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Two marks in one environment: the development lock holds all of the other, with the same versions.
.venv/dev: requirements-dev.lock pyproject.toml | .venv/bin/python
	@echo 'installing what tests and checks need into .venv (a minute or two, once)'
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@$(INSTALL)
	@touch .venv/run $@

.venv/run: requirements.lock pyproject.toml | .venv/bin/python
	@echo 'installing what the agent needs into .venv (once)'
	@$(PIP) install --require-hashes -r requirements.lock
	@$(INSTALL)
	@touch $@

.venv/bin/python:
	@python3 -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	@python3 -m venv .venv
