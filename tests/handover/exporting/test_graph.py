"""The graph of a network: what is refused because it has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor, nn

from handover.exporting.export_file import export_file, list_names
from viaduct.errors import BadValue
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.graph import CannotExport


class DependsOnValues(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :10] * (2 if float(images.sum()) > 0 else 1)


class TwoOutputs(nn.Module):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return images.flatten(1)[:, :10], images


class Fails(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        raise RuntimeError("no such weight")


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        (DependsOnValues, CannotExport, "torch.export cannot trace the network"),
        (TwoOutputs, BadValue, "gives a tuple for 2 images"),
        (Fails, BadValue, "no such weight"),
    ],
)
def test_a_network_of_the_user_that_has_no_graph_is_explained(
    network: Callable[[], nn.Module], error: type[Exception], message: str, classifier: Classifier, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        export_file(replace(classifier, network=network()), tmp_path / "model.pt2")
    assert list_names(tmp_path) == []
