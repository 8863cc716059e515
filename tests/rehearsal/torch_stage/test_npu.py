"""Settings of the NPU, and those of CUDA beside it."""

from __future__ import annotations

import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_the_cuda_flags_of_pytorch_are_harmless() -> None:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True)
    assert torch.ones(2, device="npu").sum() == 2
    assert not torch.cuda.is_available()
    torch.npu.matmul.allow_hf32 = True
    torch.npu.config.allow_internal_format = False
    torch.npu.set_compile_mode(jit_compile=False)
    assert torch.npu.is_jit_compile_false()
