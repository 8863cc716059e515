"""Where the pictures of a split lie, and how a batch of them is cut out there.

`Resident` keeps them, padded, on the device; `Streamed` leaves them where they are in host memory, which may
be a memory-mapped file, and touches only those of a batch. Both cut the same pixels.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from viaduct.data.augment import Crop, Row, zero_pad
from viaduct.data.source import Images, Pictures


class Storage(Protocol):
    def cut(self, plan: Tensor) -> Tensor:
        """uint8 NHWC pictures of a slice of a plan that lies on the same device."""


class Resident:
    """All pictures on the device, padded once."""

    def __init__(self, pictures: Pictures, pad: int, crop: Crop | None, device: torch.device) -> None:
        # torch shares memory with writable arrays only
        shared = torch.from_numpy(np.require(pictures, requirements=["C", "W"]))
        self.padded = zero_pad(shared.to(device), pad)
        self.crop = crop

    def cut(self, plan: Tensor) -> Tensor:
        index = plan[Row.INDEX]
        return self.crop(self.padded, index, plan) if self.crop else self.padded.index_select(0, index)


class Streamed:
    """All pictures in host memory; those of a batch are padded when they are needed."""

    def __init__(self, pictures: Pictures, pad: int, crop: Crop | None, pinned: bool) -> None:
        self.pictures = pictures
        self.pad = pad
        self.crop = crop
        self.pinned = pinned

    def cut(self, plan: Tensor) -> Tensor:
        batch = torch.from_numpy(self.pictures[plan[Row.INDEX].numpy()])
        if self.crop:
            batch = self.crop(zero_pad(batch, self.pad), torch.arange(len(batch)), plan)
        return batch.pin_memory() if self.pinned else batch


def store(pictures: Pictures, images: Images, *, train: bool, device: torch.device, resident_limit: int) -> Storage:
    """On the device if they fit into `resident_limit` bytes, padding included; in host memory otherwise."""
    pad = images.pad if train else 0
    count, height, width, channels = pictures.shape
    resident = count * (height + 2 * pad) * (width + 2 * pad) * channels <= resident_limit
    where = device if resident else torch.device("cpu")
    crop = Crop(height, width, pad, where) if train and (pad or images.flip) else None
    if resident:
        return Resident(pictures, pad, crop, device)
    return Streamed(pictures, pad, crop, pinned=device.type == "cuda")
