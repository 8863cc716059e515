from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "source",
    [
        "import torch\nimport numpy\nfrom numba import jit\n",
        "import torch\n# import cupy\nname = 'cupy'\n",
        "import torch\nfrom . import triton\n",
        "import torch\nimport tritonclient\n",
    ],
)
def test_other_packages_are_not_reported(source: str, to: str) -> None:
    check_noop("packages", source, to=to)


def test_a_module_of_the_project_is_not_the_package() -> None:
    result = migrate_source("import torch\nimport triton\n", "packages", others={"triton.py": "x = 1\n"})
    assert not result.findings


def test_tensorflow_files_are_left_to_another_rule() -> None:
    both = migrate_source("import tensorflow as tf\nimport cupy\n", others={"other.py": "import torch\n"})
    assert [finding.rule for finding in both.findings] == ["tf1.imports_report"]
    torch = migrate_source("import torch\nimport cupy\n")
    assert [finding.rule for finding in torch.findings if "cupy" in finding.message] == ["torch.packages"]


@pytest.mark.parametrize(
    ("line", "npu", "mlu"),
    [
        ("import triton.language as tl", "triton-ascend", "Cambricon's own build of Triton"),
        ("from flash_attn import flash_attn_func", "npu_fusion_attention", "scaled_dot_product_attention"),
        ("from nvidia.dali.pipeline import Pipeline", "DataLoader", "DataLoader"),
        ("from numba import cuda", "no replacement known", "no replacement known"),
        ("import pycuda.autoinit", "no replacement known", "no replacement known"),
        ("import bitsandbytes as bnb", "beta", "no replacement known"),
        ("import pynvml", "npu-smi", "cnmon"),
        ("import spconv.pytorch as spconv", "no replacement known", "no replacement known"),
        ("import nvtx", "torch.npu.mstx", "torch.mlu.cnpx"),
        ("import transformer_engine.pytorch as te", "TransformerEngineNPU", "no replacement known"),
    ],
)
def test_each_package_is_reported_with_its_replacement(line: str, npu: str, mlu: str) -> None:
    source = f"import torch\n{line}\n"
    check_says("packages", source, "manual", npu)
    check_says("packages", source, "manual", mlu, to="mlu")
    check_says("packages", source, "manual", "MLU: ", to="any")


def test_a_package_that_also_runs_on_the_card_gets_advice() -> None:
    check_says("packages", "import torch\nimport deepspeed\n", "advice", "npu accelerator")


def test_requirements_in_setup_py_are_reported() -> None:
    head = "import torch\nfrom setuptools import setup\n"
    source = head + "setup(install_requires=['numpy', 'flash-attn>=2', 'cupy-cuda12x'])\n"
    found = migrate_source(source, "packages").findings
    assert len(found) == 2
    assert {finding.line for finding in found} == {3}
