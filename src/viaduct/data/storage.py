"""Where the images of a split lie, and how a batch of them is cut out there.

`Resident` keeps them, padded, on the device; `Streamed` leaves them where they are in host memory, which may
be a memory-mapped file, and touches only those of a batch. Both cut the same pixels.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from viaduct.data.augment import Crop, Row, zero_pad
from viaduct.data.source import Images, Pixels


class Storage(Protocol):
    """Store of a split's images, from which batches are cut."""

    def cut(self, plan: Tensor) -> Tensor:
        """Return uint8 NHWC images of a slice of a plan that lies on the same device."""


class Resident:
    """Store of all images on the device, padded once."""

    def __init__(self, images: Pixels, pad: int, crop: Crop | None, device: torch.device) -> None:
        # torch shares memory with writable arrays only
        shared = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        self.padded = zero_pad(shared.to(device), pad)
        self.crop = crop

    def cut(self, plan: Tensor) -> Tensor:
        index = plan[Row.INDEX]
        return self.crop(self.padded, index, plan) if self.crop else self.padded.index_select(0, index)


class Streamed:
    """Store of all images in host memory; those of a batch are padded when they are needed."""

    def __init__(self, images: Pixels, pad: int, crop: Crop | None, pinned: bool) -> None:
        self.images = images
        self.pad = pad
        self.crop = crop
        self.pinned = pinned

    def cut(self, plan: Tensor) -> Tensor:
        batch = torch.from_numpy(self.images[plan[Row.INDEX].numpy()])
        if self.crop:
            batch = self.crop(zero_pad(batch, self.pad), torch.arange(len(batch)), plan)
        return batch.pin_memory() if self.pinned else batch


def store(pixels: Pixels, source: Images, *, train: bool, device: torch.device, resident_limit: int) -> Storage:
    """Put images on the device if they fit into `resident_limit` bytes with padding, otherwise into host memory."""
    pad = source.pad if train else 0
    count, height, width, channels = pixels.shape
    resident = count * (height + 2 * pad) * (width + 2 * pad) * channels <= resident_limit
    where = device if resident else torch.device("cpu")
    crop = Crop(height, width, pad, where) if train and (pad or source.flip) else None
    if resident:
        return Resident(pixels, pad, crop, device)
    return Streamed(pixels, pad, crop, pinned=device.type == "cuda")
