"""The profilers of torch_npu and torch_mlu."""

from __future__ import annotations

from typing import Any

import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_the_profiler_writes_a_trace_and_knows_the_vendors_options(tmp_path: Any) -> None:
    import torch_npu

    options = torch_npu.profiler._ExperimentalConfig(
        profiler_level=torch_npu.profiler.ProfilerLevel.Level1,
        aic_metrics=torch_npu.profiler.AiCMetrics.PipeUtilization,
    )
    with torch_npu.profiler.profile(
        activities=[torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU],
        schedule=torch_npu.profiler.schedule(wait=0, warmup=1, active=1, repeat=1),
        on_trace_ready=torch_npu.profiler.tensorboard_trace_handler(str(tmp_path)),
        experimental_config=options,
    ) as profile:
        for _ in range(2):
            torch.ones(4, device="npu").sum()
            profile.step()
    assert list(tmp_path.glob("*.json"))


@on("mlu")
def test_emit_cnpx_can_be_imported_from_both_modules_and_entered() -> None:
    import torch_mlu
    from torch_mlu.profiler import emit_cnpx

    assert emit_cnpx is torch.autograd.profiler.emit_cnpx
    assert torch_mlu.profiler.emit_cnpx is emit_cnpx
    weight = torch.ones(4, device="mlu", requires_grad=True)
    with emit_cnpx():
        (weight * 2).sum().backward()
    assert weight.grad is not None
