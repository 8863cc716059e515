"""Image files classified in batches: how far ahead they are read, and what cannot be predicted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from viaduct.errors import OutOfMemory
from viaduct.handover.classifier import Classifier
from viaduct.handover.image_files import ImageFile
from viaduct.handover.predicting import Prediction, Reader, predict_files, rank_classes


def test_no_more_than_some_batches_are_read_ahead(classifier: Classifier, images: Path) -> None:
    read: list[str] = []

    class Recorder(Reader):
        def __call__(self, file: ImageFile) -> Any:
            read.append(file.path)
            return super().__call__(file)

    files = [ImageFile(str(file), is_named=True) for file in sorted(images.iterdir())] * 10
    results = predict_files(classifier, classifier.network, files, top=1, batch=4, reader=Recorder(classifier.prepare))
    assert len(next(results)) == 4
    time.sleep(0.2)
    assert len(read) < 40
    results.close()


def test_memory_that_does_not_suffice_asks_for_a_smaller_batch(classifier: Classifier, images: Path) -> None:
    def run(inputs: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    files = [ImageFile(str(file), is_named=True) for file in sorted(images.iterdir())[:3]]
    with pytest.raises(OutOfMemory, match="batch of 3 images"):
        list(predict_files(classifier, run, files, top=1, batch=4, reader=Reader(classifier.prepare)))


def test_outputs_that_are_not_finite_are_no_prediction() -> None:
    logits = torch.tensor([[0.0, 1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
    rows = rank_classes(logits, ("a", "b"), top=1)
    assert rows[0] == (Prediction("b", 1, float(str(np.float32(rows[0][0].probability)))),)
    assert rows[1:] == [(), ()]
