"""The crop sampler against TensorFlow's, by quantiles; resizing against TensorFlow's, by pixels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from viaduct.data import geometry, references, sample_crop
from viaduct.data.geometry import (
    Axis,
    CropSampler,
    find_largest_shrink,
    make_central_axis,
    mirror_after,
    mirror_before,
    resample,
    resample_in_numpy,
    shrink_axis,
    stretch_axis,
)
from viaduct.errors import BadData, UnknownName

from .photographs import photograph, tensorflow

DRAWS = 4000
BOXES = [[0.1, 0.6, 0.4, 0.9], [0.5, 0.05, 0.95, 0.3]]


def our_crops(name: str, height: int, width: int, boxes: list[list[float]] | None) -> np.ndarray:
    generator = np.random.default_rng(5)
    return np.array([sample_crop(name, height, width, boxes, generator) for _ in range(DRAWS)])


def their_crops(name: str, height: int, width: int, with_boxes: bool) -> np.ndarray:
    """TensorFlow's own sampler; where the reference has a nominal frame, in that, and then stretched."""
    sampler = references.load(name).sampler
    assert sampler is not None
    frame = (sampler.frame or height, sampler.frame or width)
    return their_draws(sampler, *frame, with_boxes) * np.array([height, width] * 2) // np.array(frame * 2)


@cache
def their_draws(sampler: CropSampler, height: int, width: int, with_boxes: bool) -> np.ndarray:
    tf = tensorflow()

    def draw(seed: object) -> object:
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            [height, width, 3],
            tf.constant([BOXES]) if with_boxes else tf.zeros([1, 0, 4]),
            seed=tf.stack([seed, 7]),
            min_object_covered=sampler.least_covered,
            aspect_ratio_range=sampler.ratio,
            area_range=sampler.area,
            max_attempts=sampler.attempts,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], size[:2]], 0)

    return tf.function(lambda: tf.map_fn(draw, tf.range(DRAWS)))().numpy()


def features(crops: np.ndarray, height: int, width: int) -> dict[str, np.ndarray]:
    y, x, crop_height, crop_width = crops.T
    return {
        "area": crop_height * crop_width / (height * width),
        "ratio": crop_width / crop_height,
        "middle down": (y + crop_height / 2) / height,
        "middle across": (x + crop_width / 2) / width,
    }


@pytest.mark.parametrize(("height", "width"), [(375, 500), (500, 333), (64, 400)])
@pytest.mark.parametrize(
    ("name", "with_boxes"), [*((name, False) for name in references.names()), ("official", True), ("v15", True)]
)
def test_crops_are_distributed_like_tensorflows(name: str, height: int, width: int, with_boxes: bool) -> None:
    """Kolmogorov and Smirnov: two samples of n from one distribution differ by more than c * sqrt(2 / n) in rank with
    probability 2 exp(-2 c^2): at c = 2.0, once in 1,500 comparisons. There are 72 here, all with fixed seeds."""
    ours = features(our_crops(name, height, width, BOXES if with_boxes else None), height, width)
    theirs = features(their_crops(name, height, width, with_boxes), height, width)
    for feature, mine in ours.items():
        at = np.unique(np.concatenate([mine, theirs[feature]]))
        ranks = [np.searchsorted(np.sort(values), at, side="right") / DRAWS for values in (mine, theirs[feature])]
        assert abs(ranks[0] - ranks[1]).max() < 2.0 * np.sqrt(2 / DRAWS), feature


def test_the_quantile_test_notices_the_sampler_of_torchvision() -> None:
    """Areas uniform and ratios on a log scale: the test above would fail by far."""
    rng = np.random.default_rng(0)
    areas = np.sort(rng.uniform(0.1, 1, DRAWS))
    ours = np.sort(features(our_crops("official", 375, 500, None), 375, 500)["area"])
    at = np.linspace(0, 1, 101)
    ranks = [np.searchsorted(values, at) / DRAWS for values in (areas, ours)]
    assert abs(ranks[0] - ranks[1]).max() > 3 * 2.0 * np.sqrt(2 / DRAWS)


