from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension, load, load_inline\n"


def test_a_function_of_the_project_with_that_name_is_left_alone() -> None:
    check_noop("kernels", "import torch\nfrom json import load\nload(open('kernel.cu'))\n")
    check_noop("kernels", HEAD + "build = BuildExtension\n")


def test_code_that_nvcc_compiles_needs_manual_review() -> None:
    check_says("kernels", HEAD + "e = CUDAExtension('op', ['op.cpp', 'op.cu'])\n", "manual", "Ascend C")
    check_says("kernels", HEAD + "e = CUDAExtension('op', ['op.cpp'])\n", "manual", "BANG C", to="mlu")
    check_says("kernels", HEAD + "e = load(name='op', sources=['a.cpp', 'b.cu'])\n", "manual", "b.cu")
    check_says("kernels", HEAD + "e = load_inline('op', '', cuda_sources=text)\n", "manual", "on CUDA only", to="any")


def test_a_pure_cpp_extension_gets_advice() -> None:
    check_says("kernels", HEAD + "e = CppExtension('op', ['op.cpp'])\n", "advice", "build it on the target")
    check_says("kernels", HEAD + "e = load('op', ['op.cpp'])\n", "advice", "build it on the target")


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize("line", ["import correlation_cuda", "from pkg.ops.roi_cuda_ext import align"])
def test_a_compiled_module_that_is_imported_needs_review(line: str, to: str) -> None:
    check_says("kernels", f"import torch\n{line}\n", "manual", "_cuda", to=to)


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import correlation_cuda\nexcept ImportError:\n    correlation_cuda = None\n",
        "from utils import move_to_cuda\n",
        "import torch.cuda\n",
    ],
)
def test_a_module_that_may_be_missing_and_a_function_are_left_alone(text: str) -> None:
    check_noop("kernels", f"import torch\n{text}")


def test_a_python_module_of_the_project_is_not_reported() -> None:
    others = {"ops/roi_cuda.py": "import torch\n"}
    check_noop("kernels", "import torch\nfrom ops.roi_cuda import align\n", others=others)


def test_an_extension_that_is_built_without_cuda_gets_advice() -> None:
    check_says("kernels", HEAD + "e = load_inline('op', '', with_cuda=False)\n", "advice", "C++ extension")


def test_a_library_of_operators_needs_manual_review() -> None:
    check_says("kernels", "import torch\ntorch.ops.load_library('libops.so')\n", "manual", "kernels for CUDA only")
    check_noop("kernels", "import torch\nimport plugins\nplugins.load_library('libops.so')\n")


@pytest.mark.parametrize(
    "text",
    [
        "ctypes.CDLL('libc.so.6')\n",
        "ctypes.CDLL(None)\n",
        "ctypes.CDLL(ctypes.util.find_library('c'))\n",
        "print('libcudart.so')\n",
        "name = 'barracuda.so'\n",
    ],
)
def test_a_library_of_the_system_is_left_alone(text: str) -> None:
    check_noop("kernels", f"import ctypes.util\nimport torch\n{text}")


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        "ctypes.CDLL('libcudart.so')\n",
        "for name in ('libcudart.so.11.0', 'libnccl.so.2'):\n    ctypes.CDLL(name)\n",
        "ctypes.cdll['libnvrtc.so']\n",
        "ctypes.cdll.LoadLibrary('/usr/local/cuda/lib64/libcublasLt.so.12')\n",
        "ctypes.CDLL(os.path.join(root, 'libcudnn_ops_infer.so.8'))\n",
        "ctypes.WinDLL('cudart64_110.dll')\n",
        "ctypes.util.find_library('cudart')\n",
        "FFI().dlopen('libcuda.so.1')\n",
        "name = '/usr/local/cuda/lib64/libcudart.so.%s'\n",
    ],
)
def test_a_library_of_nvidia_needs_manual_review(text: str, to: str) -> None:
    check_says("kernels", f"import ctypes.util\nimport torch\n{text}", "manual", "is a library of NVIDIA", to=to)


def test_a_library_that_is_loaded_by_its_path_is_unresolved() -> None:
    head = "import ctypes\nimport torch\n"
    check_says("kernels", f"{head}ctypes.CDLL('./build/libops.so')\n", "unresolved", "was not searched")
    check_says("kernels", f"{head}ctypes.CDLL(path)\n", "unresolved", "was not searched")
    numpy = "import numpy as np\nnp.ctypeslib.load_library('ops', '.')\n"
    check_says("kernels", head + numpy, "unresolved", "was not searched")


def test_a_command_that_runs_nvcc_needs_manual_review() -> None:
    check_says("kernels", "import os, torch\nos.system('nvcc -o ops ops.cu')\n", "manual", "Ascend C")


def test_cuda_code_in_a_string_needs_manual_review() -> None:
    source = 'import torch\nSOURCE = r"""\nextern "C" __global__ void scale(float* x) {}\n"""\n'
    check_says("kernels", source, "manual", "this CUDA C++ code")
