"""Images of records on a card: the same as on the CPU, however late the card comes to copy them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from data.test_record_batches import batches, write

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
]
CYCLES = 40_000_000  # about 20 ms, which the card spends before it looks at what it was given


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("busy", [False, True])
def test_the_card_gets_the_images_that_the_processor_gets(tmp_path: Path, train: bool, busy: bool) -> None:
    write(tmp_path, "train", [20, 23])
    write(tmp_path, "validation", [43])
    card, processor = torch.device("cuda", 0), torch.device("cpu")
    expected = [
        (batch.images.clone(), batch.labels.clone(), batch.index)
        for epoch in (0, 1)
        for batch in batches(tmp_path, processor, train, preprocess="official").epoch(epoch)
    ]
    arrived = []
    for epoch in (0, 1):
        for batch in batches(tmp_path, card, train, preprocess="official").epoch(epoch):
            if busy:
                torch.cuda._sleep(CYCLES)
            arrived.append((batch.images * 1, batch.labels * 1, batch.index))  # read where a step would read it
    assert len(arrived) == len(expected) > 5
    for (images, labels, index), (true_images, true_labels, true_index) in zip(arrived, expected, strict=True):
        assert torch.equal(labels.cpu(), true_labels)
        assert torch.equal(index.cpu(), true_index)
        torch.testing.assert_close(images.cpu(), true_images, rtol=1e-5, atol=1e-5)
