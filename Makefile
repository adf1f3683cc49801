# Every target sets up what it needs; nothing has to be installed by hand.
PY      ?= python3
BIN     := .venv/bin
READY   := .venv/.ready
PROFILE ?= demo
ONLY    ?=
DRY     ?=
JOBS    ?=
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: setup results test lab bench soak docs notebooks execute keep clean size

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PY) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11) and "xfeval needs Python 3.11 or newer, found " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PY) -m venv .venv
	@echo "installing the packages of requirements.lock ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m ipykernel install --sys-prefix --name python3 >/dev/null 2>&1
	@touch $(READY)

results: $(READY)  ## PROFILE=smoke|demo|laptop|paper ONLY=name DRY=1 JOBS=2
	@$(BIN)/python -m xfeval.papers.run --profile $(PROFILE) $(if $(ONLY),--only $(ONLY)) $(if $(DRY),--dry) $(if $(JOBS),--jobs $(JOBS))

test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

lab: $(READY)  ## JupyterLab on the explorer
	@$(BIN)/jupyter lab --notebook-dir=nbs nbs/explorer.ipynb

bench: $(READY)  ## BENCH="--only 2,8 --device cuda --setup-peers": side by side with other libraries, into benchmarks/results.json
	@$(BIN)/python benchmarks/peers.py $(BENCH)

soak: $(READY)  ## long fault tests: killed runs, small disks, many strange inputs
	@XFEVAL_SOAK=1 $(BIN)/python -m pytest tests/soak

docs: $(READY)  ## a site to browse, in _docs
	@$(BIN)/python -m xfeval.apps.site

notebooks: $(READY)  ## after editing notebooks: export the library, clean, regenerate the README
	@$(BIN)/nbdev_export && $(BIN)/nbdev_clean && $(BIN)/python -m xfeval.apps.site --readme

execute: $(READY)  ## ONLY=12_: run the library's notebooks and the tutorials again and keep their outputs
	@$(BIN)/python -m xfeval.apps.site --execute $(ONLY)

keep: $(READY)  ## after "make results": take what the result notebooks showed over into nbs/results
	@$(BIN)/python -m xfeval.apps.site --keep $(PROFILE)

clean:
	rm -rf .venv _docs _proc build dist *.egg-info

size:  ## how large each room of the library is
	@$(PY) tests/size.py
