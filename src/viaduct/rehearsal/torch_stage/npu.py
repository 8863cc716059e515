"""The modules of torch_npu, and its names that torch.cuda does not have: settings, operators, optimizers …"""

from __future__ import annotations

import enum
import types
from typing import Any

import torch

from viaduct.cards import NPU
from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage import contributed, profiling, surface
from viaduct.rehearsal.torch_stage.cards import cards, resolve_card_index
from viaduct.rehearsal.torch_stage.fusion import npu_fusion_attention

PACKAGE = NPU.plugin  # torch_npu, the vendor's plug-in
CARD_NAME = "Ascend910B1"
MEMORY_BYTES = 64 << 30  # of each card
_options: dict[str, Any] = {}  # options that scripts set; only their getters read them
_blocks: dict[int, torch.Tensor] = {}  # allocated by caching_allocator_alloc, by address


class _Properties(surface.Properties):
    """Result of get_device_properties; properties of CUDA that an NPU does not have are reported as a limit."""

    name = CARD_NAME
    cube_core_num = 24
    vector_core_num = 48
    L2_cache_size = 192 << 20

    def __getattr__(self, name: str) -> Any:
        if name in ("major", "minor", "multi_processor_count"):
            limits.report_violation("capability", "property", name=name)
        raise AttributeError(f"'_NPUDeviceProperties' object has no attribute {name!r}")


def get_device_name(device_name: Any = None) -> str:
    resolve_card_index(device_name)
    return CARD_NAME


def get_device_properties(device_name: Any = None) -> _Properties:
    resolve_card_index(device_name)
    return _Properties()


def get_device_capability(device: Any = None) -> None:
    """Report the limit and return None, as on an NPU; by default only a warning, since a script may expect None."""
    limits.report_violation("capability", doubtful=True)


def set_option(option: dict[str, Any]) -> None:
    """Store options of the card; raise TypeError for other values than a dict."""
    if not isinstance(option, dict):
        raise TypeError("npu option must be a dict.")
    _options.update(option)


def set_compile_mode(jit_compile: bool = False) -> None:
    """Store the choice between compiled and built-in operators."""
    _options["jitCompile"] = "enable" if jit_compile else "disable"


def is_jit_compile_false() -> bool:
    return bool(_options.get("jitCompile", "disable") == "disable")


def set_mm_bmm_format_nd(is_nd: bool = True) -> None:
    if not isinstance(is_nd, bool):
        raise TypeError("mm_bmm_format_nd must be a bool")
    _options["mm_bmm_format_nd"] = is_nd


def get_mm_bmm_format_nd() -> bool:
    return bool(_options.get("mm_bmm_format_nd", True))


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Store the mode of warnings about synchronisation, by name or number."""
    modes = {"default": 0, "warn": 1, "error": 2}
    number = modes.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if number not in modes.values():
        raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
    _options["sync_debug_mode"] = number


def get_sync_debug_mode() -> int:
    return int(_options.get("sync_debug_mode", 0))


def set_task_queue_enable(mode: int) -> None:
    _options["task_queue_enable"] = mode


def get_task_queue_enable() -> int:
    return int(_options.get("task_queue_enable", 1))


# Without effect: the stand-in has no tuning tool, no dump, no time limit of operators and no overflow flag.
def set_aoe(dump_path: str) -> None: ...
def set_deterministic_level(level: int) -> None: ...
def set_op_timeout_ms(timeout: int) -> None: ...
def init_dump() -> None: ...
def set_dump(cfg_file: str) -> None: ...
def finalize_dump() -> None: ...
def clear_npu_overflow_flag() -> None: ...


def get_npu_overflow_flag() -> bool:
    return False  # as on a 910B the gradients contain infinities, which the loss scaler finds


def is_support_inf_nan() -> bool:
    """Return True: the CPU computes infinities and NaNs as newer cards do."""
    return True


def npu_check_overflow(grad: Any) -> bool:
    """Return True if a number, or the float32 sum of a tensor, is infinite or NaN."""
    total = grad.float().sum() if isinstance(grad, torch.Tensor) else torch.tensor(float(grad))
    return not bool(torch.isfinite(total))


def stress_detect(detect_type: str = "aic") -> int:
    """Return 0, "no fault found": there is no card to test."""
    return 0


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Allocate bytes on the card and return their address."""
    block = torch.empty(size, dtype=torch.uint8, device=torch.device(cards.device_name, resolve_card_index(device)))
    _blocks[block.data_ptr()] = block
    return block.data_ptr()