def test_the_last_offset_is_never_drawn_as_in_tensorflow() -> None:
    crops = our_crops("official", 4, 5, None)
    assert set(crops[crops[:, 2] == 2][:, 0].tolist()) == {0, 1}
    theirs = their_crops("official", 4, 5, False)
    assert set(theirs[theirs[:, 2] == 2][:, 0].tolist()) == {0, 1}


@pytest.mark.parametrize("name", references.names())
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 300), (300, 1), (2, 3), (500, 375), (4000, 12)])
def test_a_crop_lies_in_the_image(name: str, height: int, width: int) -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        y, x, crop_height, crop_width = sample_crop(name, height, width, None, generator)
        assert 0 <= y < y + crop_height <= height
        assert 0 <= x < x + crop_width <= width


def test_an_image_too_long_for_any_ratio_is_used_in_full() -> None:
    assert sample_crop("official", 1000, 3, None, np.random.default_rng(0)) == (0, 0, 1000, 3)


def test_a_crop_covers_a_tenth_of_some_box() -> None:
    generator = np.random.default_rng(0)
    objects = geometry.convert_to_pixels(BOXES, 375, 500)
    for _ in range(500):
        assert geometry.is_object_covered(sample_crop("official", 375, 500, BOXES, generator), objects, 0.1)


def test_boxes_without_area_leave_the_whole_image() -> None:
    assert sample_crop("v15", 300, 400, [[0.5, 0.5, 0.5, 0.5]], np.random.default_rng(0)) == (0, 0, 300, 400)


def test_an_empty_list_of_boxes_is_no_boxes() -> None:
    first = sample_crop("v15", 300, 400, [], np.random.default_rng(3))
    assert first == sample_crop("v15", 300, 400, None, np.random.default_rng(3))


@pytest.mark.parametrize("boxes", [[[0.5, 0.1, 0.4, 0.9]], [[0, 0, 1, 1.5]], [[-0.1, 0, 1, 1]], [[np.nan, 0, 1, 1]]])
def test_impossible_boxes_are_named(boxes: list[list[float]]) -> None:
    with pytest.raises(BadData, match="between 0 and 1"):
        sample_crop("official", 300, 400, boxes, np.random.default_rng(0))


def test_an_unknown_name_offers_the_closest() -> None:
    with pytest.raises(UnknownName, match="Closest is 'resnext'"):
        sample_crop("resnet", 300, 400, None, np.random.default_rng(0))


@pytest.fixture(params=["compiled", "numpy"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        monkeypatch.setattr(geometry, "find_compiled", lambda extension, name: None)
    elif geometry.find_compiled("_lerp", "lerp") is None:
        pytest.skip("no compiler was at hand when viaduct was installed")
    return str(request.param)


def tensorflow_resized(crop: np.ndarray, height: int, width: int) -> np.ndarray:
    return tensorflow().compat.v1.image.resize_bilinear(crop[None], [height, width]).numpy()[0]


CROPS = [(0, 0, 300, 451), (10, 20, 200, 333), (100, 200, 77, 90), (299, 450, 1, 1), (3, 4, 224, 224), (0, 7, 300, 2)]


@pytest.mark.parametrize("crop", CROPS, ids=str)
def test_a_crop_is_resized_like_tensorflows(crop: tuple[int, int, int, int], implementation: str) -> None:
    y, x, height, width = crop
    ours = resample(photograph("chelsea"), stretch_axis(y, height, 224), stretch_axis(x, width, 160))
    theirs = tensorflow_resized(photograph("chelsea")[y : y + height, x : x + width], 224, 160)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-5)


@pytest.mark.parametrize("crop", CROPS, ids=str)
def test_mirroring_before_and_after_resizing_differ(crop: tuple[int, int, int, int], implementation: str) -> None:
    y, x, height, width = crop
    cut = photograph("chelsea")[y : y + height, x : x + width]
    rows, columns = stretch_axis(y, height, 224), stretch_axis(x, width, 224)
    before = resample(photograph("chelsea"), rows, mirror_before(columns, x, width))
    after = resample(photograph("chelsea"), rows, mirror_after(columns))
    np.testing.assert_allclose(before, tensorflow_resized(cut[:, ::-1], 224, 224), rtol=0, atol=5e-5)
    np.testing.assert_allclose(after, tensorflow_resized(cut, 224, 224)[:, ::-1], rtol=0, atol=5e-5)
    assert width in (1, 224) or abs(before - after).max() > 1


def test_part_of_a_resize_is_that_part_of_it(implementation: str) -> None:
    resized = resample(photograph("coffee"), stretch_axis(0, 400, 256), stretch_axis(0, 600, 384))
    part = resample(photograph("coffee"), stretch_axis(0, 400, 256, 16, 224), stretch_axis(0, 600, 384, 80, 224))
    assert np.array_equal(part, resized[16:240, 80:304])


@pytest.mark.parametrize("name", ["chelsea", "small", "tall", "coffee"])
def test_the_central_box_is_tensorflows_crop_and_resize(name: str, implementation: str) -> None:
    image = photograph(name)
    boxes = np.array([[0.1, 0.1, 0.9, 0.9]], np.float32)
    theirs = tensorflow().image.crop_and_resize(image[None], boxes, [0], [224, 224]).numpy()[0]
    ours = resample(image, make_central_axis(image.shape[0], 0.8, 224), make_central_axis(image.shape[1], 0.8, 224))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-5)


