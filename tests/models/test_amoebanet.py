"""AmoebaNet-D: its cells, its two heads, its drop path."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from viaduct import models
from viaduct.errors import BadValue
from viaduct.models import amoebanet_cells
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.amoebanet_cells import Cell

TINY = {"cells": 3, "filters": 16, "stem_filters": 8}


def tiny(**options: Any) -> AmoebaNet:
    torch.manual_seed(1)
    network = models.build("amoebanet_d", classes=5, **{**TINY, "image": 67, **options})
    assert isinstance(network, AmoebaNet)
    return network


def on_paper(**options: Any) -> AmoebaNet:
    with torch.device("meta"):
        network = models.build("amoebanet_d", **options)
    assert isinstance(network, AmoebaNet)
    return network


def test_in_training_it_returns_two_logits_and_otherwise_one() -> None:
    network = tiny()
    images_NCHW = torch.randn(2, 3, 67, 67)
    logits, auxiliary = network(images_NCHW)
    assert logits.shape == auxiliary.shape == (2, 5)
    assert network.eval()(images_NCHW).shape == (2, 5)


def test_without_an_auxiliary_head_it_returns_one_logits_in_training_too() -> None:
    network = tiny(aux=False)
    assert network(torch.randn(2, 3, 40, 40)).shape == (2, 5)
    assert not any(key.startswith("aux") for key in network.state_dict())


def test_both_logits_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        logits, auxiliary = tiny()(torch.randn(2, 3, 67, 67))
    assert logits.dtype == auxiliary.dtype == torch.float32


def test_cells_stand_in_the_references_order_and_sizes() -> None:
    network = on_paper().eval()
    shapes: dict[str, tuple[int, ...]] = {}
    for name, cell in network.cells.items():
        cell.register_forward_hook(lambda _, inputs, output, name=name: shapes.update({name: tuple(output.shape[1:])}))
    network(torch.empty(1, 3, 224, 224, device="meta"))
    assert shapes == {
        "cell_stem_0": (192, 56, 56),
        "cell_stem_1": (384, 28, 28),
        "cell_0": (1024, 28, 28),
        "cell_1": (1024, 28, 28),
        "reduction_cell_0": (1536, 14, 14),
        "cell_2": (2048, 14, 14),
        "cell_3": (2048, 14, 14),
        "reduction_cell_1": (3072, 7, 7),
        "cell_4": (4096, 7, 7),
        "cell_5": (4096, 7, 7),
    }
    assert list(shapes) == list(network.cells)


@pytest.mark.parametrize(("cells", "after"), [(6, "cell_3"), (12, "cell_7"), (3, "cell_1"), (4, "cell_1")])
def test_the_second_head_sits_before_the_second_reduction(cells: int, after: str) -> None:
    network = on_paper(cells=cells)
    assert network.aux_after == after
    names = list(network.cells)
    assert names[names.index(after) + 1] == "reduction_cell_1"


@pytest.mark.parametrize(("image", "grid"), [(224, 4), (299, 5), (67, 1)])
def test_the_second_heads_kernel_covers_all_that_its_pool_leaves(image: int, grid: int) -> None:
    network = on_paper(image=image)
    assert network.aux is not None
    assert network.aux.conv.kernel_size == (grid, grid)
    logits, auxiliary = network(torch.empty(2, 3, image, image, device="meta"))
    assert logits.shape == auxiliary.shape == (2, 1001)


def test_images_of_another_size_are_refused_in_training_only() -> None:
    network = on_paper()
    images_NCHW = torch.empty(2, 3, 128, 128, device="meta")
    with pytest.raises(BadValue, match="built for images of another size"):
        network(images_NCHW)
    assert network.eval()(images_NCHW).shape == (2, 1001)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": 66}, "66x66 are too small"),
        ({"cells": 2}, "2 cells"),
        ({"filters": 100}, "100 filters"),
        ({"filters": 0}, "0 filters"),
        ({"dropout_keep": 0.0}, "dropout_keep is 0"),
        ({"drop_path_keep": 1.5}, "drop_path_keep is 1.5"),
        ({"drop_path_version": "v4"}, "drop_path_version is 'v4'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        on_paper(**options)


def test_the_first_cell_takes_its_input_raw_a_second_time() -> None:
    cell = tiny().cells["cell_stem_0"]
    assert isinstance(cell, Cell)
    assert isinstance(cell.previous, nn.Identity)
    # Eight channels where the cell has four: its pool on h1 must convert them.
    assert cell.combinations[3].right.conv_1x1.weight.shape == (4, 8, 1, 1)


def test_dropout_comes_before_the_classifier_and_in_training_only() -> None:
    network = tiny(aux=False, dropout_keep=0.25)
    seen: list[Tensor] = []
    network.head.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0]))
    images_NCHW = torch.randn(4, 3, 40, 40)
    for keep in (0.25, 1.0):
        network.dropout.p = 1 - keep
        network(images_NCHW)
    thinned, unthinned = seen
    kept = thinned[unthinned > 0] > 0
    assert kept.float().mean().item() == pytest.approx(0.25, abs=0.1)
    torch.testing.assert_close(thinned[thinned > 0], unthinned[thinned > 0] / 0.25)
    network.dropout.p = 0.75
    network.eval()(images_NCHW)
    network.dropout.p = 0.0
    network(images_NCHW)
    assert torch.equal(seen[2], seen[3])


def test_dropout_keeps_the_share_it_was_given() -> None:
    assert tiny().dropout.p == 0.5
    assert tiny(dropout_keep=0.25).dropout.p == 0.75


def test_drop_path_is_off_by_default_and_in_evaluation() -> None:
    assert tiny().compute_keep_probability(0) is None
    assert tiny(drop_path_keep=0.5).eval().compute_keep_probability(0) is None


@pytest.mark.parametrize(
    ("version", "progress", "cell", "expected"),
    [
        ("v1", 0.0, 0, 1.0),
        ("v1", 0.5, 0, 0.8),
        ("v1", 0.5, 6, 0.8),
        ("v2", 0.0, 0, 1 - 0.4 / 7),
        ("v2", 0.5, 6, 0.6),
        ("v3", 0.5, 0, 1 - 0.2 / 7),
        ("v3", 0.5, 6, 0.8),
        ("v3", 0.0, 6, 1.0),
    ],
)
def test_drop_path_grows_with_progress_and_depth(version: str, progress: float, cell: int, expected: float) -> None:
    network = tiny(drop_path_keep=0.6, drop_path_version=version)
    assert len(network.cells) == 7
    network.drop_path_progress.fill_(progress)
    keep = network.compute_keep_probability(cell)
    assert keep is not None
    assert keep.item() == pytest.approx(expected, abs=1e-6)


def test_progress_is_not_part_of_the_weights() -> None:
    assert not any("progress" in key for key in tiny().state_dict())


def test_every_operation_drops_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Size] = []

    def count(x_NCHW: Tensor, keep: Tensor) -> Tensor:
        calls.append(x_NCHW.shape)
        return x_NCHW

    monkeypatch.setattr(amoebanet_cells, "drop_path", count)
    tiny(drop_path_keep=0.5)(torch.randn(2, 3, 67, 67))
    assert len(calls) == 7 * 8  # ten operations a cell, two of them "none"


@pytest.mark.lengthy
def test_the_compiler_sees_one_graph_with_drop_path_and_progress() -> None:
    network = tiny(drop_path_keep=0.5, drop_path_version="v3")
    frames = CompileCounter()
    compiled = torch.compile(network, backend=frames, fullgraph=True)
    for progress in (0.1, 0.9):
        network.drop_path_progress.fill_(progress)
        logits, auxiliary = compiled(torch.randn(2, 3, 67, 67))
        assert logits.isfinite().all()
        assert auxiliary.isfinite().all()
    assert frames.frame_count == 1
