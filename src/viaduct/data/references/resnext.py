"""ResNeXt-50: crops drawn in a square of 280 pixels; random brightness, contrast and saturation.

Evaluation cuts the centre as `tf.image.crop_and_resize` does.
"""

from viaduct.data.colour import draw_saturation_change
from viaduct.data.geometry import CropSampler
from viaduct.data.views import Preprocessing, crop_central_four_fifths

preprocessing = Preprocessing(
    evaluation=crop_central_four_fifths,
    sampler=CropSampler(ratio=(3 / 4, 4 / 3), area=(0.08, 1.0), frame=280),
    mean=(121.0, 115.0, 100.0),
    scale=(1 / 70, 1 / 68, 1 / 71),
    fancy_upsampling=False,
    mirrors_before_resize=False,
    recolour=draw_saturation_change,
)
