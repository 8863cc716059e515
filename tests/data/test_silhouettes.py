"""Silhouettes: equal areas, centred, antialiased alike, and all different."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.data.silhouettes import SILHOUETTES

STEP = 0.003
GRID = np.arange(-1.2, 1.2, STEP, dtype=np.float32)
X, Y = np.meshgrid(GRID, GRID)


@pytest.mark.parametrize("name", SILHOUETTES)
def test_all_silhouettes_cover_the_same_area(name: str) -> None:
    inside = SILHOUETTES[name](X, Y) < 0
    assert inside.sum() * STEP**2 == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("name", SILHOUETTES)
def test_all_silhouettes_have_their_centre_of_mass_at_the_origin(name: str) -> None:
    inside = SILHOUETTES[name](X, Y) < 0
    assert X[inside].mean() == pytest.approx(0, abs=0.005)
    assert Y[inside].mean() == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize("name", SILHOUETTES)
def test_distance_grows_by_one_a_step_so_that_edges_are_equally_soft(name: str) -> None:
    distance = SILHOUETTES[name](X, Y)
    down, across = np.gradient(distance, STEP)
    edge = np.abs(distance) < 0.03
    assert np.median(np.hypot(down, across)[edge]) == pytest.approx(1, abs=0.02)


def test_no_two_silhouettes_look_alike() -> None:
    """Turned and mirrored to fit best, any two still differ in more than a seventh of their area."""
    assert len(SILHOUETTES) == 10
    masks = {name: rotate_silhouette(name) for name in SILHOUETTES}
    for first, mask in masks.items():
        for second, other in masks.items():
            if first < second:
                different = min((mask[0] ^ turn).mean() for turn in other) * 2.4**2
                assert different > 1 / 7, (first, second)


def rotate_silhouette(name: str) -> list[np.ndarray]:
    x, y = X[::4, ::4], Y[::4, ::4]
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    return [SILHOUETTES[name](np.cos(a) * x + np.sin(a) * y, np.cos(a) * y - np.sin(a) * x) < 0 for a in angles]
