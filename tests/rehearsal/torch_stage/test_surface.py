"""Every name that the plug-ins document and migrated scripts use is there, with its signature."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from rehearsal.torch_stage.staged import on
from viaduct.rehearsal import limits

# What torch.npu and torch.mlu share with torch.cuda; parameters by name, in order.
SHARED = {
    "is_available": "",
    "is_initialized": "",
    "init": "",
    "device_count": "",
    "current_device": "",
    "set_device": "device",
    "device": "device",
    "device_of": "obj",
    "synchronize": "device",
    "stream": "stream",
    "Stream": "device priority kwargs",
    "Event": "enable_timing blocking interprocess",
    "current_stream": "device",
    "default_stream": "device",
    "set_stream": "stream",
    "empty_cache": "",
    "manual_seed": "seed",
    "manual_seed_all": "seed",
    "seed": "",
    "seed_all": "",
    "initial_seed": "",
    "get_rng_state": "device",
    "get_rng_state_all": "",
    "set_rng_state": "new_state device",
    "set_rng_state_all": "new_states",
    "memory_allocated": "device",
    "max_memory_allocated": "device",
    "memory_reserved": "device",
    "max_memory_reserved": "device",
    "memory_cached": "device",
    "max_memory_cached": "device",
    "reset_max_memory_allocated": "device",
    "reset_max_memory_cached": "device",
    "reset_peak_memory_stats": "device",
    "reset_accumulated_memory_stats": "device",
    "memory_stats": "device",
    "memory_stats_as_nested_dict": "device",
    "memory_summary": "device abbreviated",
    "memory_snapshot": "mempool_id",
    "mem_get_info": "device",
    "can_device_access_peer": "device_id peer_device_id",
    "utilization": "device",
    "is_bf16_supported": "including_emulation",
    "set_per_process_memory_fraction": "fraction device",
    "get_per_process_memory_fraction": "device",
    "ipc_collect": "",
    "get_autocast_dtype": "",
    "set_autocast_dtype": "dtype",
    "is_autocast_enabled": "",
    "set_autocast_enabled": "enable",
    "get_amp_supported_dtype": "",
    "make_graphed_callables": "callables sample_args num_warmup_iters allow_unused_input pool",
    "graph_pool_handle": "",
}

NPU = {
    "get_device_name": "device_name",
    "get_device_properties": "device_name",
    "get_device_capability": "device",
    "set_compile_mode": "jit_compile",
    "is_jit_compile_false": "",
    "set_option": "option",
    "set_aoe": "dump_path",
    "set_mm_bmm_format_nd": "is_nd",
    "get_mm_bmm_format_nd": "",
    "set_sync_debug_mode": "debug_mode",
    "get_sync_debug_mode": "",
    "init_dump": "",
    "set_dump": "cfg_file",
    "finalize_dump": "",
    "get_npu_overflow_flag": "",
    "clear_npu_overflow_flag": "",
    "caching_allocator_alloc": "size device stream",
    "caching_allocator_delete": "mem_ptr",
}

MLU = {"get_device_name": "device", "get_device_properties": "device", "get_device_capability": "device"}

TYPES = ("Float", "Half", "BFloat16", "Int", "Long", "Short", "Char", "Byte", "Bool", "Double")

METHODS = {
    "Stream": "wait_event wait_stream record_event query synchronize",
    "Event": "record wait query elapsed_time synchronize",
}


def parameters(thing: Any) -> str:
    if inspect.isclass(thing):
        maker = thing.__new__ if thing.__new__ is not object.__new__ else thing.__init__
        names = list(inspect.signature(maker).parameters)[1:]
    else:
        names = list(inspect.signature(thing).parameters)
    return " ".join(names)


def check(module: Any, names: dict[str, str]) -> None:
    wrong = {name: parameters(getattr(module, name)) for name in names if hasattr(module, name)}
    assert {name for name in names if not hasattr(module, name)} == set()
    assert {name: found for name, found in wrong.items() if found != names[name]} == {}
    for name in TYPES:
        assert hasattr(module, f"{name}Tensor")
        assert hasattr(module, f"{name}Storage")
    for cls, methods in METHODS.items():
        assert all(hasattr(getattr(module, cls), method) for method in methods.split())


@on("npu")
def test_torch_npu_has_its_documented_names() -> None:
    import torch_npu
    import torch_npu.npu.amp
    from torch_npu.contrib import transfer_to_npu  # noqa: F401
    from torch_npu.npu import amp
    from torch_npu.optim import NpuFusedAdamW, NpuFusedSGD

    assert torch_npu.npu is torch.npu
    check(torch.npu, {**SHARED, **NPU})
    for owner, names in {
        torch.npu: "config matmul conv mstx NPUGraph CubeMathType default_generators amp",
        torch_npu: "npu profiler optim contrib utils npu_format_cast get_npu_format npu_dtype_cast __version__",
        amp: "autocast GradScaler custom_fwd custom_bwd",
        torch_npu.profiler: "profile schedule ProfilerActivity tensorboard_trace_handler _ExperimentalConfig "
        "ProfilerLevel AiCMetrics ExportType supported_activities",
        torch.Tensor: "npu is_npu",
        torch.distributed: "is_hccl_available ProcessGroupHCCL",
        torch.profiler.ProfilerActivity: "NPU",
    }.items():
        assert [name for name in names.split() if not hasattr(owner, name)] == []
    assert parameters(amp.autocast.__init__) == "self enabled dtype cache_enabled"
    scaler = "self init_scale growth_factor backoff_factor growth_interval dynamic enabled"
    assert parameters(amp.GradScaler.__init__) == scaler
    assert issubclass(NpuFusedSGD, torch.optim.SGD)
    assert issubclass(NpuFusedAdamW, torch.optim.AdamW)
    assert torch.nn.Module.npu
    assert torch.ones(1).untyped_storage().npu().is_npu


@on("mlu")
def test_torch_mlu_has_its_documented_names() -> None:
    import torch_mlu
    import torch_mlu.utils.gpu_migration

    assert torch_mlu.mlu is torch.mlu
    check(torch.mlu, {**SHARED, **MLU})
    for owner, names in {
        torch.mlu: "cnpx cncl MLUGraph amp default_generators",
        torch.Tensor: "mlu is_mlu",
        torch.distributed: "is_cncl_available ProcessGroupCNCL",
        torch.profiler.ProfilerActivity: "MLU",
        torch.backends: "mlu cnnl mlufusion",
        torch.autograd.profiler: "emit_cnpx",
    }.items():
        assert [name for name in names.split() if not hasattr(owner, name)] == []
    torch.backends.mlu.matmul.allow_tf32 = torch.backends.cnnl.allow_tf32 = True
    torch.backends.mlufusion.enabled = True


@on("npu")
def test_a_name_of_torch_cuda_that_the_plug_in_has_not_is_refused_where_it_is_used() -> None:
    assert not hasattr(torch.npu, "nvtx")
    assert limits.violations == []
    with pytest.raises(limits.CardRefuses, match="unsupported-name"):
        torch.npu.nvtx.range_push("step")
    with pytest.raises(AttributeError):
        print(torch.npu.no_such_thing)
