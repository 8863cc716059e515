"""Training images of records, several at a time: from the file to the pixels in one call that lets other threads run.

    crops = find_crops(records, folder, normalised=False)         None: prepare each image by itself (no extension, no
                                                                  TFRecords, a network of another package,
                                                                  auto_augment, increased_aug=on)
    done = crops.prepare(numbers, positions, seed, epoch, out)    True for each image that is in `out`, bit for bit
                                                                  what `preprocess.prepare_image` returns

The images that are not done are prepared by themselves. One by one, Python holds its global lock for 90 µs an image
(`official`): 16 threads, with sleeps of 0.85 ms in place of decoding, came to 5,700 images/s of the 18,800 that such a
sleep allows; with this call to 17,400. Damaged or unusual records are left to `prepare_image`, which explains what is
wrong with them, and so are crops that `fast` would shrink.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from viaduct.data import region
from viaduct.data.index import RecordFolder
from viaduct.data.order import WORD
from viaduct.data.preprocess import find_preprocessing, normal_lines
from viaduct.data.records import Folder, Records
from viaduct.data.tfrecord import HEADER
from viaduct.data.views import draw_chroma_change, draw_saturation_change
from viaduct.errors import BadData

Floats = npt.NDArray[np.float32]
Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
COLOURS: dict[object, int] = {None: 0, draw_saturation_change: 1, draw_chroma_change: 2}  # as _recolour.h counts them


class Crops:
    """Random crops of the records of a folder, as one network sees them in training."""

    def __init__(self, compiled: Callable[..., None], folder: RecordFolder, records: Records, normalised: bool) -> None:
        network, size, fast = records.preprocess, records.size, records.decode == "fast"
        reference = find_preprocessing(network)
        sampler = reference.sampler
        assert sampler is not None
        self._compiled, self._folder, self._size = compiled, folder, size
        # With `fast`, crops of at least this many pixels in both directions would be shrunk; 0: none are.
        self._large = 2 * size if fast else 0
        self._starts = np.array(folder.starts)
        self._fancy = reference.fancy_upsampling[True] and not fast
        self._lines: region.Lines | tuple[None, None] = normal_lines(network, size) if normalised else (None, None)
        settings = (*sampler.ratio, *sampler.area, sampler.least_covered, sampler.attempts, sampler.uses_boxes)
        self._sampler = np.array([*settings, sampler.frame or 0], dtype=np.float64)  # in the order that C reads them
        self._mirrors_before = reference.mirrors_before_resize
        self._colours = COLOURS[None if records.increased_aug == "off" else reference.recolour]

    def prepare(self, numbers: Int64s, positions: Int64s, seed: int, epoch: int, out: Floats) -> Mask:
        """Prepare training crops of these records in `out`; return a mask that is True for each that is done."""
        folder, done = self._folder, np.zeros(len(numbers), dtype=np.bool_)
        files = (np.searchsorted(self._starts, numbers, side="right") - 1).tolist()
        try:
            handles = [folder.open_file(file) for file in files]  # keep the files open until they have been read
        except BadData:  # a file that cannot be opened; preparing its records one by one names it
            return done
        requests = np.empty((len(numbers), 4), dtype=np.int64)  # file descriptor, offset, length, position in the epoch
        requests[:, 0] = [handle.descriptor for handle in handles]
        np.add(folder.offsets[numbers], HEADER.size, out=requests[:, 1])
        requests[:, 2] = folder.lengths[numbers]
        requests[:, 3] = positions
        random_key = seed & WORD, epoch & WORD
        options = folder.check, self._size, self._large, self._fancy, self._mirrors_before, self._colours
        self._compiled(requests, self._sampler, *random_key, *options, *self._lines, out, done)
        return done


def find_crops(records: Records, folder: Folder, *, normalised: bool) -> Crops | None:
    """Return the crops of this folder if they can be prepared in one call, else None."""
    compiled = region.find_function("see_crops")
    if compiled is None or records.auto_augment or records.increased_aug == "on":
        return None
    if not isinstance(folder, RecordFolder) or find_preprocessing(records.preprocess).views:
        return None
    return Crops(compiled, folder, records, normalised)
