"""TensorFlow's official ResNet: crops that cover a part of an object; the mean is subtracted, without scaling."""

from viaduct.data.geometry import CropSampler
from viaduct.data.views import Preprocessing, resize_shorter_side_then_crop

preprocessing = Preprocessing(
    evaluation=resize_shorter_side_then_crop,
    sampler=CropSampler(ratio=(0.75, 1.33), area=(0.05, 1.0), uses_boxes=True),
    mean=(123.68, 116.78, 103.94),
    scale=(1.0, 1.0, 1.0),
)
