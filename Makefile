# make train: install, train CartPole until it is solved, and say how to watch it.
# make test: install and run the tests. make scores: play all policies in trained/.
# PYTHON=... chooses another interpreter.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: train test scores lint type clean

train: .venv/installed
	$(BIN)/python main.py --small-net --env-name CartPole-v1 --target-return 475

test: .venv/installed-dev
	$(BIN)/python -m pytest --numprocesses auto

scores: .venv/installed-dev
	$(BIN)/python -m benchmarks.scores

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: .venv/installed-dev
	$(BIN)/mypy .

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; choose one with PYTHON=/path/to/python3")'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/installed: requirements.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	@touch $@

.venv/installed-dev: requirements.txt requirements-ray.txt requirements-extra.txt requirements-dev.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	@# It asks for pygame, which would overwrite pygame-ce; a test plays it.
	$(BIN)/python -m pip install --quiet --no-deps mo-gymnasium==1.3.2
	@touch $@ .venv/installed

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache
