"""Preprocessing of encoded images as in each network's reference implementation; differences from it are listed below.

    preprocess("official", data)                                evaluation: float32 224x224x3, normalised
    preprocess("v15", data, train=True, generator=generator)    training, with random draws distributed as in v15
    prepare_image("v15", data)                                  evaluation, before normalisation: 0..255
    get_normalisation("v15")                                    (mean, scale): (image - mean) * scale

A name is that of a file in references/; or it begins with "source:" and contains the settings of a network of
torchvision or timm, which pillow_views.py applies. The rest of this text is about the references. A `View` (views.py)
has the positions of the needed pixels and the change of colours. It is computed from the size of the image; then the
image is decoded and resampled once.

The mode `exact` (the default) decodes as TensorFlow does, bit for bit, and resizes to within 1e-4 grey levels of
TensorFlow. The mode `fast` lets libjpeg-turbo shrink a JPEG by 2, 4 or 8 during decoding, if the shrunk image still
has a pixel for every pixel of the result; in training it also repeats chroma instead of interpolating. Evaluation in
`fast` equals `exact` for views less than twice the size of the result. For larger views `fast` averages where the
references skip pixels. Mean and 99th percentile of the differences, of 255 grey levels: 1.5 and 7 (a retina,
1411x1411), 3.0 and 19 (a field of stars, 1000x872), 4.4 and 41 (a portrait, 512x512).

In both modes only the region of a view is decoded, if region.py can do so; its pixels equal those of the whole image.
Where a reference decodes only the region of a training crop, TensorFlow's chroma in the region's leftmost and rightmost
column differs from that of the whole image, and so from viaduct's: by up to 13 grey levels in 60 crops.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from viaduct.data import jpeg, references, region
from viaduct.data.auto_augment import Policy
from viaduct.data.geometry import (
    Boxes,
    Crop,
    Floats,
    draw_crop,
    find_largest_shrink,
    mirror_after,
    mirror_before,
    resample,
    shrink_axis,
    stretch_axis,
)
from viaduct.data.pillow_views import PREFIX, PillowViews, parse_name
from viaduct.data.views import DrawColour, Preprocessing, Recolour, View
from viaduct.errors import BadValue

Mode = Literal["exact", "fast"]  # how images are decoded, as described above
# Changes of colour in training: those of the reference, another function that draws one, or none.
Colours = Literal["reference"] | DrawColour | None
# Message and hint of an error.
NEEDS_GENERATOR = ("training draws at random and needs a generator.", "Try: generator=np.random.default_rng(seed)")


def preprocess(
    name: str,
    jpeg_bytes: jpeg.Encoded,
    train: bool = False,
    generator: np.random.Generator | None = None,
    boxes: Boxes | None = None,
    size: int = 224,
    mode: Mode = "exact",
) -> Floats:
    """Return an image preprocessed as the reference `name` does: float32, size x size x 3, normalised.

    `jpeg_bytes` is the content of a JPEG or PNG file. With `train`, crop, mirroring and colours are drawn from
    `generator`, which is then required; `boxes` are the objects in the image (N x 4: top, left, bottom, right as
    fractions), for references whose training crops cover a part of one. `mode` is how the image is decoded (see above).
    """
    check_arguments(name, jpeg_bytes, generator, size)
    return prepare_image(name, jpeg_bytes, train, generator, boxes, size, mode, normalised=True)


def check_arguments(name: str, encoded: object, generator: object, size: object) -> None:
    """Raise `BadValue` for an unknown name, an argument of a wrong type, or a size below 1."""
    find_preprocessing(name)  # raises for an unknown name
    if not isinstance(encoded, bytes | bytearray | memoryview):
        hint = "Read the file first: Path(name).read_bytes()."
        raise BadValue(f"an image must be given as its encoded bytes, got {describe_value(encoded)}.", hint)
    if generator is not None and not isinstance(generator, np.random.Generator):
        hint = "Try: generator=np.random.default_rng(seed)"
        raise BadValue(f"generator must be a numpy Generator, got {describe_value(generator)}.", hint)
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise BadValue(f"size must be a whole number of 1 or more, got {size!r}.")


def describe_value(value: object) -> str:
    """Return type and text of a value, shortened."""
    text = repr(value)
    return f"the {type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def prepare_image(
    name: str,
    encoded: jpeg.Encoded,
    train: bool = False,
    generator: np.random.Generator | None = None,
    boxes: Boxes | None = None,
    size: int = 224,
    mode: Mode = "exact",
    out: Floats | None = None,
    *,
    normalised: bool = False,
    policy: Policy | None = None,
    colours: Colours = "reference",
) -> Floats:
    """Return an image, float32 on the scale of 0..255 or `normalised`, written to `out` if that is given.

    Arguments are those of `preprocess`; networks of torchvision and timm use neither `boxes` nor `mode`. In training
    `policy` (auto_augment.py) is applied before the changes of colour; evaluation uses neither.
    """
    preprocessing = find_preprocessing(name)
    normalise_like = name if normalised else None
    if (pillow_views := preprocessing.pillow_views) is not None:
        image, recolour = cut_with_pillow(pillow_views, encoded, train, generator, size, policy, colours)
        out = np.empty((size, size, 3), dtype=np.float32) if out is None else out
        out[:] = image
        return recolour_and_normalise(out, recolour, normalise_like)
    height, width = jpeg.read_dimensions(encoded)
    view = choose_view(name, height, width, train, generator, boxes, size, colours)
    if train:
        fancy_upsampling = preprocessing.fancy_upsampling_in_training and mode == "exact"
    else:
        fancy_upsampling = preprocessing.fancy_upsampling
    if policy is None or generator is None or not train:
        return render(encoded, view, normalise_like, fancy_upsampling, mode, out)
    out = render(encoded, view._replace(recolour=None), None, fancy_upsampling, mode, out)
    out[:] = policy(round_to_uint8(out), generator)
    return recolour_and_normalise(out, view.recolour, normalise_like)


def cut_with_pillow(
    pillow_views: PillowViews,
    encoded: jpeg.Encoded,
    train: bool,
    generator: np.random.Generator | None,
    size: int,
    policy: Policy | None,
    colours: Colours,
) -> tuple[jpeg.Pixels, Recolour | None]:
    """Return the crop of an image for a network of torchvision or timm, uint8, and the change of colours to apply."""
    pixels = jpeg.decode(encoded, dct="accurate")
    if not train:
        return pillow_views.cut_centre(pixels, size), None
    if generator is None:
        raise BadValue(*NEEDS_GENERATOR)
    image = pillow_views.cut_random(pixels, size, generator)
    image = policy(np.ascontiguousarray(image), generator) if policy else image
    return image, colours(generator) if callable(colours) else None


def round_to_uint8(image: Floats) -> npt.NDArray[np.uint8]:
    """Round to whole grey levels of 0..255."""
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def get_normalisation(name: str) -> tuple[Floats, Floats]:
    """Return (mean, scale) by channel: a pixel p becomes (p - mean) * scale."""
    preprocessing = find_preprocessing(name)
    return np.array(preprocessing.mean, dtype=np.float32), np.array(preprocessing.scale, dtype=np.float32)


def normalise(name: str, image: Floats) -> Floats:
    """Normalise an image as the reference `name` does, in place."""
    shift, scale = make_normalisation_rows(name, image.shape[1])
    image += shift.reshape(-1, 3)
    image *= scale.reshape(-1, 3)
    return image


def find_preprocessing(name: str) -> Preprocessing:
    """Return the preprocessing of a reference, or of a network of torchvision or timm."""
    if isinstance(name, str) and name.startswith(f"{PREFIX}:"):
        return make_pillow_preprocessing(name)
    return references.load(name)


def sample_crop(name: str, height: int, width: int, boxes: Boxes | None, generator: np.random.Generator) -> Crop:
    """Draw a training crop of an image of this size, distributed as in the reference `name`."""
    sampler = references.load(name).sampler
    assert sampler is not None
    return draw_crop(sampler, height, width, boxes, generator)


@cache
def make_pillow_preprocessing(name: str) -> Preprocessing:
    """Return the preprocessing of a network of torchvision or timm; `name` contains its settings."""
    views = parse_name(name)  # mean and deviation are for pixels from 0 to 1
    mean, scale = (255 * value for value in views.mean), (1 / (255 * value) for value in views.deviation)
    return Preprocessing(refuse_view, tuple(mean), tuple(scale), pillow_views=views)  # type: ignore[arg-type]


def refuse_view(height: int, width: int, size: int) -> View:
    """Raise `BadValue`, because the positions in a `View` cannot describe Pillow's antialiased resizing."""
    raise BadValue("networks of torchvision and timm need Pillow's resizing, which cannot be used here.")


