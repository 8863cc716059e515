"""Small packages in the place of timm and torchvision: their functions for making networks, with tiny networks."""

from __future__ import annotations

from pathlib import Path

NETWORKS = '''
from torch import nn


class Tiny(nn.Module):
    """A convolution, a norm, dropout, and a classifier called `fc`."""

    def __init__(self, num_classes=1000, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(self.drop(self.bn1(self.conv1(x)).relu().mean((2, 3))))


class Attentive(nn.Module):
    """A patch embedding, one block of attention and a classifier within `head`."""

    def __init__(self, num_classes=1000, width=16):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, 8, 8)
        self.block = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.1, batch_first=True)
        self.head = nn.Sequential()
        self.head.norm = nn.LayerNorm(width)
        self.head.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2)
        return self.head.fc(self.head.norm(self.block(tokens).mean(1)))
'''
TIMM = """
from types import SimpleNamespace

from torch import nn

from stand_in_networks import Attentive, Tiny

MODELS = {"tiny_conv": Tiny, "tiny_vit": Attentive, "tiny_vit_32": Attentive}


def list_models(filter=""):
    return sorted(MODELS) + ["headless"]


def list_pretrained(filter=""):
    return ["tiny_vit.first_in1k"]


def is_model(name):
    return name.partition(".")[0] in list_models()


def create_model(name, pretrained=False, num_classes=1000):
    assert not pretrained
    return nn.Sequential(nn.Conv2d(3, 4, 1)) if name == "headless" else MODELS[name](num_classes)


def get_pretrained_cfg(name):
    if name == "headless":
        return None
    mean, std = (0.5, 0.5, 0.5), (0.5, 0.25, 0.5)
    return SimpleNamespace(input_size=(3, 32, 32), interpolation="bicubic", crop_pct=0.9, mean=mean, std=std)
"""
TORCHVISION = """
from enum import Enum
from types import SimpleNamespace

from stand_in_networks import Tiny


class InterpolationMode(Enum):
    BILINEAR = "bilinear"


def list_models(module=None):
    return ["tiny"] + ([] if module is not None else ["detector"])


def get_model(name, weights=None, num_classes=1000):
    assert weights is None and name == "tiny"
    return Tiny(num_classes)


def get_model_weights(name):
    settings = SimpleNamespace(
        crop_size=[64], resize_size=[72], mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225],
        interpolation=InterpolationMode.BILINEAR,
    )
    return SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: settings))
"""


def write_packages(folder: Path) -> Path:
    """Write the packages into a folder that a test puts on sys.path."""
    (folder / "timm").mkdir(parents=True)
    (folder / "torchvision").mkdir()
    (folder / "stand_in_networks.py").write_text(NETWORKS)
    (folder / "timm" / "__init__.py").write_text(TIMM)
    (folder / "torchvision" / "__init__.py").write_text("from torchvision import models\n")
    (folder / "torchvision" / "models.py").write_text(TORCHVISION)
    return folder
