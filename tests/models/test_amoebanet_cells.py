"""Cells of AmoebaNet-D and their operations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from viaduct.models import amoebanet_cells
from viaduct.models.amoebanet_cells import NORMAL, Cell, Combination, FactorisedReduction, Previous, drop_path


@pytest.mark.parametrize("size", [(6, 6), (7, 7), (6, 9), (1, 1)])
def test_factorised_reduction_takes_even_cells_and_odd_ones(size: tuple[int, int]) -> None:
    reduction = FactorisedReduction(3, 4).eval()
    features = torch.randn(2, 3, *size)
    shifted = F.pad(features, (0, 1, 0, 1))[:, :, 1:, 1:]
    paths = ((reduction.path1_conv, features), (reduction.path2_conv, shifted))
    expected = torch.cat([F.conv2d(part[:, :, ::2, ::2], path.weight) for path, part in paths], dim=1)
    torch.testing.assert_close(reduction(features), reduction.final_path_bn(expected))


def test_the_output_of_a_cell_is_activated() -> None:
    assert (
        Cell(NORMAL, 8, Previous(16, is_twice_as_large=False), 16, 1)(
            torch.randn(2, 8, 5, 5), torch.randn(2, 16, 5, 5), None
        ).min()
        == 0
    )


def test_a_cell_leaves_its_inputs_as_they_were() -> None:
    cell = Cell(NORMAL, 8, Previous(16, is_twice_as_large=False), 16, 1)
    x_NCHW, previous = torch.randn(2, 8, 5, 5), torch.randn(2, 16, 5, 5)
    kept = x_NCHW.clone(), previous.clone()
    cell(x_NCHW, previous, None)
    assert torch.equal(x_NCHW, kept[0])
    assert torch.equal(previous, kept[1])


def test_drop_path_drops_whole_examples_and_scales_the_others() -> None:
    torch.manual_seed(0)
    dropped = drop_path(torch.ones(4000, 2, 3, 3), torch.tensor(0.8))
    shares = dropped.flatten(1)
    assert torch.equal(shares.min(1).values, shares.max(1).values)
    assert set(shares[:, 0].tolist()) == {0.0, 1.25}
    assert shares.mean().item() == pytest.approx(1.0, abs=0.03)


def test_drop_path_keeps_the_precision_of_what_it_drops() -> None:
    assert drop_path(torch.ones(2, 1, 1, 1, dtype=torch.bfloat16), torch.tensor(0.5)).dtype == torch.bfloat16


def test_an_untouched_state_is_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amoebanet_cells, "drop_path", lambda x_NCHW, keep: torch.zeros_like(x_NCHW))
    states = [torch.randn(2, 4, 5, 5) for _ in range(2)]
    combination = Combination((("none", 1), ("1x1", 0)), [4, 4], 4, 1)
    assert torch.equal(combination(states, torch.tensor(0.5)), states[1])