def choose_view(
    name: str,
    height: int,
    width: int,
    train: bool = False,
    generator: np.random.Generator | None = None,
    boxes: Boxes | None = None,
    size: int = 224,
    colours: Colours = "reference",
) -> View:
    """Return the view of an image of this size; in training draw crop, mirroring and change of colours, in this order.

    There are two other places with random draws: policies (auto_augment.py) and `cut_with_pillow`.
    """
    if size < 1:
        raise BadValue(f"size must be at least 1, got {size}.")
    preprocessing = find_preprocessing(name)
    if not train:
        return preprocessing.evaluation(height, width, size)
    if generator is None:
        raise BadValue(*NEEDS_GENERATOR)
    crop = sample_crop(name, height, width, boxes, generator)
    columns = stretch_axis(crop.x, crop.width, size)
    if generator.random() < 0.5:
        mirrors_before = preprocessing.mirrors_before_resize
        columns = mirror_before(columns, crop.x, crop.width) if mirrors_before else mirror_after(columns)
    draw_colour = preprocessing.recolour if colours == "reference" else colours
    recolour = draw_colour(generator) if draw_colour else None
    return View(stretch_axis(crop.y, crop.height, size), columns, recolour)


def render(
    encoded: jpeg.Encoded,
    view: View,
    normalise_like: str | None = None,
    fancy_upsampling: bool = True,
    mode: Mode = "exact",
    out: Floats | None = None,
) -> Floats:
    """Decode an image, sample it at the view's positions, change its colours, and normalise it.

    `normalise_like` names the reference whose mean and scale are used; None: the image is not normalised.
    """
    if mode not in ("exact", "fast"):
        raise BadValue(f"mode must be 'exact' or 'fast', got {mode!r}.")
    rows, columns, recolour = view
    out = np.empty((rows.length, columns.length, 3), dtype=np.float32) if out is None else out
    fast = mode == "fast" and jpeg.is_jpeg(encoded)
    shrink = find_largest_shrink(rows, columns) if fast else 1
    if shrink > 1:
        height, width = jpeg.read_dimensions(encoded)
        rows = shrink_axis(rows, shrink, -(-height // shrink))
        columns = shrink_axis(columns, shrink, -(-width // shrink))
    # decode_view can normalise, too, but a change of colours has to come first.
    normalisation_rows = (
        make_normalisation_rows(normalise_like, columns.length) if normalise_like and not recolour else None
    )
    options: dict[str, Any] = {"shrink": shrink, "fancy_upsampling": fancy_upsampling}
    if region.decode_view(encoded, rows, columns, out, **options, normalisation=normalisation_rows):
        return out if normalisation_rows else recolour_and_normalise(out, recolour, normalise_like)
    pixels = jpeg.decode(encoded, **options)
    return recolour_and_normalise(resample(pixels, rows, columns, out), recolour, normalise_like)


def recolour_and_normalise(image: Floats, recolour: Recolour | None, normalise_like: str | None) -> Floats:
    """Change colours and normalise as the reference `normalise_like` does, in place; None skips either."""
    if recolour:
        image = recolour(image)
    return normalise(normalise_like, image) if normalise_like else image


@cache
def make_normalisation_rows(name: str, width: int) -> region.NormalisationRows:
    """Return -mean and scale, repeated for each pixel of a row: numpy adds a row ten times as fast as three numbers."""
    mean, scale = get_normalisation(name)
    return np.tile(-mean, width), np.tile(scale, width)


class CallableModule(ModuleType):
    """Module that can be called, because `viaduct.data.preprocess` must be both this module and its function."""

    __call__ = staticmethod(preprocess)


sys.modules[__name__].__class__ = CallableModule
