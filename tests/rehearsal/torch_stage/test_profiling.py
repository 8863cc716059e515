"""The NPU's profiler, with the vendor's options."""

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
