"""MobileNetV2 (Sandler et al., https://arxiv.org/abs/1801.04381), padded as torchvision's.

Its blocks are inverted residuals: a 1x1 convolution to six times the channels (the first block has none), a depthwise
3x3 convolution with the stride, and a 1x1 convolution back without an activation. Channels are scaled by
`width` and rounded to multiples of 8; the 1280 channels of the last convolution are never scaled down. Activations are
ReLU6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from viaduct.models.family import Family
from viaduct.models.initialisers import build_initialiser
from viaduct.models.resnet import at_least_float32

# Expansion, channels, blocks and stride of each stage (table 2 of the paper).
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
STEM_CHANNELS, LAST_CHANNELS = 32, 1280


def round_channels(channels: float) -> int:
    """Return the nearest multiple of 8, or the next one if that would lose more than a tenth of the channels."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class ConvNormAct(nn.Sequential):
    """Convolution padded evenly, batch norm and ReLU6."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.activation = nn.ReLU6(inplace=True)


class InvertedResidual(nn.Module):
    """Expand the channels, filter each of them, project them; the input is added if the output has the same shape."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expand = ConvNormAct(inputs, width, 1) if expansion > 1 else nn.Identity()
        self.filter = ConvNormAct(width, width, 3, stride, groups=width)
        self.project = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.adds_input = stride == 1 and inputs == outputs

    def forward(self, x_NCHW: Tensor) -> Tensor:
        branch: Tensor = self.norm(self.project(self.filter(self.expand(x_NCHW))))
        return x_NCHW + branch if self.adds_input else branch


class MobileNetV2(nn.Module):
    """Stem, inverted residuals, a last 1x1 convolution, mean over the image, dropout, classifier."""

    def __init__(self, classes: int, *, width: float = 1.0, dropout: float = 0.2) -> None:
        super().__init__()
        channels = round_channels(STEM_CHANNELS * width)
        self.stem = ConvNormAct(3, channels, 3, stride=2)
        self.stages = nn.Sequential()
        for expansion, filters, count, stride in STAGES:
            outputs = round_channels(filters * width)
            blocks = nn.Sequential()
            for index in range(count):
                blocks.append(InvertedResidual(channels, outputs, stride if index == 0 else 1, expansion))
                channels = outputs
            self.stages.append(blocks)
        last = round_channels(LAST_CHANNELS * max(1.0, width))
        self.last = ConvNormAct(channels, last, 1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(last, classes)
        # As in torchvision: Kaiming's normal over the fan-out, and for the classifier a deviation of 0.01.
        kaiming, narrow = partial(nn.init.kaiming_normal_, mode="fan_out"), partial(nn.init.normal_, std=0.01)
        self.apply(build_initialiser(kaiming, narrow))

    def forward(self, images_NCHW: Tensor) -> Tensor:
        features = self.last(self.stages(self.stem(images_NCHW)))
        return at_least_float32(self.head(self.dropout(features.mean((2, 3)))))


def name_for_torchvision(model: nn.Module) -> dict[str, str]:
    """Return torchvision's name of each tensor; empty for another network."""
    if not isinstance(model, MobileNetV2):
        return {}
    blocks = [name for name, module in model.named_modules() if isinstance(module, InvertedResidual)]
    names = {"stem": "features.0", "last": f"features.{len(blocks) + 1}", "head": "classifier.1"}
    for number, name in enumerate(blocks, start=1):
        depthwise = 0 if name == "stages.0.0" else 1  # the first block has no expansion
        prefix = f"features.{number}.conv"
        names |= {f"{name}.expand": f"{prefix}.0", f"{name}.filter": f"{prefix}.{depthwise}"}
        names |= {f"{name}.project": f"{prefix}.{depthwise + 1}", f"{name}.norm": f"{prefix}.{depthwise + 2}"}
    return {name: rename_tensor(name, names) for name in model.state_dict()}


def rename_tensor(name: str, names: dict[str, str]) -> str:
    """Return torchvision's name of a tensor; `names` maps our modules to torchvision's."""
    module = max((path for path in names if name.startswith(path + ".")), key=len)
    layer, _, leaf = name.removeprefix(module + ".").rpartition(".")
    number = {"conv": "0.", "norm": "1.", "": ""}[layer]  # torchvision numbers the layers of a ConvNormAct
    return f"{names[module]}.{number}{leaf}"


variants: dict[str, Callable[..., nn.Module]] = {
    "mobilenet_v2": partial(MobileNetV2),
    "mobilenet_v2_140": partial(MobileNetV2, width=1.4),
}
family = Family(
    variants,
    classes=1000,
    preprocess="v15",
    torchvision_names=name_for_torchvision,
    peers={"mobilenet_v2": "mobilenet_v2"},
)
