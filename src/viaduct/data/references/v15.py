"""ResNet-50 v1.5: crops that cover a part of an object, chroma repeated by the decoder, channels standardised."""

from viaduct.data.geometry import CropSampler
from viaduct.data.views import Preprocessing, resize_shorter_side_then_crop

preprocessing = Preprocessing(
    evaluation=resize_shorter_side_then_crop,
    sampler=CropSampler(ratio=(0.75, 1.33), area=(0.05, 1.0), uses_boxes=True),
    mean=(123.68, 116.28, 103.53),
    scale=(1 / 58.395, 1 / 57.12, 1 / 57.385),
    fancy_upsampling=False,
    fancy_upsampling_in_training=False,
)