def caching_allocator_delete(mem_ptr: int) -> None:
    _blocks.pop(mem_ptr, None)


class CubeMathType(enum.IntEnum):
    """Treatment of float32 inputs in matrix products."""

    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3


class mstx:
    """torch.npu.mstx, which marks ranges in a profile as torch.cuda.nvtx does; only `mstx_range` has an effect."""

    _ranges = 0  # ranges begun so far

    @staticmethod
    def mark(message: str, stream: Any = None, domain: str = "default") -> None: ...

    range_push = mark

    @classmethod
    def range_start(cls, message: str, stream: Any = None, domain: str = "default") -> int:
        cls._ranges += 1
        return cls._ranges

    @staticmethod
    def range_end(range_id: int, domain: str = "default") -> None: ...

    @staticmethod
    def range_pop(domain: str = "default") -> None: ...

    @staticmethod
    def mstx_range(message: str, stream: Any = None, domain: str = "default") -> Any:
        """Record the block under its message in torch's profiler."""
        return torch.profiler.record_function(message)


def _make_settings() -> dict[str, Any]:
    """Return torch.npu.config, .matmul and .conv; their attributes have no effect."""
    return {
        "config": types.SimpleNamespace(allow_internal_format=True),
        "matmul": types.SimpleNamespace(allow_hf32=False, cube_math_type=CubeMathType.KEEP_DTYPE),
        "conv": types.SimpleNamespace(allow_hf32=True),
    }


def npu_format_cast(self: torch.Tensor, acl_format: int) -> torch.Tensor:
    """Return the tensor unchanged: the CPU has no memory formats of the NPU."""
    return self


def get_npu_format(self: torch.Tensor) -> int:
    """Return 2, the number of the plain format ND."""
    return 2


def npu_dtype_cast(input: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return input.to(dtype)


def fast_gelu(self: torch.Tensor) -> torch.Tensor:
    """Return the NPU's approximation of GELU."""
    return self * torch.sigmoid(1.702 * self.abs()) * torch.exp(0.851 * (self - self.abs()))


def npu_rms_norm(self: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normalised tensor and the inverse root mean square, computed in float32."""
    inverse = torch.rsqrt(self.float().pow(2).mean(-1, keepdim=True) + epsilon)
    return (self.float() * inverse).to(self.dtype) * gamma, inverse


def npu_swiglu(self: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Return SiLU of the first half times the second half along `dim`."""
    gate, value = self.chunk(2, dim)
    return torch.nn.functional.silu(gate) * value


# Functions of torch_npu itself; the others are torch.npu's.
_OPERATORS = (
    npu_format_cast, get_npu_format, npu_dtype_cast, fast_gelu, npu_rms_norm, npu_swiglu, npu_fusion_attention,
)  # fmt: skip


def build() -> types.ModuleType:
    """Make torch_npu with its submodules, and return the module that becomes torch.npu."""
    operators = {function.__name__: function for function in _OPERATORS}
    own = {name: value for name, value in surface.collect_defined_names(__name__).items() if name not in operators}
    names = surface.collect_shared_names() | own | _make_settings()
    names["npu_config"] = types.SimpleNamespace(**_make_settings())
    device = surface.make_plugin(PACKAGE, operators, names)
    surface.make_module(f"{PACKAGE}.npu.utils", names)
    surface.make_module(f"{PACKAGE}.profiler", profiling.make_module_contents(), package=True)
    # The fused optimizers, such as NpuFusedSGD, are unchanged subclasses of torch.optim's.
    optimizers = [getattr(torch.optim, name) for name in ("SGD", "Adam", "AdamW", "Adadelta", "RMSprop")]
    fused = [type(f"NpuFused{optimizer.__name__}", (optimizer,), {}) for optimizer in optimizers]
    surface.make_module(f"{PACKAGE}.optim", {optimizer.__name__: optimizer for optimizer in fused})
    surface.make_module(f"{PACKAGE}.contrib", contributed.CONTRIBUTED_CLASSES, package=True)
    surface.make_module(f"{PACKAGE}.contrib.module", contributed.CONTRIBUTED_CLASSES)
    return device