def test_one_pixel_can_be_resized_to_many() -> None:
    assert (resample(np.full((1, 1, 3), 9, np.uint8), stretch_axis(0, 1, 5), make_central_axis(1, 0.8, 5)) == 9).all()


def test_results_are_written_to_the_given_array(implementation: str) -> None:
    batch = np.zeros((2, 20, 30, 3), np.float32)
    rows, columns = stretch_axis(0, 300, 20), stretch_axis(0, 451, 30)
    made = resample(photograph("chelsea"), rows, columns, batch[1])
    assert np.shares_memory(made, batch)
    assert np.array_equal(batch[1], resample(photograph("chelsea"), rows, columns))
    assert (batch[0] == 0).all()


def test_numpy_and_the_compiled_one_agree_to_rounding() -> None:
    rows, columns = stretch_axis(5, 290, 224), mirror_before(stretch_axis(9, 333, 224), 9, 333)
    out = resample_in_numpy(photograph("chelsea"), rows, columns, np.empty((224, 224, 3), np.float32))
    np.testing.assert_allclose(out, resample(photograph("chelsea"), rows, columns), rtol=0, atol=5e-5)


@pytest.mark.parametrize(("length", "shrink"), [(447, 1), (448, 2), (895, 2), (896, 4), (1792, 8), (5000, 8)])
def test_nothing_shrinks_below_the_target(length: int, shrink: int) -> None:
    assert find_largest_shrink(stretch_axis(0, length, 224), stretch_axis(0, 9000, 224)) == shrink
    assert find_largest_shrink(stretch_axis(0, 9000, 224), stretch_axis(0, length, 224)) == shrink


def test_positions_in_a_shrunk_image_are_the_same_positions() -> None:
    """On a ramp the mean of a block is the value in its middle, so a place must still read its own position."""
    ramp = np.repeat(np.arange(240, dtype=np.uint8)[:, None, None], 3, axis=2)
    blocks = ramp.reshape(60, 4, 1, 3).mean(1).round().astype(np.uint8)  # the middle is 4 i + 1.5, rounded to 4 i + 2
    axis, alone = stretch_axis(20, 200, 25), Axis(np.zeros(1, np.intp), np.zeros(1, np.intp), np.zeros(1, np.float32))
    read = resample(blocks, shrink_axis(axis, 4, 60), alone)[:, 0, 0]
    np.testing.assert_allclose(read, np.clip(axis.positions, 21.5, None) + 0.5, atol=1e-4)


def test_a_shrunk_axis_stays_inside() -> None:
    for factor, length in ((2, 226), (4, 113), (8, 57)):
        for axis in (
            stretch_axis(0, 451, 20),
            mirror_before(stretch_axis(7, 444, 20), 7, 444),
            make_central_axis(451, 0.8, 20),
        ):
            low, high = shrink_axis(axis, factor, length).pixel_range
            assert 0 <= low < high <= length
