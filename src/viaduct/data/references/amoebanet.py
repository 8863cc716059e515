"""AmoebaNet-D: crops drawn without regard to objects' boxes, random brightness and chroma, pixels scaled to -1..1."""

from viaduct.data.colour import draw_chroma_change
from viaduct.data.geometry import CropSampler
from viaduct.data.views import Preprocessing, crop_central_seven_eighths

preprocessing = Preprocessing(
    evaluation=crop_central_seven_eighths,
    sampler=CropSampler(ratio=(3 / 4, 4 / 3), area=(0.1, 1.0)),
    mean=(127.5, 127.5, 127.5),
    scale=(1 / 127.5, 1 / 127.5, 1 / 127.5),
    mirrors_before_resize=False,
    recolour=draw_chroma_change,
)
