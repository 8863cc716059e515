# Two commands matter: `make demo` and `make test`. Both set themselves up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The plain torch wheel from a registry pulls gigabytes of CUDA on Linux; this pin keeps set-up small and repeatable.
TORCH  ?= torch==2.13.0

# All cores to the end; four processes at most, for each of them holds torch and TensorFlow.
PARALLEL := -n auto --maxprocesses 4 --dist worksteal

# Triton's kernels run in its interpreter. Only these tests see Triton: where it is installed, torch's compiler imports it.
WITH_TRITON  := PYTHONPATH=$(CURDIR)/$(VENV)/triton
TEST_KERNELS := $(WITH_TRITON) $(BIN)/python -m pytest $(PARALLEL) -rs tests/kernels

.PHONY: demo quick test test-kernels test-plain-cpu test-all test-browser test-gpu test-matrix check results wheel clean python

demo: $(VENV)/.core
	$(BIN)/viaduct train shapes_taster --device cpu --run runs/demo
	rm -rf runs/carried_tf1 runs/carried_torch
	@if $(BIN)/python -c 'import tensorflow' 2>/dev/null; \
	then $(BIN)/viaduct carry examples/tf1/sentences_session.py --to npu --out runs/carried_tf1 -- --steps 10; \
	else echo "TensorFlow is not installed: no TensorFlow 1 example is carried (pip install 'viaduct[tf]')."; fi
	$(BIN)/viaduct carry examples/carry/vision_transformer.py --to npu --out runs/carried_torch -- --amp --epochs 1
	@echo "Open runs/demo/report.html and runs/carried_torch/report.html in a browser."

# What starts no process and needs no TensorFlow: for the inner loop (tests/quick.py).
quick: $(VENV)/.dev
	$(BIN)/python -m pytest --quick $(PARALLEL)

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) --ignore tests/kernels
	$(TEST_KERNELS)

test-kernels: $(VENV)/.dev
	$(TEST_KERNELS)

# The suite as a processor with AVX2 and neither AVX-512 nor bf16 instructions runs it (docs/cpu.md).
test-plain-cpu: $(VENV)/.dev
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 VIADUCT_CPU_BF16=0 $(BIN)/python -m pytest $(PARALLEL) --ignore tests/kernels

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not browser" --ignore tests/kernels
	$(WITH_TRITON) $(BIN)/python -m pytest -m "not browser" tests/kernels

test-browser: $(VENV)/.dev
	$(BIN)/python -m pytest -m browser -rs

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu -rs tests/gpu

# The suite's core with several releases of torch, in environments outside the tree: docs/torch-versions.md.
TORCHES ?=
MATRIX  ?=
test-matrix: $(VENV)/.core
	$(BIN)/python benchmarks/torch_versions.py $(TORCHES) $(MATRIX)

check: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/ruff format --check src tests benchmarks examples tools
	$(BIN)/mypy
	$(BIN)/mypy --config-file benchmarks/mypy.ini benchmarks

results: $(VENV)/.core
	$(BIN)/python -m viaduct.reporting.results docs
	$(BIN)/python -m viaduct.migration.catalogue docs/rules.md
	$(BIN)/python -m viaduct.models.catalogue
	$(BIN)/python -m viaduct.weights.fingerprints
	$(BIN)/python -m viaduct.verbs._recipe_flags
	$(BIN)/python -c 'import viaduct.recipes as r; open("docs/recipes.md", "w").write(r.render_page())'

wheel: python
	$(PYTHON) tools/build_wheel.py

python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 10) <= v[:2] <= (3, 13) else f"viaduct needs Python 3.10 to 3.13; {sys.executable} is {v[0]}.{v[1]}. Try: make PYTHON=python3.11")'

$(VENV)/.core: pyproject.toml setup.py $(wildcard src/viaduct/data/*.[ch]) | python
	$(PYTHON) -m venv $(VENV)
	rm -f src/viaduct/data/*.so  # an extension of another ABI would be imported before the new one
	$(BIN)/pip install -q $(TORCH)
	$(BIN)/pip install -q -e '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install -q -e '.[train,serve,search,dev,tf]'
	@# onnx cannot share an environment with TensorFlow 2.15: tests put this folder before it, in processes of their own.
	$(BIN)/pip install -q --target $(VENV)/onnx 'onnx>=1.18' 'onnxscript>=0.5' 'onnxruntime>=1.22' 'ml_dtypes<0.6' \
	|| echo "onnx cannot be installed here: its tests are skipped."
	$(BIN)/pip install -q --no-deps --target $(VENV)/triton 'triton==3.6.0' \
	|| echo "Triton cannot be installed here: the tests of its kernels are skipped."
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
