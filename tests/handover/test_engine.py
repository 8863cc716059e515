"""Inference made fast: the engine answers as the network does, for every batch size."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from handover.test_folding import Asking
from viaduct.errors import ViaductError
from viaduct.handover.classifier import Classifier
from viaduct.handover.engine import build_engine, round_up


def images(count: int, classifier: Classifier) -> torch.Tensor:
    return torch.randn(count, 3, classifier.size, classifier.size, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("count", [1, 3, 8, 11])
def test_an_engine_answers_as_the_network_does(classifier: Classifier, count: int, fold: bool) -> None:
    engine = build_engine(classifier, device="cpu", precision="fp32", fold=fold)
    inputs = images(count, classifier)
    with torch.inference_mode():
        expected = classifier.network(inputs)
    assert engine.folded == fold
    assert torch.allclose(engine.run(inputs), expected, atol=1e-4)


def test_an_engine_without_folding_is_exactly_what_evaluate_runs(classifier: Classifier) -> None:
    inputs = images(5, classifier)
    with torch.inference_mode():
        expected = classifier.network(inputs.contiguous(memory_format=torch.channels_last))
    assert torch.equal(build_engine(classifier, device="cpu", precision="fp32", fold=False).run(inputs), expected)


def test_reduced_precision_gives_outputs_in_float32(classifier: Classifier) -> None:
    engine = build_engine(classifier, device="cpu", precision="bf16")
    assert engine.precision == "bf16"
    assert engine.run(images(2, classifier)).dtype == torch.float32


def test_a_network_that_cannot_be_traced_runs_as_it_is_and_says_so(classifier: Classifier) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = Asking().eval(), nn.Linear(3, 10)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.head(self.inner(inputs))
            return made

    odd = replace(classifier, network=Network().eval())
    engine = build_engine(odd, device="cpu", precision="fp32")
    assert not engine.folded
    assert "control flow" in engine.note
    with torch.inference_mode():
        assert torch.allclose(engine.run(images(2, classifier)), odd.network(images(2, classifier)))


def test_no_images_are_refused(classifier: Classifier) -> None:
    with pytest.raises(ViaductError, match="at least one image"):
        build_engine(classifier, device="cpu", precision="fp32").run(images(0, classifier))


def test_batch_sizes_of_captured_passes_are_few_and_never_too_small() -> None:
    assert [round_up(count) for count in (1, 2, 3, 8, 9, 64, 65, 128, 200)] == [1, 2, 4, 8, 16, 64, 128, 128, 256]
