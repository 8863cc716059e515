"""Report CUDA kernels that the project builds.

CUDAExtension and cpp_extension's load and load_inline call nvcc. Kernels must be rewritten, in Ascend C for the NPU and
in BANG C for the MLU, or replaced by operators of PyTorch. These need manual review too:

- an import of a compiled module (`import correlation_cuda`), unless it is in a `try` with a handler;
- a library of operators that `torch.ops.load_library` loads, since its name does not show its devices;
- the name of one of NVIDIA's libraries (`libcudart.so`), a command that runs nvcc, CUDA C++ code in a string.

Another library that ctypes or cffi loads by its path is unresolved. A pure C++ extension, which has to be built on the
target, gets advice.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.advice import CUDA_KERNELS
from viaduct.migration.lookups import literal_text
from viaduct.migration.predicates import imported_modules, is_constant, is_in_torch_program, is_none_or_absent
from viaduct.migration.rule import Site, make_rule_on_migrated_code
from viaduct.migration.rules.torch._messages import is_prose

rule = make_rule_on_migrated_code(
    __name__, target_needs="torch_functions", spec_rows=("P6",), visits_lines_left_alone=True
)

CPP_EXTENSION = "torch.utils.cpp_extension"
CTYPES_LOADERS = (
    *(f"ctypes.{name}" for name in ("CDLL", "PyDLL", "WinDLL", "OleDLL")),
    *(f"ctypes.{name}.LoadLibrary" for name in ("cdll", "pydll", "windll", "oledll")),
)
LIBRARY_LOADERS = (*CTYPES_LOADERS, "ctypes.util.find_library", "numpy.ctypeslib.load_library")
# Names of NVIDIA's libraries, without `lib` and version: cudart, cudnn_ops_infer, nvrtc-builtins, nvidia-ml.
NVIDIA_NAMES = (
    r"(?:cuda|cudart|cudadevrt|nvcuda|nccl|cudnn|cublas|cublasLt|cufft|curand|cusparse|cusolver|cupti|cufile|nvrtc|nvml"
    r"|nvidia-ml|nvToolsExt|nvJitLink|nvinfer|nvjpeg|nvonnxparser|nppi?c?|nvshmem_host|cutensor)(?:[-_][\w.]+?)?"
)
NVIDIA_LIBRARY = re.compile(
    rf"(?:.*[/\\])?(?:lib{NVIDIA_NAMES}\.(?:so|dylib)(?:\.[\w.*%{{}}]+)?\*?|{NVIDIA_NAMES}(?:\d[\w.]*)?\.dll)"
)
LIBRARY_TEXTS = (".so", ".dll", ".dylib", "find_library", "ctypes", "dlopen", "nvcc", "__global__")
NVCC = re.compile(r"(?:.*/)?nvcc(?:\s.*)?", re.DOTALL)
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


@rule.call("torch.ops.load_library", "torch.classes.load_library")
def report_library(site: Site) -> None:
    """Report a library of compiled operators, which may have kernels for CUDA only."""
    site.request_review(
        "this library has compiled operators, and may have kernels for CUDA only: load a build with kernels for this "
        "device, or use PyTorch's operators",
        zh="该库含已编译的算子,可能只有 CUDA 内核:请加载含该设备内核的版本,或改用 PyTorch 算子",
        risk="high",
    )


@rule.node(ast.Constant, only_if_file_contains=LIBRARY_TEXTS)
def report_named_library(site: Site) -> None:
    """Report the name of one of NVIDIA's libraries, a command that runs nvcc and CUDA C++ code, outside messages."""
    text = literal_text(site.node)
    is_library, is_command = NVIDIA_LIBRARY.fullmatch(text), NVCC.fullmatch(text)
    if not (is_library or is_command or "__global__ void" in text):
        return
    if is_prose(site.source, site.node) or not is_in_torch_program(site):
        return
    if is_library:
        report_nvidia_library(site, text)
    else:
        report_kernel(site, "what nvcc builds" if is_command else "this CUDA C++ code")


@rule.call(*LIBRARY_LOADERS)
@rule.method("dlopen")  # of cffi
def check_library(site: Site) -> None:
    """Report a library of NVIDIA that is named without `lib` and `.so`, and a library whose name is a path or unknown.

    A complete name of an NVIDIA library is reported where the string is. A library of the system, such as `libc.so.6`,
    is not reported.
    """
    name = site.argument("name", 0) or site.argument("libname", 0)
    value = site.values.assigned_value(name) if name is not None else None
    text = literal_text(value)
    if not is_in_torch_program(site) or is_none_or_absent(value) or NVIDIA_LIBRARY.fullmatch(text):
        return
    if re.fullmatch(rf"(?:lib)?{NVIDIA_NAMES}", text):
        report_nvidia_library(site, text)
    elif site.name != "ctypes.util.find_library" and not is_system_library(site, value, text):
        site.report_unresolved(
            "this loads a compiled library, which was not searched: see whether it uses CUDA",
            zh="此处加载已编译的库,其内容未被检查:请确认其是否使用 CUDA",
            risk="low",
        )


def is_system_library(site: Site, value: ast.AST | None, text: str) -> bool:
    """Return True for a library that is named without a folder, or that find_library finds.

    numpy's load_library takes the folder as another argument.
    """
    if site.name == "numpy.ctypeslib.load_library":
        return False
    is_found = isinstance(value, ast.Call) and site.qualified_name(value.func) == "ctypes.util.find_library"
    return is_found or (bool(text) and "/" not in text and "\\" not in text)


def report_nvidia_library(site: Site, name: str) -> None:
    site.request_review(
        f"{name} is a library of NVIDIA: call PyTorch's functions instead, or the vendor's library of the device",
        zh=f"{name} 是 NVIDIA 的库:请改用 PyTorch 的函数,或该设备厂商的库",
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


@rule.call(f"{CPP_EXTENSION}.CppExtension")
def advise_rebuild(site: Site) -> None:
    site.advise(
        "a pure C++ extension: build it on the target; it works there if it only calls PyTorch's operators",
        zh="纯 C++ 扩展:请在目标机器上重新编译;仅调用 PyTorch 算子时可直接工作",
    )
