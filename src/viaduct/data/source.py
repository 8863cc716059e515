"""The part of a recipe that describes its images (`data`), and the arrays that it loads.

    source = Cifar10(global_batch=128, size=32, pad=4, flip=True)     in a recipe: typed, frozen, no paths
    image_set = source.load(Path("cifar/"))                           an `ImageSet`, read when the run starts
    image_set.train.images, image_set.train.labels                    uint8 NHWC and int64

Importing this module does not import torch, so that recipes can be listed without it; the batches need torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from viaduct.data.auto_augment import find_policy
from viaduct.errors import BadData, BadValue
from viaduct.typed_fields import check_fields

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Colour = tuple[float, float, float]  # red, green, blue
# Types of fields with bounds; `check_fields` checks them.
Count: TypeAlias = Annotated[int, Ge(0)]
PositiveCount: TypeAlias = Annotated[int, Ge(1)]


@dataclass(frozen=True, eq=False)
class Split:
    """Images of one split, uint8 NHWC with three channels, and their int64 labels."""

    images: Pixels
    labels: Labels

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[-1] != 3:
            actual = f"{self.images.dtype} of shape {self.images.shape}"
            raise BadData(f"the images of a split must be uint8 of shape (N, H, W, 3), found {actual}.")
        if self.labels.dtype != np.int64 or self.labels.shape != self.images.shape[:1]:
            actual = f"{self.labels.dtype} of shape {self.labels.shape}"
            raise BadData(f"{len(self)} images need int64 labels of shape ({len(self)},), found {actual}.")

    def __len__(self) -> int:
        return len(self.images)

    def read_image(self, index: int) -> Pixels:
        """Return one image for display, uint8 HWC."""
        image: Pixels = self.images[index]
        return image


class DatasetSplit(Protocol):
    """Interface of a split, in memory or in files."""

    @property
    def labels(self) -> Labels: ...
    def read_image(self, index: int) -> Pixels:
        """Return one image for display, uint8 HWC."""

    def __len__(self) -> int: ...


class Dataset(Protocol):
    """Interface of the data of a run: two splits, and the class names in label order."""

    @property
    def train(self) -> DatasetSplit: ...
    @property
    def validation(self) -> DatasetSplit: ...
    @property
    def names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A `Dataset` in memory."""

    train: Split
    validation: Split
    names: tuple[str, ...]


@dataclass(frozen=True)
class Source(ABC):
    """Base of every source of images. Batch sizes are global: all ranks together."""

    name: ClassVar[str]
    class_names: ClassVar[tuple[str, ...]] = ()  # by label; empty if they are only known when the data are read
    needs_path: ClassVar[bool] = False  # --data must be given
    takes_path: ClassVar[bool] = True  # --data may be given
    how_to_get: ClassVar[str] = ""  # hint for users without the data

    global_batch: PositiveCount
    size: PositiveCount  # side of the network's square input
    classes: PositiveCount = 10
    eval_batch: Count = 0  # global batch size of evaluation; 0: the same as global_batch
    workers: Count = 1  # threads that prepare batches in host memory; 0: the training thread does
    prefetch: PositiveCount = 2  # batches prepared ahead by these threads
    # In training: 0 uses classes as often as they are in the data, 1 uses all equally often (balance.py).
    balance: Annotated[float, Ge(0), Le(1)] = 0.0
    auto_augment: str = ""  # in training: imagenet, cifar10, randaugment or randaugment-N-M (auto_augment.py)

    def __post_init__(self) -> None:
        check_fields(self, "data")
        find_policy(self.auto_augment)  # raises if there is no such policy

    def get_batch_size(self, train: bool) -> int:
        """Return the global batch size of training or evaluation."""
        return self.global_batch if train else self.eval_batch or self.global_batch

    @property
    def usual_image_count(self) -> int:
        """Number of training images of the full set, for noise and other uses without data; here that of CIFAR-10."""
        return 50_000

    def read_label_names(self, path: Path | None) -> dict[int, str]:
        """Return the class names by label, from the source or the data at a path; empty if neither has them."""
        return dict(enumerate(self.class_names))

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width of the images as they are stored; None if the source does not know them."""
        return None

    def get_normalisation(self) -> tuple[Colour, Colour]:
        """Return mean and scale: the network's input is (byte - mean) * scale.

        This base class returns the mean of TensorFlow's synthetic images and 1 / their standard deviation.
        """
        return (127.0, 127.0, 127.0), (1 / 60, 1 / 60, 1 / 60)

    def open_images(self, path: Path | None) -> Dataset:
        """Open the images at a path; if the path is `synthetic`, return noise instead (synthetic.py)."""
        from viaduct.data.synthetic import SYNTHETIC, SyntheticSet

        return SyntheticSet(self) if path == SYNTHETIC else self.load(path)

    def open_batches(self, split: Any, *, device: Any, train: bool, seed: int, share: Any = None) -> Any:
        """Return the batches of a split that `open_images` returned."""
        from viaduct.data.synthetic import SyntheticSplit

        if not isinstance(split, SyntheticSplit):
            return self.batches(split, device=device, train=train, seed=seed, share=share)
        from viaduct.data.batches import WHOLE_BATCH
        from viaduct.data.synthetic_batches import SyntheticBatches  # torch is imported here

        return SyntheticBatches(split, device=device, train=train, share=share or WHOLE_BATCH)

    def check_path(self, path: Path) -> None:  # noqa: B027  # sources without files need none
        """Raise BadData if the kinds, names or sizes of the files at a path show that `load` would refuse it.

        No image is read. This base class accepts every path.
        """

    @abstractmethod
    def load(self, path: Path | None) -> Dataset:
        """Read the images from the path given with --data; a path is required if `needs_path` is True."""

    @abstractmethod
    def batches(self, split: Any, *, device: Any, train: bool, seed: int, share: Any = None) -> Any:
        """Return a `viaduct.data.batches.BatchStream` of a split that `load` returned.

        `share` is a `viaduct.data.batches.RankShare`, the part of each batch for this rank; None means whole batches.
        """


@dataclass(frozen=True)
class Images(Source):
    """Images in arrays, augmented batch by batch: on the device if they fit, otherwise in host memory."""

    # Sizes are pixels of the stored images, which may be resized to `size` afterwards.
    pad: Count = 0  # in training: zero-pad by this many pixels, then crop back at random
    flip: bool = False  # in training: mirror left and right with probability 1/2
    cutout: Count = 0  # in training: side of a square hole of the mean colour
    normalise: Literal["mean_std", "per_image"] = "mean_std"
    mean: Colour = (0.5, 0.5, 0.5)  # on the 0..1 scale
    std: Colour = (0.25, 0.25, 0.25)

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.std) <= 0:  # checked here: subclasses annotate the field again, which would drop a bound
            raise BadValue(f"std must be greater than zero in every channel, got {self.std!r}.")

    def get_normalisation(self) -> tuple[Colour, Colour]:
        if self.normalise == "per_image":
            return super().get_normalisation()  # a stand-in: training computes mean and scale of each image
        red, green, blue = (255 * mean for mean in self.mean)
        return (red, green, blue), (1 / (255 * self.std[0]), 1 / (255 * self.std[1]), 1 / (255 * self.std[2]))

    @abstractmethod
    def load(self, path: Path | None) -> ImageSet: ...

    def batches(self, split: Split, *, device: Any, train: bool, seed: int, share: Any = None) -> Any:
        from viaduct.data.batches import WHOLE_BATCH, Batches  # torch is imported here, not when recipes are listed

        return Batches(split, self, device=device, train=train, seed=seed, share=share or WHOLE_BATCH)


@dataclass(frozen=True)
class Arrays(Images):
    """Your own images: `make` is a function from the --data folder (or None) to an `ImageSet`."""

    name: ClassVar[str] = "arrays"

    make: Callable[[Path | None], ImageSet] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.make):
            raise BadValue(f"make must be a function from a folder to an ImageSet, got {self.make!r}.")

    def load(self, path: Path | None) -> ImageSet:
        assert self.make is not None
        images = self.make(path)
        if not isinstance(images, ImageSet):
            raise BadValue(f"make must return an ImageSet, got a {type(images).__name__}.")
        return images
