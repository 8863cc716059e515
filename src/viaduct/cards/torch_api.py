"""Names of torch.cuda that torch.npu or torch.mlu has too, under the same or another name.

The tables are from the public sources of torch_npu and torch_mlu. Rules do not change a name that is in no table, but
report it.
"""

from __future__ import annotations

from viaduct.cards import CUDA, MLU, Card

TENSOR_TYPES = ("Float", "Half", "BFloat16", "Int", "Long", "Short", "Char", "Byte", "Bool")
# Names that torch.npu and torch.mlu both have.
NPU_AND_MLU_NAMES = {
    "is_available", "is_initialized", "init", "device_count", "current_device", "set_device", "device", "device_of",
    "synchronize", "get_device_name", "get_device_properties", "can_device_access_peer", "is_bf16_supported",
    "stream", "Stream", "StreamContext", "Event", "current_stream", "default_stream", "set_stream",
    "manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed", "default_generators",
    "get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all",
    "empty_cache", "ipc_collect", "mem_get_info", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "memory_cached", "max_memory_cached", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "memory_stats",
    "memory_stats_as_nested_dict", "memory_summary", "memory_snapshot", "set_per_process_memory_fraction",
    "caching_allocator_alloc", "caching_allocator_delete", "change_current_allocator", "utilization",
    *(f"{name}{kind}" for name in TENSOR_TYPES for kind in ("Tensor", "Storage")),
}  # fmt: skip
# Further names of each card. Both have get_device_capability, but it returns something else than on CUDA.
MORE_NAMES: dict[str, set[str]] = {
    "npu": {
        "get_per_process_memory_fraction", "set_sync_debug_mode", "get_sync_debug_mode", "current_blas_handle",
        "MemPool", "use_mem_pool", "get_allocator_backend", "get_device_capability",
    },
    "mlu": {
        "get_device_capability", "ExternalStream", "temperature", "power_draw", "clock_rate", "OutOfMemoryError",
        "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables", "profiler",
        "check_error",
    },
}  # fmt: skip
# Names that a card has under another name.
RENAMED_NAMES: dict[str, dict[str, str]] = {
    "npu": {"CUDAPluggableAllocator": "NPUPluggableAllocator"},
    "mlu": {
        "CUDAPluggableAllocator": "MLUPluggableAllocator",
        CUDA.graph_class: MLU.graph_class,  # CUDAGraph is MLUGraph
        CUDA.range_module: MLU.range_module,  # nvtx is cnpx
        CUDA.backend: MLU.backend,  # the module nccl is cncl
        "cudart": "cnrt",
    },
}
# Submodules of torch.cuda that both cards have, and the names in each.
SUBMODULES: dict[str, set[str]] = {
    "amp": {"autocast", "GradScaler", "custom_fwd", "custom_bwd"},
    "amp.autocast_mode": {"autocast", "custom_fwd", "custom_bwd"},
    "amp.grad_scaler": {"GradScaler"},
    "memory": {
        "_record_memory_history",
        "_dump_snapshot",
        *(name for name in NPU_AND_MLU_NAMES if "memory" in name),
        "empty_cache",
    },
    "random": {name for name in NPU_AND_MLU_NAMES if "seed" in name or "rng_state" in name},
    "streams": {"Stream", "Event"},
}
# Functions of torch.cuda.nvtx.
NVTX_FUNCTIONS = {"range_push", "range_pop", "range_start", "range_end", "mark", "range"}
# Further submodules of torch.cuda that a card has under the name in RENAMED_NAMES, and the names in each.
RENAMED_SUBMODULES: dict[str, dict[str, set[str]]] = {
    "npu": {},
    "mlu": {"nvtx": NVTX_FUNCTIONS, "nccl": {"version"}},
}
MATMUL_TF32, CONV_TF32 = "torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32"
# CUDA's switches of TF32, and each card's switch of its reduced float32 (HF32 on the NPU).
TF32_SWITCHES: dict[str, dict[str, str]] = {
    "npu": {MATMUL_TF32: "torch.npu.matmul.allow_hf32", CONV_TF32: "torch.npu.conv.allow_hf32"},
    "mlu": {MATMUL_TF32: "torch.backends.mlu.matmul.allow_tf32", CONV_TF32: "torch.backends.cnnl.allow_tf32"},
}
# Public names of torch.cuda (2.13) that the NPU or the MLU lacks; the tables above have those that one of them has.
NAMES_MISSING_ON_A_CARD = {
    "CUDAGraph", "CudaError", "DeferredCudaCallError", "ExternalStream", "GreenContext", "MemPool", "use_mem_pool",
    "ComplexDoubleStorage", "ComplexFloatStorage", "DoubleStorage", "DoubleTensor", "OutOfMemoryError",
    "caching_allocator_disabled", "caching_allocator_enable", "check_error", "clock_rate", "comm", "cudaStatus",
    "cudart", "current_blas_handle", "current_solver_handle", "device_memory_used", "gds", "get_allocator_backend",
    "get_arch_list", "get_device_capability", "get_gencode_flags", "get_per_process_memory_fraction",
    "get_stream_from_external", "get_sync_debug_mode", "graph", "graph_pool_handle", "graphs", "has_half",
    "has_magma", "host_memory_stats", "host_memory_stats_as_nested_dict", "is_current_stream_capturing",
    "is_tf32_supported", "jiterator", "list_gpu_processes", "make_graphed_callables", "memory_usage", "nccl",
    "nvtx", "power_draw", "profiler", "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats",
    "set_sync_debug_mode", "sparse", "temperature", "tunable", "cutlass",
}  # fmt: skip
# Names of torch.cuda that have a migration rule of their own; the rule `cuda_unknown` does not report them.
NAMES_REPORTED_BY_OTHER_RULES = {
    "DoubleTensor", "DoubleStorage", "get_device_capability", "nvtx",
    "CUDAGraph", "graph", "graphs", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables",
}  # fmt: skip


def find_counterpart(name: str, card: Card) -> str | None:
    """Return the card's name for a name below `torch.cuda`, such as MLUGraph for CUDAGraph; None if no table has it.

    `amp.autocast` is looked up in the submodule `amp`, `FloatTensor.type` by its first part.
    """
    for members_by_module in (SUBMODULES, RENAMED_SUBMODULES[card.name]):
        modules = (module for module in members_by_module if f"{name}.".startswith(f"{module}."))
        module = max(modules, key=len, default=None)
        if module is not None:
            member = name[len(module) + 1 :].partition(".")[0]
            if member and member not in members_by_module[module]:
                return None
            return RENAMED_NAMES[card.name].get(module, module) + name[len(module) :]
    first, dot, members = name.partition(".")
    if first in NPU_AND_MLU_NAMES or first in MORE_NAMES[card.name]:
        return name
    renamed = RENAMED_NAMES[card.name].get(first, "")
    return f"{renamed}{dot}{members}" if renamed else None
