from __future__ import annotations

from migration.checking import check_noop, check_says

HEAD = "from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension, load, load_inline\n"


def test_a_function_of_that_name_is_not_pytorchs() -> None:
    check_noop("kernels", "import torch\nfrom json import load\nload(open('kernel.cu'))\n")
    check_noop("kernels", HEAD + "build = BuildExtension\n")


def test_what_nvcc_compiles_is_left_for_a_person() -> None:
    check_says("kernels", HEAD + "e = CUDAExtension('op', ['op.cpp', 'op.cu'])\n", "manual", "Ascend C")
    check_says("kernels", HEAD + "e = CUDAExtension('op', ['op.cpp'])\n", "manual", "BANG C", to="mlu")
    check_says("kernels", HEAD + "e = load(name='op', sources=['a.cpp', 'b.cu'])\n", "manual", "b.cu")
    check_says("kernels", HEAD + "e = load_inline('op', '', cuda_sources=text)\n", "manual", "on CUDA alone", to="any")


def test_cpp_alone_is_built_again() -> None:
    check_says("kernels", HEAD + "e = CppExtension('op', ['op.cpp'])\n", "advice", "build it again")
    check_says("kernels", HEAD + "e = load('op', ['op.cpp'])\n", "advice", "build it again")
