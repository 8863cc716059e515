"""Training images of records, several at a time: from the file to the pixels in one call that lets other threads run.

    crops = crops_of(records, folder, normalised=False)     None: see each image by itself (no extension, loose
                                                            files, auto_augment, increased_aug)
    seen = crops.see(numbers, positions, seed, epoch, out)  bool for each: True where `out` has it, bit for bit what
                                                            `preprocess.see` makes of it; see the others by themselves

One by one Python needs 90 µs an image (`official`) in which no other thread of it can run: 16 of them, with sleeps of
0.85 ms in place of decoding, came to 5,700 images/s of the 18,800 that such a sleep allows; with this call to 17,400.
Whatever is odd or damaged is left to the usual way, which knows what to say of it, and so are crops that `fast` would
shrink.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from viaduct.data import region
from viaduct.data.geometry import SAMPLERS
from viaduct.data.index import RecordFolder
from viaduct.data.order import WORD
from viaduct.data.preprocess import amoebanet_colour, named, normal_lines, resnext_colour
from viaduct.data.records import Folder, Records
from viaduct.data.tfrecord import HEADER
from viaduct.errors import BadData

Floats = npt.NDArray[np.float32]
Int64s = npt.NDArray[np.int64]
Seen = npt.NDArray[np.bool_]
COLOURS: dict[object, int] = {None: 0, resnext_colour: 1, amoebanet_colour: 2}  # as _recolour.h counts them


class Crops:
    """Random crops of the records of a folder, as one network sees them in training."""

    def __init__(self, compiled: Callable[..., None], folder: RecordFolder, records: Records, normalised: bool) -> None:
        network, size, fast = records.preprocess, records.size, records.decode == "fast"
        sampler, reference = SAMPLERS[network], named(network)
        self._compiled, self._folder, self._size = compiled, folder, size
        self._large = 2 * size if fast else 0  # from here on both directions have two pixels for each that is seen
        self._starts = np.array(folder.starts)
        self._fancy = reference.fancy_upsampling[True] and not fast
        self._lines: region.Lines | tuple[None, None] = normal_lines(network, size) if normalised else (None, None)
        drawn = (*sampler.ratio, *sampler.area, sampler.least_covered, sampler.attempts, sampler.uses_boxes)
        self._sampler = np.array([*drawn, sampler.frame or 0], dtype=np.float64)
        self._mirrors_before = reference.mirrors_before_resize
        self._colours = COLOURS[None if records.increased_aug == "off" else reference.recolour]

    def see(self, numbers: Int64s, positions: Int64s, seed: int, epoch: int, out: Floats) -> Seen:
        folder, seen = self._folder, np.zeros(len(numbers), dtype=np.bool_)
        files = (np.searchsorted(self._starts, numbers, side="right") - 1).tolist()
        try:
            handles = [folder.handle(file) for file in files]  # held until they have been read
        except BadData:  # a file that cannot be opened; which record wants it is told in the usual way
            return seen
        wanted = np.empty((len(numbers), 4), dtype=np.int64)
        wanted[:, 0] = [handle.descriptor for handle in handles]
        np.add(folder.offsets[numbers], HEADER.size, out=wanted[:, 1])
        wanted[:, 2] = folder.lengths[numbers]
        wanted[:, 3] = positions
        chance = seed & WORD, epoch & WORD
        how = folder.check, self._size, self._large, self._fancy, self._mirrors_before, self._colours
        self._compiled(wanted, self._sampler, *chance, *how, *self._lines, out, seen)
        return seen


def crops_of(records: Records, folder: Folder, *, normalised: bool) -> Crops | None:
    """What sees the training images of this folder, where it can be done in one call."""
    compiled = region.compiled("see_crops")
    if compiled is None or records.auto_augment or records.increased_aug == "on":
        return None
    if not isinstance(folder, RecordFolder) or named(records.preprocess).views:
        return None
    return Crops(compiled, folder, records, normalised)
