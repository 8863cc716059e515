"""Images keep every pixel, and wrong predictions are marked by more than colour."""

import io

import numpy as np
import pytest
from PIL import Image

from viaduct.data.png import encode_png
from viaduct.reporting import GridImage, ImageGrid, Page, Section, render_page

BLACK = np.zeros((32, 32, 3), np.uint8)


def html_of(*images: GridImage, **options: str) -> str:
    return render_page(Page("x", sections=[Section("s", "", [ImageGrid(images, **options)])]))


def test_a_marked_image_says_so_with_a_message():
    html = html_of(GridImage(BLACK, "cat"), GridImage(BLACK, "dog", marked=True))
    assert html.count('<li class="marked">') == 1
    assert html.count("✗ wrong") == 1


def test_the_label_of_marked_images_can_be_chosen():
    assert "✗ drifted" in html_of(GridImage(BLACK, marked=True), mark="drifted")


def test_small_images_keep_square_pixels_and_large_ones_are_smoothed():
    assert 'class="small"' in html_of(GridImage(BLACK))
    assert 'class="small"' not in html_of(GridImage(np.zeros((224, 224, 3), np.uint8)))


def test_captions_are_escaped_in_text_and_in_attributes():
    html = html_of(GridImage(BLACK, '"><script>'))
    assert '"><script>' not in html


def test_no_images_is_reported():
    assert "no images" in html_of()


@pytest.mark.parametrize(
    "pixels", [np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((3, 4, 4), np.uint8)[:, :, :1]]
)
def test_an_array_that_is_no_image_is_refused_where_it_is_made(pixels):
    with pytest.raises(ValueError, match="uint8 of shape"):
        GridImage(pixels)


@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 1, 3), (4, 3, 4)])
def test_every_pixel_comes_back(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode_png(pixels)))), pixels)


def test_a_view_in_another_memory_order_is_encoded_as_seen():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 8), dtype=np.uint8).transpose(1, 2, 0)
    assert encode_png(pixels) == encode_png(pixels.copy())
