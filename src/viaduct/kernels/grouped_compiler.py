"""Run-time compilation of our CUDA C++ with NVRTC, which comes with torch's CUDA builds, and launches by the driver.

torch.cuda._compile_kernel is similar, but private, and it needs the headers of an installed CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from viaduct.atomic_files import write_file
from viaduct.kernels.sizes import DEFAULT_SHARED_MEMORY

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

Defines = tuple[tuple[str, int], ...]
Grid = tuple[int, int, int]


class CudaError(RuntimeError):
    """Error of the driver or the compiler; no kernel ran."""


class CompilerError(CudaError):
    """NVRTC is missing or failed; the message is its log."""


@lru_cache
def load_nvrtc() -> ctypes.CDLL:
    """Load NVRTC, also from beside torch, where the dynamic loader does not search."""
    version = str(torch.version.cuda).split(".")[0]
    torch_folder = Path(torch.__file__).parent
    beside = sorted(torch_folder.parent.glob(f"nvidia/*/lib/libnvrtc.so.{version}"))
    bundled = [path for path in sorted(torch_folder.glob("lib/libnvrtc*.so*")) if "builtins" not in path.name]
    for name in [*map(str, beside + bundled), f"libnvrtc.so.{version}", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CompilerError(f"libnvrtc.so.{version} is neither beside torch nor where the loader looks")


@lru_cache
def load_driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def compile_source(source: str, defines: Defines, architecture: str) -> bytes:
    """Return machine code for this architecture, such as sm_90."""
    library, program = load_nvrtc(), ctypes.c_void_p()
    options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-D{name}={value}" for name, value in defines)]
    option_array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    if library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"viaduct.cu", 0, None, None):
        raise CompilerError("NVRTC cannot create a program")
    try:
        if library.nvrtcCompileProgram(program, len(options), option_array):
            log = read_buffer(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
            raise CompilerError(log.decode())
        return read_buffer(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def read_buffer(size_of: ctypes._NamedFuncPointer, read: ctypes._NamedFuncPointer, program: ctypes.c_void_p) -> bytes:
    """Return a program's log or machine code by its two NVRTC functions."""
    size = ctypes.c_size_t()
    if size_of(program, ctypes.byref(size)):
        raise CompilerError("NVRTC does not report the size of its output")
    text = ctypes.create_string_buffer(size.value)
    if read(program, text):
        raise CompilerError("NVRTC does not return its output")
    return text.raw


def load_or_compile(source: str, defines: Defines, architecture: str, recompile: bool = False) -> bytes:
    """Return machine code from the cache, or compile and store it; `recompile` ignores the cache."""
    version = (ctypes.c_int * 2)()
    load_nvrtc().nvrtcVersion(ctypes.byref(version, 0), ctypes.byref(version, ctypes.sizeof(ctypes.c_int)))
    key = hashlib.sha256(repr((source, defines, architecture, list(version))).encode()).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cached_file = cache / "viaduct" / "kernels" / f"{key}.cubin"
    if cached_file.is_file() and not recompile:
        return cached_file.read_bytes()
    code = compile_source(source, defines, architecture)
    store_code(cached_file, code)
    return code


def store_code(path: Path, code: bytes) -> None:
    """Write a file atomically, since several processes may do so at once; ignore errors."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, code, durable=False)
    except OSError:
        return


def check_result(result: int, action: str) -> None:
    """Raise a CudaError that names the action unless the driver's result is 0."""
    if result == 0:
        return
    text = ctypes.c_char_p()
    load_driver().cuGetErrorString(result, ctypes.byref(text))
    raise CudaError(f"{action}: {(text.value or b'unknown error').decode()} ({result})")


def ensure_context(device: int) -> None:
    """Make the device's context current in this thread; autograd's threads may have none."""
    context, handle = ctypes.c_void_p(), ctypes.c_int()
    check_result(load_driver().cuCtxGetCurrent(ctypes.byref(context)), "the thread's CUDA context")
    if context.value is not None:
        return
    check_result(load_driver().cuDeviceGet(ctypes.byref(handle), device), "the CUDA device")
    check_result(load_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "the device's CUDA context")
    check_result(load_driver().cuCtxSetCurrent(context), "the thread's CUDA context")


class Kernel:
    """Compiled kernel, loaded on a device; `shared` is the shared memory in bytes that a block of it may have."""

    def __init__(self, code: bytes, name: str, device: int) -> None:
        module, self.function, self.shared = ctypes.c_void_p(), ctypes.c_void_p(), DEFAULT_SHARED_MEMORY
        with torch.cuda.device(device):
            ensure_context(device)
            check_result(load_driver().cuModuleLoadData(ctypes.byref(module), code), f"loading {name}")
            result = load_driver().cuModuleGetFunction(ctypes.byref(self.function), module, name.encode())
            check_result(result, f"finding {name}")

    def launch(self, grid: Grid, threads: int, shared: int, tensors: list[Tensor], *numbers: int) -> None:
        """Launch on torch's current stream. The kernel's arguments are the tensors' pointers, then the ints."""
        device = tensors[0].device
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        values = [*pointers, *(ctypes.c_int(number) for number in numbers)]
        argument_pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        with torch.cuda.device(device):
            ensure_context(int(device.index))
            if shared > self.shared:
                result = load_driver().cuFuncSetAttribute(self.function, MAX_DYNAMIC_SHARED, shared)
                check_result(result, "shared memory")
                self.shared = shared
            stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
            sizes = (*grid, threads, 1, 1, shared)
            result = load_driver().cuLaunchKernel(self.function, *sizes, stream, argument_pointers, None)
        check_result(result, "launching a kernel of our own")
