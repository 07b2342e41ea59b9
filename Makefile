# What a contributor runs. `make help` lists the targets; .ci/run calls them in fresh environments.
#
# They use the Python environment that is active. DUMPS is where `make dumps` writes and the
# conformance targets read, TARGETS what it compiles for: no accelerator is needed.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
CONFORMANCE := PYTHONPATH=$(CURDIR)/tools python -P -m conformance
DUMPS := build/dumps
TARGETS := cpu h100
SITE := build/site
PYTHON := python
OLDER_PYTHON := python3.11
PYTHONS := python3.11 python3.12 python3.13
RELEASES := installed=python
CASES := 600
COMPILING := tests/advise tests/capture tests/check tests/experiments tests/rerun \
	$(patsubst %,tests/cli/test_%.py,capture doctor record rerun tune)

.PHONY: help
help: ## these lines
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

# The loop: edit, quick, commit.

.PHONY: setup setup-jax hooks format lint types quick slow test check approve docs
setup: ## install the checkout, and what tests, ruff and mypy need
	pip install -e '.[dev]'
setup-jax: ## the same with JAX, to compile for CPUs, and for GPUs that need not be there
	pip install -e '.[dev,jax,cuda]'
hooks: ## have ruff and mypy check each commit
	pre-commit install
format: ## format the code, and fix what can be fixed
	ruff check --fix .
	ruff format .
lint: ## ruff: style, imports, complexity, format
	ruff check .
	ruff format --check .
types: ## mypy, strict
	mypy
quick: ## what `pytest` runs: the tests that take seconds, and the main work of commands
	pytest
slow: ## the tests that `pytest` leaves out, but for those that need a compiler
	pytest -m "slow and not main and not long and not compiler"
test: quick slow ## tests that need no compiler: all but what is only repeated for more samples
check: lint types quick ## lint, types and quick, which is what a commit has to pass
approve: ## take what commands print now as the approved screens, and show what is new in them
	pytest tests/cli/test_screens.py --snapshot-update
	git add --intent-to-add tests/cli/__snapshots__
	git diff -- tests/cli/__snapshots__
docs: ## rewrite what is generated: pages of recipes and commands, the notebook, the JSON schemas
	python docs/make_recipes.py
	python docs/make_schema.py
	python docs/make_commands.py
	python docs/make_launches.py
	python docs/make_notebook.py

# Without a compiler.

.PHONY: fuzz mutants pages site package release
fuzz: ## damaged and hostile inputs through every command, CASES of them
	$(CONFORMANCE) fuzz --count $(CASES)
	$(CONFORMANCE) fuzz --count 20 --start $(CASES) --processes
mutants: ## rules of CPU fusion made wrong in turn: their examples have to notice
	$(CONFORMANCE) mutants cpu
pages: ## pages of `report` in Chromium: types of the script, messages, requests, axe-core, keyboard
	@work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	npm install --silent --no-save --prefix "$$work" axe-core playwright-core typescript >/dev/null
	"$$work/node_modules/.bin/tsc" --noEmit --allowJs --checkJs --strict --module es2022 \
	    --target es2023 --lib es2023,dom,dom.iterable --types '' fusionscope/report/html/*.js
	for name in cpu/loop h100/attention h100/cartpole h100/concatenate; do
	    fusionscope report samples/dumps/$$name --output "$$work/$${name#*/}.html"
	done
	fusionscope report samples/dumps/h100-without-triton-softmax/softmax samples/dumps/h100/softmax \
	    --output "$$work/difference.html"
	script=$$PWD/tools/conformance/page_audit.mjs
	cd "$$work"
	node "$$script" *.html
site: ## the documentation as a site in SITE, with its links checked, after `pip install -e '.[docs]'`
	@NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict --site-dir "$$(realpath -m $(SITE))"
	python docs/check_site.py $(SITE)
