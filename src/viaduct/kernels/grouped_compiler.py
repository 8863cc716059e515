"""Own CUDA C++, compiled where it runs, by NVRTC, which comes with torch's CUDA builds, and launched by the driver.

torch.cuda._compile_kernel does much the same, but only where a CUDA toolkit is installed (it wants the toolkit's
headers), and it is private.
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

MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
FREELY_SHARED = 48 * 1024  # bytes that a block may have unasked

Defines = tuple[tuple[str, int], ...]
Grid = tuple[int, int, int]


class Refused(RuntimeError):
    """The driver or the compiler refuses; nothing was run."""


class CompilerError(Refused):
    """No NVRTC here, or it refuses; the message is its log."""


@lru_cache
def compiler() -> ctypes.CDLL:
    """Load NVRTC; torch has it beside itself, where the loader does not look before torch has used it."""
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
def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def compile_source(source: str, defines: Defines, architecture: str) -> bytes:
    """Return machine code for this architecture, such as sm_90."""
    library, program = compiler(), ctypes.c_void_p()
    options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-D{name}={value}" for name, value in defines)]
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    if library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"viaduct.cu", 0, None, None):
        raise CompilerError("NVRTC takes no program")
    try:
        if library.nvrtcCompileProgram(program, len(options), given):
            raise CompilerError(
                read_buffer(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode()
            )
        return read_buffer(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def read_buffer(size_of: ctypes._NamedFuncPointer, read: ctypes._NamedFuncPointer, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    if size_of(program, ctypes.byref(size)):
        raise CompilerError("NVRTC does not tell the size of what it made")
    text = ctypes.create_string_buffer(size.value)
    if read(program, text):
        raise CompilerError("NVRTC keeps what it made")
    return text.raw


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "viaduct" / "kernels"


def load_or_compile(source: str, defines: Defines, architecture: str, anew: bool = False) -> bytes:
    """Return machine code from the cache, or compile and store it; `anew`: compile in any case."""
    version = (ctypes.c_int * 2)()
    compiler().nvrtcVersion(ctypes.byref(version, 0), ctypes.byref(version, ctypes.sizeof(ctypes.c_int)))
    key = hashlib.sha256(repr((source, defines, architecture, list(version))).encode()).hexdigest()
    kept = cache_folder() / f"{key}.cubin"
    if kept.is_file() and not anew:
        return kept.read_bytes()
    code = compile_source(source, defines, architecture)
    store_code(kept, code)
    return code


def store_code(path: Path, code: bytes) -> None:
    """Write a file atomically; several processes may do it at once. A folder that cannot be written costs time only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, code, durable=False)
    except OSError:
        return


def check_result(result: int, what: str) -> None:
    if result == 0:
        return
    text = ctypes.c_char_p()
    driver().cuGetErrorString(result, ctypes.byref(text))
    raise Refused(f"{what}: {(text.value or b'unknown error').decode()} ({result})")


def take_context(device: int) -> None:
    """Make the device's context current in this thread: autograd's threads may have none yet."""
    context, handle = ctypes.c_void_p(), ctypes.c_int()
    check_result(driver().cuCtxGetCurrent(ctypes.byref(context)), "the thread's CUDA context")
    if context.value is not None:
        return
    check_result(driver().cuDeviceGet(ctypes.byref(handle), device), "the CUDA device")
    check_result(driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "the device's CUDA context")
    check_result(driver().cuCtxSetCurrent(context), "the thread's CUDA context")


class Kernel:
    """A compiled kernel on a device."""

    def __init__(self, code: bytes, name: str, device: int) -> None:
        module, self.function, self.shared = ctypes.c_void_p(), ctypes.c_void_p(), FREELY_SHARED
        with torch.cuda.device(device):
            take_context(device)
            check_result(driver().cuModuleLoadData(ctypes.byref(module), code), f"loading {name}")
            check_result(
                driver().cuModuleGetFunction(ctypes.byref(self.function), module, name.encode()), f"finding {name}"
            )

    def launch(self, grid: Grid, threads: int, shared: int, tensors: list[Tensor], *numbers: int) -> None:
        """On torch's current stream. Pointers come first among the kernel's arguments, then its ints."""
        device = tensors[0].device
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        values = [*pointers, *(ctypes.c_int(number) for number in numbers)]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        with torch.cuda.device(device):
            take_context(int(device.index))
            if shared > self.shared:
                check_result(driver().cuFuncSetAttribute(self.function, MOST_SHARED, shared), "shared memory")
                self.shared = shared
            stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
            result = driver().cuLaunchKernel(self.function, *grid, threads, 1, 1, shared, stream, places, None)
        check_result(result, "launching a kernel of our own")
