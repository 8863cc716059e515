"""Names of torch.cuda that a card has under its own name: the public API of torch_npu.npu and torch_mlu.mlu.

Read from the plug-ins' public sources; only what stands there is listed. A name that is in no table is neither promised
nor refused: rules leave it as written and say so.
"""

from __future__ import annotations

from viaduct.cards import CUDA as CUDA_CARD
from viaduct.cards import MLU, Card

NUMBERS = ("Float", "Half", "BFloat16", "Int", "Long", "Short", "Char", "Byte", "Bool")
BOTH = {
    *("is_available", "is_initialized", "init", "device_count", "current_device", "set_device", "device", "device_of"),
    *("synchronize", "get_device_name", "get_device_properties", "can_device_access_peer", "is_bf16_supported"),
    *("stream", "Stream", "StreamContext", "Event", "current_stream", "default_stream", "set_stream"),
    *("manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed", "default_generators"),
    *("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all"),
    *("empty_cache", "ipc_collect", "mem_get_info", "memory_allocated", "max_memory_allocated", "memory_reserved"),
    *("max_memory_reserved", "memory_cached", "max_memory_cached", "reset_max_memory_allocated"),
    *("reset_max_memory_cached", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "memory_stats"),
    *("memory_stats_as_nested_dict", "memory_summary", "memory_snapshot", "set_per_process_memory_fraction"),
    *("caching_allocator_alloc", "caching_allocator_delete", "change_current_allocator", "utilization"),
    *(f"{number}{kind}" for number in NUMBERS for kind in ("Tensor", "Storage")),
}
OWN: dict[str, set[str]] = {
    "npu": {
        *("get_per_process_memory_fraction", "set_sync_debug_mode", "get_sync_debug_mode", "current_blas_handle"),
        *("MemPool", "use_mem_pool", "get_allocator_backend", "get_device_capability"),
    },
    "mlu": {
        *("get_device_capability", "ExternalStream", "temperature", "power_draw", "clock_rate", "OutOfMemoryError"),
        *("graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables", "profiler"),
        "check_error",
    },
}
RENAMED: dict[str, dict[str, str]] = {
    "npu": {"CUDAPluggableAllocator": "NPUPluggableAllocator"},
    "mlu": {
        "CUDAPluggableAllocator": "MLUPluggableAllocator",
        CUDA_CARD.graph: MLU.graph,
        CUDA_CARD.marks: MLU.marks,
        CUDA_CARD.backend: MLU.backend,
        "cudart": "cnrt",
    },
}
# What stands in a submodule of torch.cuda: the submodules that both have, and their names beyond those above.
SUBMODULES: dict[str, set[str]] = {
    "amp": {"autocast", "GradScaler", "custom_fwd", "custom_bwd"},
    "amp.autocast_mode": {"autocast", "custom_fwd", "custom_bwd"},
    "amp.grad_scaler": {"GradScaler"},
    "memory": {"_record_memory_history", "_dump_snapshot", *(name for name in BOTH if "memory" in name), "empty_cache"},
    "random": {name for name in BOTH if "seed" in name or "rng_state" in name},
    "streams": {"Stream", "Event"},
}
NVTX = {"range_push", "range_pop", "range_start", "range_end", "mark", "range"}
INNER: dict[str, dict[str, set[str]]] = {"npu": {}, "mlu": {"nvtx": NVTX, "nccl": {"version"}}}
MATMUL_TF32, CONV_TF32 = "torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32"
TF32_SWITCHES: dict[str, dict[str, str]] = {
    "npu": {MATMUL_TF32: "torch.npu.matmul.allow_hf32", CONV_TF32: "torch.npu.conv.allow_hf32"},
    "mlu": {MATMUL_TF32: "torch.backends.mlu.matmul.allow_tf32", CONV_TF32: "torch.backends.cnnl.allow_tf32"},
}
"""Switches of the shorter float32 of each card, by those of CUDA."""
# Public names of torch.cuda (2.13) that some card lacks: how a name is known to be CUDA's where a file says torch.npu.
CUDA = {
    *("CUDAGraph", "CudaError", "DeferredCudaCallError", "ExternalStream", "GreenContext", "MemPool", "use_mem_pool"),
    *("ComplexDoubleStorage", "ComplexFloatStorage", "DoubleStorage", "DoubleTensor", "OutOfMemoryError"),
    *("caching_allocator_disabled", "caching_allocator_enable", "check_error", "clock_rate", "comm", "cudaStatus"),
    *("cudart", "current_blas_handle", "current_solver_handle", "device_memory_used", "gds", "get_allocator_backend"),
    *("get_arch_list", "get_device_capability", "get_gencode_flags", "get_per_process_memory_fraction"),
    *("get_stream_from_external", "get_sync_debug_mode", "graph", "graph_pool_handle", "graphs", "has_half"),
    *("has_magma", "host_memory_stats", "host_memory_stats_as_nested_dict", "is_current_stream_capturing"),
    *("is_tf32_supported", "jiterator", "list_gpu_processes", "make_graphed_callables", "memory_usage", "nccl"),
    *("nvtx", "power_draw", "profiler", "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats"),
    *("set_sync_debug_mode", "sparse", "temperature", "tunable", "cutlass"),
}
# Of these another rule speaks.
ELSEWHERE = {
    *("DoubleTensor", "DoubleStorage", "get_device_capability", "nvtx"),
    *("CUDAGraph", "graph", "graphs", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"),
}


def counterpart(name: str, card: Card) -> str | None:
    """Return the name below `torch.npu` for one below `torch.cuda`; None if no table has it.

    A name may go on behind what is known, as in `FloatTensor.type`.
    """
    for known in (SUBMODULES, INNER[card.name]):
        module = max((module for module in known if f"{name}.".startswith(f"{module}.")), key=len, default=None)
        if module is not None:
            member = name[len(module) + 1 :].partition(".")[0]
            renamed = RENAMED[card.name].get(module, module)
            return renamed + name[len(module) :] if not member or member in known[module] else None
    first, dot, members = name.partition(".")
    if first in BOTH or first in OWN[card.name]:
        return name
    renamed = RENAMED[card.name].get(first, "")
    return f"{renamed}{dot}{members}" if renamed else None
