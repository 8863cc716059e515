"""Files of torch.export: loaded without viaduct."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from handover.exporting.export_file import export_file
from viaduct.data.png import encode_png
from viaduct.handover.classifier import Classifier


def test_a_pt2_file_takes_pixels_in_batches_of_any_size(classifier: Classifier, tmp_path: Path) -> None:
    done = export_file(classifier, tmp_path / "model.pt2")
    assert done.check_result is not None
    assert (done.check_result.images, done.check_result.same_top1, done.check_result.origin) == (
        9,
        9,
        "the run's validation images",
    )
    module = torch.export.load(str(tmp_path / "model.pt2")).module()
    images = torch.from_numpy(classifier.recipe.data.load(None).validation.images[:5])  # type: ignore[attr-defined]
    inputs = np.stack([classifier.prepare(encode_png(image.numpy())) for image in images])
    with torch.inference_mode():
        expected = torch.softmax(classifier.network(torch.from_numpy(inputs).permute(0, 3, 1, 2)), 1)
        for count in (1, 5):
            probabilities, classes = module(images[:count])
            assert torch.allclose(probabilities, expected[:count], atol=1e-5)
            assert torch.equal(classes, expected[:count].argmax(1))


def test_half_precision_computes_in_it_and_keeps_float32_outside(classifier: Classifier, tmp_path: Path) -> None:
    export_file(classifier, tmp_path / "model.pt2", takes="tensor", precision="fp16", fold=True)
    program = torch.export.load(str(tmp_path / "model.pt2"))
    assert {weight.dtype for weight in program.state_dict.values()} == {torch.float16}
    probabilities, _ = program.module()(torch.zeros(1, 3, 32, 32))
    assert probabilities.dtype == torch.float32
