"""Images as torchvision and timm prepare them: equal to Pillow's own resizing, and to a formula written out here."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from viaduct.data import preprocess
from viaduct.data.pillow_views import PillowViews, draw_box, parse_name
from viaduct.data.preprocess import find_preprocessing, prepare_image
from viaduct.data.records import Records
from viaduct.errors import BadValue, UnknownName

VIEWS = PillowViews("bicubic", 0.875, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
PHOTO = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)


def encode(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_evaluation_resizes_the_shorter_side_and_crops_the_centre() -> None:
    resized = np.asarray(Image.fromarray(PHOTO).resize((85, 64), Image.Resampling.BICUBIC))
    expected = (resized[4:60, round((85 - 56) / 2) :][:, :56] / 255 - VIEWS.mean) / VIEWS.deviation
    seen = prepare_image(VIEWS.name, encode(PHOTO), size=56, normalised=True)
    np.testing.assert_allclose(seen, expected, atol=1e-5)


def test_training_needs_a_generator_and_follows_it() -> None:
    data = encode(PHOTO)
    with pytest.raises(BadValue, match="needs a generator"):
        prepare_image(VIEWS.name, data, train=True)
    first, again, other = (
        prepare_image(VIEWS.name, data, train=True, generator=np.random.default_rng(seed), size=32)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_boxes_lie_inside_and_have_the_areas_that_are_drawn() -> None:
    generator = np.random.default_rng(3)
    boxes = np.array([draw_box(90, 120, generator) for _ in range(4000)])
    top, left, height, width = boxes.T
    for begin, length, side in ((top, height, 90), (left, width, 120)):
        assert begin.min() >= 0
        assert (begin + length).max() <= side
    areas, ratios = height * width / (90 * 120), width / height
    assert 0.07 < areas.min() < 0.1
    assert areas.max() > 0.9
    assert 0.7 < ratios.min() < 0.8
    assert 1.25 < ratios.max() < 1.45
    assert draw_box(1, 100, generator)[2:] == (1, 1)


def test_settings_are_parsed_from_their_name_and_a_wrong_name_is_refused() -> None:
    assert parse_name(VIEWS.name) == VIEWS
    for name in ("source:bicubic:0.9", "source:cubic:0.9:1,1,1:1,1,1", "source:bicubic:0:1,1,1:1,1,1"):
        with pytest.raises(BadValue, match="cannot be read"):
            Records(global_batch=1, size=8, preprocess=name)
    with pytest.raises(UnknownName, match="Closest is 'official'"):
        Records(global_batch=1, size=8, preprocess="offical")


def test_a_view_of_such_images_is_refused() -> None:
    with pytest.raises(BadValue, match="Pillow's resizing"):
        preprocess.choose_view(VIEWS.name, 90, 120)
    assert find_preprocessing(VIEWS.name).mean == pytest.approx([255 * value for value in VIEWS.mean])
