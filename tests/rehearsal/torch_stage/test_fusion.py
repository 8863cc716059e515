"""The fused attention of the NPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from rehearsal.torch_stage.staged import on


@on("npu")
def test_fused_attention_of_the_npu_is_attention_in_every_layout() -> None:
    import torch_npu

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 6, 8, device="npu") for _ in range(3))  # batch, heads, sequence, width
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    causal = {"atten_mask": torch.ones(2048, 2048, device="npu").triu(1).bool(), "sparse_mode": 3, "scale": 0.3}
    there = {
        "BNSD": lambda x: x,
        "BSND": lambda x: x.transpose(1, 2),
        "BSH": lambda x: x.transpose(1, 2).flatten(2),
        "SBH": lambda x: x.permute(2, 0, 1, 3).flatten(2),
    }
    for layout, turn in there.items():
        output = torch_npu.npu_fusion_attention(turn(q), turn(k), turn(v), 3, layout, **causal)[0]
        torch.testing.assert_close(output, turn(expected))
    rows = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    ends = {"actual_seq_qlen": (6, 12), "actual_seq_kvlen": (6, 12)}
    output = torch_npu.npu_fusion_attention(*rows, 3, "TND", **causal, **ends)[0]
    torch.testing.assert_close(output, expected.transpose(1, 2).flatten(0, 1))
    with pytest.raises(NotImplementedError, match="does not compute sparse_mode 4"):
        torch_npu.npu_fusion_attention(q, k, v, 3, "BNSD", sparse_mode=4)