package: ## wheel and sdist, each installed and run in an environment of its own
	@checkout=$$PWD work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	$(PYTHON) -m venv "$$work/build"
	"$$work/build/bin/pip" install 'hatchling>=1.27' twine
	"$$work/build/bin/hatchling" build -d "$$work/built" >/dev/null
	"$$work/build/bin/twine" check --strict "$$work"/built/*
	for built in "$$work"/built/*; do
		[ "$$(stat -c %s "$$built")" -lt 2000000 ] || { echo "$$built is over 2 MB" >&2; exit 1; }
		environment=$$work/from-$${built##*.}
		$(PYTHON) -m venv "$$environment"
		"$$environment/bin/pip" install "$$built"
		cd "$$work" # outside of the checkout
		"$$environment/bin/fusionscope" --version
		"$$environment/bin/fusionscope" explain "$$checkout/samples/dumps/h100/concatenate" \
			>"$$environment.txt"
		cd "$$checkout"
	done
	cmp "$$work/from-whl.txt" "$$work/from-gz.txt"
	grep -q "pf-negative" "$$work/from-whl.txt"
release: ## build and check what is published, for PYTHONS, and say what a person has to do
	@tools/release.sh $(PYTHONS)

# With a compiler, after `make setup-jax`.

.PHONY: dumps capture older recipes conformance
dumps: ## compile fresh dumps of the samples' programs into DUMPS, for TARGETS
	rm -rf $(DUMPS)
	python samples/compile_all.py $(DUMPS) $(TARGETS)
capture: ## the tests that compile, and a program captured for TARGETS
	python -m pytest -m "compiler and not long" $(COMPILING)
	output=$$(mktemp -d)
	trap 'rm -rf "$$output"' EXIT
	fusionscope capture tests/capture/model.py:twice --arg 'f32[64,128]' \
		$(TARGETS:%=--device %) --output "$$output"
older: ## a dump of the passes before priority fusion, by jaxlib 0.4.35 in OLDER_PYTHON
	@dump=$$(mktemp -d)
	trap 'rm -rf "$$dump"' EXIT
	fusionscope capture samples/cartpole/library_random.py:program \
		--arg 'f32[4,2048]' --arg 'f32[20,2048]' --arg 'u32[2]' --device a100 \
		--python $(OLDER_PYTHON) --flag xla_gpu_enable_priority_fusion=false \
		--output "$$dump" >"$$dump.txt"
	rm "$$dump.txt"
	fusionscope explain "$$dump" --all --no-try | grep "leg-code-dup" >/dev/null
	fusionscope verify "$$dump" --at-least 100
	fusionscope history "$$dump"
recipes: ## the commands of docs/ci.md, as it has them
	tools/conformance/recipes.sh $(TARGETS)
conformance: parser matching explained replay plans changes ## all of the following, on DUMPS

.PHONY: parser matching explained replay plans changes benchmarks
parser: ## the compiler's own parser reads the same
	$(CONFORMANCE) parser $(DUMPS)
	python -m pytest -n 0 -m compiler tests/hlo
matching: ## stages are matched with each other (`make slow`: and with texts made of them)
	$(CONFORMANCE) matching $(DUMPS)
explained: ## every pair has an outcome, only those apart a reason; histories and differences
	@$(CONFORMANCE) explained $(DUMPS)
	$(CONFORMANCE) outcomes $(DUMPS)
	for dump in $(TARGETS:%=$(DUMPS)/%/reductions); do
		fusionscope history "$$dump"
		fusionscope diff "$$dump@pre-fusion" "$$dump@final" --format markdown >/dev/null
		[ "$$(fusionscope diff "$$dump" "$$dump" --exit-code | wc -l)" -eq 1 ]
	done
replay: ## the replay makes what the compiler made
	@for dump in $(DUMPS)/cpu/*; do
		fusionscope verify "$$dump" --at-least 100
	done
	fusionscope what-if $(DUMPS)/cpu/concatenate --allow 'concatenate -> *' |
		grep "Tried allow concatenate"
	$(CONFORMANCE) oracle cpu
plans: ## the compiler takes random plans, and its own, and computes the same numbers
	@for program in attention cartpole concatenate reductions; do
		$(CONFORMANCE) random_plans $(DUMPS)/cpu/$$program --count 4
	done
	for dump in $(TARGETS:%=$(DUMPS)/%/reductions); do
		output=$$(mktemp -d)
		fusionscope rerun "$$dump" --rest xla --seconds 1 --output "$$output"
		rm -r "$$output"
	done
changes: ## a change for the worse is found, and a pass that is off is named
	@work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	python samples/compile.py samples/programs/reductions.py cpu "$$work/without" \
		--flag=--xla_disable_hlo_passes=dot-library-rewriter
	status=0
	fusionscope diff $(DUMPS)/cpu/reductions "$$work/without" --exit-code >"$$work/diff.txt" ||
		status=$$?
	[ $$status -eq 1 ]
	tr -s '[:space:]' ' ' <"$$work/diff.txt" |
		grep -q "dot-library-rewriter in dot-library-passes changed only the first"
	[[ " $(TARGETS) " = *" h100 "* ]] || exit 0
	$(CONFORMANCE) regressions "$$work/changes" --only "*barrier*"
	$(CONFORMANCE) regressions "$$work/harmless" --only "no metadata"
benchmarks: ## each benchmark once, to see that it runs
	python benchmarks/start_up.py --rounds 1
	python benchmarks/large.py --only cpu/resnet --command untried
	python benchmarks/diff.py --rounds 1 --layers 3
	python benchmarks/replay.py --rounds 1 --only '*attention*'

# Longer than CI has time for.

.PHONY: compiled page images fuzz-long mutants-gpu probes probes-gpu proofs matrix gate action ci everything clean
compiled: ## all tests that need a compiler, after `make setup-jax`
	python -m pytest -m compiler
page: ## measure everything again, and rewrite the tables of benchmarks/README.md
	python benchmarks/all.py
images: ## pages of `report` in docs/images/, after `make setup-jax` and `pip install flax optax`
	@work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	npm install --silent --no-save --prefix "$$work" playwright-core >/dev/null
	script=$$PWD/docs/make_images.mjs
	cd "$$work"
	node "$$script"
fuzz-long: ## 20,000 damaged inputs
	$(CONFORMANCE) fuzz --count 20000
mutants-gpu: ## rules and cost model of the GPU passes made wrong in turn
	$(CONFORMANCE) mutants gpu
	$(CONFORMANCE) mutants passes
probes: ## CPU passes against the compiler, on thousands of small modules
	$(CONFORMANCE) cpu_probe --python "$$(command -v python)"
probes-gpu: ## GPU passes against the compiler: examples, records, random modules
	$(CONFORMANCE) oracle gpu
	$(CONFORMANCE) oracle passes
	$(CONFORMANCE) records gpu --check
	$(CONFORMANCE) records passes --check
	$(CONFORMANCE) gpu_probe
proofs: ## the examples of all recipes, and random programs, compiled, run and compared
	$(CONFORMANCE) recipe_proofs
	$(CONFORMANCE) recipe_numbers
matrix: ## the rules of releases, each RELEASE=PYTHON in RELEASES, against twenty programs, on a CPU
	work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	$(CONFORMANCE) matrix "$$work" $(RELEASES) --targets cpu
gate: ## twenty pull requests of a project, checked against its main branch, for TARGETS
	work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	$(CONFORMANCE) gate "$$work/out" $(TARGETS:%=--target %)
action: ## the steps of action.yml as they are written, with a stand-in for gh
	$(CONFORMANCE) action
ci: ## what has to hold before a change is taken, in fresh environments: by what it changes
	bash .ci/run
everything: ## the same, whatever the change: before a release
	bash .ci/run --everything
clean: ## remove what was built
	rm -rf build dist
