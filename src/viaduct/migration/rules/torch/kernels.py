"""Report CUDA kernels that the project builds itself.

CUDAExtension and cpp_extension's load and load_inline call nvcc. A kernel cannot be carried over by its text: on the
NPU it is written anew in Ascend C, on the MLU in BANG C, or replaced by operators of PyTorch. Sources of the project
that end in .cu or .cuh are listed as well (`migration/manifests.py`). A compiled module that is imported (`import
correlation_cuda`) is reported too, unless it stands in a `try` with a handler. For an extension in C++ only, the advice
is to build it again on the target.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.advice import CUDA_KERNELS
from viaduct.migration.lookups import literal_text
from viaduct.migration.predicates import imported_modules
from viaduct.migration.rule import Rule, Site

rule = Rule(
    __name__,
    category="report",
    targets=("npu", "mlu", "any"),
    in_patch_mode=True,
    visits_target_code=True,
    runs_last=True,
)

CPP_EXTENSION = "torch.utils.cpp_extension"
COMPILED_NAME = re.compile(r"(?:^|\.)\w+_cuda(?:_ext|_lib|_kernels?|_binding)?$")


@rule.call(f"{CPP_EXTENSION}.CUDAExtension")
def report_extension(site: Site) -> None:
    report_kernel(site, "CUDAExtension")


@rule.call(f"{CPP_EXTENSION}.load", f"{CPP_EXTENSION}.load_inline")
def report_loaded(site: Site) -> None:
    """Report kernels that are compiled when the script runs."""
    inline = site.keyword("cuda_sources")
    sources = cuda_sources(site.node)
    if inline is not None or sources or site.keyword("with_cuda") is not None:
        report_kernel(site, ", ".join(sources) or f"{site.name.rpartition('.')[2]}(cuda_sources=…)")
    else:
        advise_rebuild(site)


@rule.call(f"{CPP_EXTENSION}.CppExtension")
def advise_extension(site: Site) -> None:
    advise_rebuild(site)


@rule.node(ast.Import, ast.ImportFrom, only_files_with=("_cuda",))
def report_compiled(site: Site) -> None:
    """Report `import correlation_cuda`, unless the project has the module in Python or the import stands in a `try`."""
    names = [
        name for name in imported_modules(site.node) if COMPILED_NAME.search(name) and not is_own_module(site, name)
    ]
    ancestors = site.source.ancestors(site.node)
    if names and not any(isinstance(parent, ast.Try) and parent.handlers for parent in ancestors):
        report_kernel(site, names[0])


def is_own_module(site: Site, name: str) -> bool:
    """Return True for a module that the project has as a Python file."""
    last = name.rpartition(".")[2]
    return any(path.endswith((f"{last}.py", f"{last}/__init__.py")) for path in site.work.project.surveyed)


def cuda_sources(call: ast.Call) -> list[str]:
    """Return the CUDA source files that a call names."""
    return [text for node in ast.walk(call) if (text := literal_text(node)).endswith((".cu", ".cuh"))]


def report_kernel(site: Site, what: str) -> None:
    english, chinese = CUDA_KERNELS[site.options.to]
    site.request_review(f"{what} is compiled for CUDA: {english}", zh=f"{what} 为 CUDA 编译:{chinese}", risk="high")


def advise_rebuild(site: Site) -> None:
    """Advise to build a C++ extension again on the target."""
    site.advise(
        "an extension in C++ only: build it again on the target; it works there if it calls PyTorch's operators only",
        zh="纯 C++ 扩展:请在目标机器上重新编译;仅调用 PyTorch 算子时可直接工作",
    )
