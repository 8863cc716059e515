"""Evaluation preprocessing of encoded images as TensorFlow operators."""

from __future__ import annotations

from typing import Any

from viaduct.data.preprocess import find_preprocessing, get_normalisation
from viaduct.data.records import Records
from viaduct.data.source import Images
from viaduct.data.views import crop_central_four_fifths, crop_central_seven_eighths
from viaduct.errors import BadValue
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.pixels import refuse_pillow_views
from viaduct.handover.exporting.tf_network import import_tensorflow


def prepare_encoded(classifier: Classifier, encoded: Any) -> Any:
    """Convert a string tensor of N encoded images to the network's input, float32 N x size x size x 3."""
    tf = import_tensorflow()
    source, size = classifier.recipe.data, classifier.size
    if isinstance(source, Records):
        prepared = tf.map_fn(lambda data: prepare_record(tf, source, data), encoded, fn_output_signature=tf.float32)
    elif isinstance(source, Images):
        shape = (*(classifier.fixed_image_shape or (size, size)), 3)
        # The recipe's own images are arrays of one size; the graph accepts only JPEGs and PNGs of that size.
        prepared = tf.map_fn(
            lambda data: tf.ensure_shape(tf.image.decode_jpeg(data, channels=3), shape),
            encoded,
            fn_output_signature=tf.uint8,
        )
        prepared = normalise_images(tf, source, prepared)
    else:
        raise BadValue(f"images of a {type(source).__name__} recipe cannot be prepared one by one.")
    return tf.ensure_shape(prepared, (None, size, size, 3))


def prepare_record(tf: Any, source: Records, data: Any) -> Any:
    """Decode, crop, resize and normalise one image."""
    refuse_pillow_views(source)
    preprocessing = find_preprocessing(source.preprocess)
    fancy = preprocessing.fancy_upsampling
    pixels = tf.cast(tf.image.decode_jpeg(data, channels=3, fancy_upscaling=fancy), tf.float32)
    mean, scale = get_normalisation(source.preprocess)
    cropped = CROPS.get(preprocessing.evaluation, crop_after_resize)(tf, pixels, source.size)
    return (cropped - mean) * scale


def crop_after_resize(tf: Any, pixels: Any, size: int) -> Any:
    """Resize the shorter side to 8/7 of the size, keeping the aspect ratio; crop the centre."""
    height, width = tf.unstack(tf.shape(pixels)[:2])
    factor = tf.cast(size * 8 // 7, tf.float32) / tf.cast(tf.minimum(height, width), tf.float32)
    sides = [tf.maximum(tf.cast(tf.cast(side, tf.float32) * factor, tf.int32), size) for side in (height, width)]
    resized = tf.compat.v1.image.resize_bilinear(pixels[None], tf.stack(sides), align_corners=False)[0]
    top, left = ((side - size) // 2 for side in sides)
    return tf.slice(resized, tf.stack([top, left, 0]), [size, size, 3])


def crop_middle_box(tf: Any, pixels: Any, size: int) -> Any:
    """Resize the central four fifths of each side; the outermost pixels of the result lie on the edges of this box."""
    box = [[(1 - 0.8) / 2, (1 - 0.8) / 2, (1 + 0.8) / 2, (1 + 0.8) / 2]]
    return tf.image.crop_and_resize(pixels[None], box, [0], [size, size])[0]


def crop_before_resize(tf: Any, pixels: Any, size: int) -> Any:
    """Crop the central seven eighths, then resize."""
    height, width = tf.unstack(tf.shape(pixels)[:2])
    top, left = height // 16, width // 16
    middle = tf.slice(pixels, tf.stack([top, left, 0]), tf.stack([height - 2 * top, width - 2 * left, 3]))
    return tf.compat.v1.image.resize_bilinear(middle[None], [size, size], align_corners=False)[0]


CROPS: dict[Any, Any] = {crop_central_four_fifths: crop_middle_box, crop_central_seven_eighths: crop_before_resize}
"""Crop functions by `Preprocessing.evaluation`, whose crop they reproduce; for others it is `crop_after_resize`."""


def normalise_images(tf: Any, source: Images, pixels: Any) -> Any:
    """Normalise images of equal size and resize them to the network's input."""
    values = tf.cast(pixels, tf.float32)
    if source.normalise == "per_image":
        count = int(values.shape[1] * values.shape[2] * 3)
        integers = tf.cast(pixels, tf.int64)
        total = tf.reduce_sum(integers, [1, 2, 3], keepdims=True)
        squares = tf.reduce_sum(integers * integers, [1, 2, 3], keepdims=True)
        variance = tf.cast(count * squares - total * total, tf.float32) / float(count**2)
        mean, scale = tf.cast(total, tf.float32) / count, tf.math.rsqrt(tf.maximum(variance, 1 / count))
    else:
        mean, scale = (list(per_channel) for per_channel in source.get_normalisation())
    values = (values - mean) * scale
    if tuple(values.shape[1:3]) == (source.size, source.size):
        return values
    return tf.compat.v1.image.resize_bilinear(values, [source.size, source.size], half_pixel_centers=True)
