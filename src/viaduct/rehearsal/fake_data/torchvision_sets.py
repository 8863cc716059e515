"""Synthetic images for torchvision datasets that cannot be opened, for example because their files are missing.

Some datasets of a known image size and number of classes are replaced, and folders of images (ImageFolder, ImageNet) by
images of a usual size. The script's transforms run on the synthetic images. Objects of the script's own subclasses
become plain synthetic datasets too; other dataset classes of the script are not replaced.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from viaduct.rehearsal.fake_data import print_note
from viaduct.rehearsal.wrapping import wrap

IMAGE_COUNT = 512  # images of a synthetic dataset
MAX_SIDE_IN_MEMORY = 32  # pixels; torchvision's datasets of images up to this size hold all of them in memory


class ImageSet(NamedTuple):
    """Size of a dataset's images, and its number of classes."""

    height: int
    width: int
    channels: int
    classes: int


KNOWN_SETS = {
    "CIFAR10": ImageSet(32, 32, 3, 10),
    "CIFAR100": ImageSet(32, 32, 3, 100),
    "MNIST": ImageSet(28, 28, 1, 10),
    "FashionMNIST": ImageSet(28, 28, 1, 10),
    "KMNIST": ImageSet(28, 28, 1, 10),
    "ImageFolder": ImageSet(256, 256, 3, 2),
    "ImageNet": ImageSet(256, 256, 3, 1000),
    "STL10": ImageSet(96, 96, 3, 10),
}


def install() -> None:
    """Wrap the datasets' constructors; do nothing where torchvision cannot be imported."""
    try:
        from torchvision import datasets
    except (ImportError, RuntimeError):
        return
    for name, image_set in KNOWN_SETS.items():
        if (kind := getattr(datasets, name, None)) is not None:
            wrap_init(kind, image_set)


def wrap_init(kind: Any, image_set: ImageSet) -> None:
    """Wrap a dataset's constructor so that it falls back to synthetic images."""
    signature, fake_class = inspect.signature(kind.__init__), make_fake_class(kind)

    @wrap(kind, "__init__")
    def init(plain: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        if "download" in bound.arguments:
            bound.arguments["download"] = False  # with --fake-data nothing is downloaded
        try:
            plain(*bound.args, **bound.kwargs)
        except (FileNotFoundError, RuntimeError) as error:
            root = bound.arguments.get("root")
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            print_note(f"{type(self).__name__} of {root}: {reason}; {IMAGE_COUNT} images are made up.")
            self.__class__ = fake_class
            self.make_up(image_set, bound.arguments)


def make_fake_class(kind: type) -> type:
    """Return a subclass whose images are computed from their index."""

    class MadeUp(kind):  # type: ignore[misc]
        image_set: ImageSet
        class_to_idx: ClassVar[dict[str, int]] = {}  # hides the property of some datasets, which cannot be assigned

        def make_up(self, image_set: ImageSet, arguments: Mapping[str, Any]) -> None:
            self.image_set = image_set
            self.transform, self.target_transform = arguments.get("transform"), arguments.get("target_transform")
            self.classes = [str(number) for number in range(image_set.classes)]
            self.__dict__["class_to_idx"] = {name: number for number, name in enumerate(self.classes)}
            self.targets: Any = [number % image_set.classes for number in range(IMAGE_COUNT)]
            self.__dict__.update(make_arrays(image_set, self.targets))

        def __len__(self) -> int:
            return IMAGE_COUNT

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            image, label = make_image(index, self.image_set), int(self.targets[index])
            if self.transform is not None:
                image = self.transform(image)
            return image, self.target_transform(label) if self.target_transform else label

    MadeUp.__name__ = MadeUp.__qualname__ = kind.__name__
    return MadeUp


def make_arrays(image_set: ImageSet, labels: list[int]) -> dict[str, Any]:
    """Return the attributes in which small datasets hold all their images: tensors for MNIST, arrays for CIFAR."""
    if image_set.height > MAX_SIDE_IN_MEMORY:
        return {}
    pixels = np.stack([make_pixels(index, image_set) for index in range(IMAGE_COUNT)])
    if image_set.channels > 1:
        return {"data": pixels}
    import torch

    return {"data": torch.from_numpy(pixels[..., 0]), "targets": torch.tensor(labels)}


def make_pixels(index: int, image_set: ImageSet) -> Any:
    return np.random.default_rng(index).integers(0, 256, image_set[:3], np.uint8)


def make_image(index: int, image_set: ImageSet) -> Any:
    """Return a random image, the same for the same index; raise IndexError beyond the last."""
    from PIL import Image

    if not 0 <= index < IMAGE_COUNT:
        raise IndexError(index)
    pixels = make_pixels(index, image_set)
    return Image.fromarray(pixels if image_set.channels == 3 else pixels[..., 0])
