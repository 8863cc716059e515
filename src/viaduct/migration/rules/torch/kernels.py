"""Report CUDA kernels that the project builds.

CUDAExtension and cpp_extension's load and load_inline call nvcc. Kernels must be rewritten, in Ascend C for the NPU and
in BANG C for the MLU, or replaced by operators of PyTorch. An import of a compiled module (`import correlation_cuda`)
is reported too, unless it is in a `try` with a handler, and so is a library of operators that `torch.ops.load_library`
loads, since its name does not show its devices. A pure C++ extension, which has to be built on the target, gets advice.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.advice import CUDA_KERNELS
from viaduct.migration.lookups import literal_text
from viaduct.migration.predicates import imported_modules, is_constant, is_none_or_absent
from viaduct.migration.rule import Site, make_report_rule

rule = make_report_rule(__name__, target_needs="torch_functions", spec_rows=("P6",), visits_lines_left_alone=True)

CPP_EXTENSION = "torch.utils.cpp_extension"
COMPILED_NAME = re.compile(r"(?:^|\.)\w+_cuda(?:_ext|_lib|_kernels?|_binding)?$")


@rule.call(f"{CPP_EXTENSION}.CUDAExtension")
def report_extension(site: Site) -> None:
    report_kernel(site, "CUDAExtension")


@rule.call(f"{CPP_EXTENSION}.load", f"{CPP_EXTENSION}.load_inline")
def report_load(site: Site) -> None:
    """Report kernels that are compiled when the script runs."""
    inline, with_cuda = site.keyword("cuda_sources"), site.argument("with_cuda")
    sources = find_cuda_sources(site.node)
    is_for_cuda = not is_none_or_absent(with_cuda) and not is_constant(with_cuda, False)
    if inline is not None or sources or is_for_cuda:
        report_kernel(site, ", ".join(sources) or f"{site.name.rpartition('.')[2]}(…)")
    else:
        advise_rebuild(site)


@rule.call(f"{CPP_EXTENSION}.CppExtension")
def advise_extension(site: Site) -> None:
    advise_rebuild(site)


@rule.call("torch.ops.load_library", "torch.classes.load_library")
def report_library(site: Site) -> None:
    """Report a library of compiled operators, which may have kernels for CUDA only."""
    site.request_review(
        "this library has compiled operators, and may have kernels for CUDA only: load a build with kernels for this "
        "device, or use PyTorch's operators",
        zh="该库含已编译的算子,可能只有 CUDA 内核:请加载含该设备内核的版本,或改用 PyTorch 算子",
        risk="high",
    )


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=("_cuda",))
def report_compiled(site: Site) -> None:
    """Report `import correlation_cuda`, unless the project has the module in Python or the import is in a `try`."""
    names = [
        name for name in imported_modules(site.node) if COMPILED_NAME.search(name) and not is_own_module(site, name)
    ]
    ancestors = site.source.ancestors(site.node)
    if names and not any(isinstance(parent, ast.Try) and parent.handlers for parent in ancestors):
        report_kernel(site, names[0])


def is_own_module(site: Site, name: str) -> bool:
    """Return True for a module that the project has as a Python file."""
    module = name.rpartition(".")[2]
    return any(path.endswith((f"{module}.py", f"{module}/__init__.py")) for path in site.file.project.surveyed)


def find_cuda_sources(call: ast.Call) -> list[str]:
    return [text for node in ast.walk(call) if (text := literal_text(node)).endswith((".cu", ".cuh"))]


def report_kernel(site: Site, name: str) -> None:
    english, chinese = CUDA_KERNELS[site.options.to]
    site.request_review(f"{name} is compiled for CUDA: {english}", zh=f"{name} 为 CUDA 编译:{chinese}", risk="high")


def advise_rebuild(site: Site) -> None:
    site.advise(
        "a pure C++ extension: build it on the target; it works there if it only calls PyTorch's operators",
        zh="纯 C++ 扩展:请在目标机器上重新编译;仅调用 PyTorch 算子时可直接工作",
    )
