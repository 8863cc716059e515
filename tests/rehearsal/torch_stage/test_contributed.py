"""Parts of `torch_npu.contrib` that classifiers use."""

from __future__ import annotations

import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_classes_of_contrib_compute_their_documented_formulas() -> None:
    from torch_npu.contrib import LabelSmoothingCrossEntropy, NpuDropPath, Prefetcher

    torch.manual_seed(0)
    scores, labels = torch.randn(4, 10).npu(), torch.randint(0, 10, (4,)).npu()
    # PyTorch spreads the rest over all classes, the right one included.
    same = torch.nn.functional.cross_entropy(scores, labels, label_smoothing=0.1 * 10 / 9)
    torch.testing.assert_close(LabelSmoothingCrossEntropy(10, 0.1)(scores, labels), same)
    dropped = NpuDropPath(0.5)(torch.ones(64, 3, device="npu"))
    assert set(dropped.flatten().tolist()) == {0.0, 2.0}
    assert (dropped == dropped[:, :1]).all()
    batches = Prefetcher([(torch.ones(1), torch.zeros(1))])
    images, _ = batches.next()
    assert images.is_npu
    assert batches.next() == (None, None)
