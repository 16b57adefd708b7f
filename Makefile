# sched_lab: `make book` builds the book, `make test` checks everything. Both set up what they need.
SHELL  := /bin/bash
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.sched_lab-installed
BOOKED := $(VENV)/.sched_lab-book
JOBS   ?= 2
OUT    := _build/results/default
XDIST  := -n $(JOBS)
NBVAL  := --nbval --nbval-cell-timeout 1140 --nbval-kernel-startup-timeout 600 --nbval-current-env --nbval-sanitize-with nbs/sanitize.cfg $(XDIST) --dist loadfile
step    = @printf '\n--- %s\n' "$(1)"
export PATH := $(abspath $(BIN)):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup results html book pdf paper check test alone together sync lint compile unit nbval pages browser portable copied access speed bench lab export clean

help:     ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */  make \1\t/' | expand -t 18

# axe checks the pages; the browser that its package depends on is left out
$(STAMP): settings.ini constraints.txt setup.py pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --constraint constraints.txt axe-playwright-python || echo 'no axe: the pages are not checked by it'
	touch $@ $(BOOKED)

# the book alone needs less
$(BOOKED): settings.ini constraints.txt setup.py pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[all,book]'
	touch $@

setup: $(STAMP)  ## virtual environment with the pinned versions (once; again when the pins change)

# --- the book

results: $(BOOKED)  ## one run on the embedded default data
	sched-lab inflate --policy fgd --seeds 0 --out $(OUT)

html: $(BOOKED)  ## render the stored chapters, without a run
	rm -rf _build/html _build/.doctrees    # a warning is given once, when its page is read
	jupyter-book build . -W --keep-going --quiet

book: $(BOOKED)  ## build the book
	@$(MAKE) --no-print-directory -j $(JOBS) --output-sync=target results html
	@printf '\nresults  %s\nbook     file://%s\n' '$(OUT)' "$(abspath _build/html/index.html)"

pdf: setup html  ## the whole book as _build/book.pdf; needs Chromium or Chrome
	$(BIN)/python tools/make_pdf.py

$(VENV)/.sched_lab-paper: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[paper]'
	touch $@

paper: $(VENV)/.sched_lab-paper  ## the findings as a short paper, read from the stored frames
	$(BIN)/python paper/make.py

# --- the checks, cheap ones first; the first failure stops

check: setup     ## what your change can break, in two minutes
	$(BIN)/python tools/check.py $(BASE)

test: setup      ## every check CI runs
	@$(MAKE) --no-print-directory -j $(JOBS) --output-sync=target alone
	@$(MAKE) --no-print-directory together
	@printf '\nall checks passed\n'

alone: compile lint html sync    # each takes one core only, so they run side by side, the longest first

sync: setup
	$(call step,notebooks and package agree; layers)
	pytest -q tests/test_export.py tests/test_layers.py

lint: setup      ## ruff and mypy
	$(call step,ruff and mypy)
	ruff check .
	mypy

compile: setup   # every policy once, so that what it needs is compiled before other tests are timed
	$(call step,policies on toys; their compiled code is kept)
	pytest -q tests/test_faces.py

# Each worker of a run has one core: more threads than one in a product of matrices would only wait for each other.
compile unit nbval together portable copied: export OPENBLAS_NUM_THREADS := 1

BROWSER := tests/test_book_pages.py tests/test_touch_pages.py tests/test_book_charts.py
DONE    := --ignore tests/test_faces.py --ignore tests/test_export.py --ignore tests/test_layers.py    # above

together: setup  # one run, so that two cores are busy until its end
	$(call step,tests; chapters give their stored outputs; pages of the book in a browser)
	pytest -q $(NBVAL) --benchmark-disable $(DONE) tests nbs

unit: setup
	$(call step,tests)
	pytest -q $(XDIST) --dist loadfile --benchmark-disable $(DONE) $(BROWSER:%=--ignore %)

nbval: setup
	$(call step,chapters give their stored outputs)
	pytest -q $(NBVAL) nbs

pages: setup html
	@$(MAKE) --no-print-directory browser

browser: setup
	$(call step,pages of the book in a browser)
	pytest -q $(XDIST) $(BROWSER)

# What numbers of a processor's kernels decided once: catalogue, packages, plans of Gavel, prices of bid.
PORTABLE := nbs/12a_hardware.ipynb nbs/23_pwr.ipynb nbs/46_hadar_planned.ipynb tests/hadar/test_baselines.py \
    'tests/fleet/test_explain.py::test_the_engine_chooses_what_the_lines_prove[bid]'

portable: setup  ## a sample of the tests and chapters, as a processor from 2008 would run it
	$(call step,a sample as an older processor)
	$(BIN)/python tools/as_older_cpu.py pytest -q --benchmark-disable $(NBVAL) $(PORTABLE)

# The book that `sched-lab book` copies, where nothing but the package with [all,lab] is installed. These chapters read packed
# frames, the papers' numbers or files of a checkout, or need most packages; CHAPTERS='*' takes all, in half an hour.
CHAPTERS ?= 11_traces 29_pwr_results 57_far_execution 59_far_results 91_add_a_policy

# The sources are copied first, so that a build beside it, as that of `make setup`, cannot get in its way.
copied:          ## the copied book in a fresh environment with the extras all and lab alone
	$(call step,chapters of the copied book)
	@set -euo pipefail; copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	mkdir $$copy/source; \
	tar -c --exclude='./.?*' --exclude='./*build' --exclude='*.egg-info' --exclude=__pycache__ . | tar -x -C $$copy/source; \
	$(PYTHON) -m venv $$copy/venv; \
	$$copy/venv/bin/python -m pip install --quiet --no-compile --constraint constraints.txt "$$copy/source[all,lab]"; \
	cd $$copy; unset PYTHONPATH; \
	venv/bin/sched-lab book book --no-open; cd book/nbs; \
	printf '%s\n' $(CHAPTERS:=.ipynb) | xargs -P $(JOBS) -I{} sh -c \
	    "$$copy/venv/bin/jupyter-execute --timeout 600 {} >$$copy/{}.txt 2>&1 || { cat $$copy/{}.txt; exit 1; }"

# --- by hand

access: setup html  ## axe on every page of the book, on desktop and phone, light and dark; every chart on a phone
	ALL_PAGES=1 pytest -q $(XDIST) tests/test_book_charts.py tests/test_book_pages.py
	$(BIN)/python tools/check_access.py

speed: setup html  ## kilobytes and first paint of the heaviest pages on a slow line
	$(BIN)/python tools/time_pages.py

bench: setup     ## benchmarks
	pytest -q -o faulthandler_timeout=0 --timeout 0 benchmarks    # some take longer than a test may

lab: setup       ## open the chapters in JupyterLab
	jupyter lab nbs

export: setup    ## write sched_lab/ from the notebooks, and clean them
	nbdev_export
	nbdev_clean

clean:           ## remove what was built (the virtual environment stays)
	rm -rf _build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks *.egg-info
	find sched_lab nbs tests tools _ext -name __pycache__ -prune -exec rm -rf {} +
