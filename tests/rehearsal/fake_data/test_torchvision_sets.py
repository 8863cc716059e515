"""Image sets of torchvision that are missing are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from rehearsal.rehearsing import rehearse_script
from viaduct.rehearsal.fake_data import torchvision_sets

IMAGES = """\
import sys
import torch
from torchvision import datasets, transforms

to_tensor = transforms.ToTensor()
digits = datasets.MNIST(sys.argv[1], True, to_tensor, download=True)
folder = datasets.ImageFolder(sys.argv[1] + "/train", to_tensor)
assert isinstance(digits, datasets.MNIST)
print(len(digits), tuple(digits[0][0].shape), tuple(folder[0][0].shape), len(digits.class_to_idx))
"""


def test_sets_of_torchvision_that_are_missing_are_made_up(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    words = ("--on", "original", "--steps", "0", "--fake-data", "--", str(tmp_path / "nowhere"))
    answer = rehearse_script(tmp_path, IMAGES, *words)
    assert answer.stdout == "512 (1, 28, 28) (3, 256, 256) 10\n", answer.stderr
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["MNIST", "CIFAR10"])
def test_a_made_up_set_holds_its_images_as_the_real_one_does(name: str) -> None:
    images: Any = torchvision_sets.make_fake_class(object)()
    images.make_up(torchvision_sets.KNOWN_SETS[name], {})
    image, label = images[3]
    assert numpy.array_equal(numpy.asarray(image), numpy.asarray(images.data[3]))
    assert label == int(images.targets[3]) == 3
    assert isinstance(images.targets, torch.Tensor if name == "MNIST" else list)
    assert images.data.shape == ((512, 28, 28) if name == "MNIST" else (512, 32, 32, 3))
