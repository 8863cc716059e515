"""The data of a recipe in files that are read image by image: TFRecord files, MindRecord files, class folders or lists.

    Records(global_batch=256, size=224, classes=1001, preprocess="official")     for --data records/, or class folders

Nothing here imports torch, so that recipes can be listed without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from viaduct.data import references
from viaduct.data.file_index import CORRUPT_LABEL
from viaduct.data.folder import ImageFolder, has_images, open_image_splits, read_class_names
from viaduct.data.index import RecordFolder
from viaduct.data.mindrecord_folder import MindRecordFolder, has_mindrecords, open_mindrecord_splits
from viaduct.data.origins import check_origin
from viaduct.data.pillow_views import PREFIX, parse_name
from viaduct.data.shards import LABELS_FILE, SPLITS, explain_nothing_found, list_record_files, read_label_names
from viaduct.data.source import Colour, Dataset, Labels, Pixels, Source
from viaduct.data.tfrecord import BadRecord
from viaduct.errors import BadData, BadValue, UnknownName

COLOUR_FIELDS = ("brightness", "contrast", "saturation", "hue")  # in the order of colour.ColourRanges
Folder = RecordFolder | ImageFolder | MindRecordFolder


@dataclass(frozen=True)
class Records(Source):
    """TFRecords in the ImageNet schema, MindRecords, or image files, prepared as a reference implementation does."""

    name: ClassVar[str] = "TFRecord files"
    needs_path: ClassVar[bool] = True
    how_to_get: ClassVar[str] = (
        "`viaduct data build PHOTOS --out DIR` makes them of class folders; --data synthetic trains on noise."
    )

    classes: int = 1001
    workers: int = 0  # threads that decode; 0: one for each core
    # Name of a file in references/; or "source", which stands for the settings of the network's package, torchvision or
    # timm, and may be followed by such settings (pillow_views.py).
    preprocess: str = "official"
    decode: Literal["exact", "fast"] = "exact"  # fast: shrink large images during decoding
    label_shift: int = 0  # added to the stored label: -1 for ResNet-50 v1.5
    on_bad_record: Literal["stop", "skip"] = "stop"  # skip: train on the mean colour in place of a bad image
    # Changes of colour in training: those of the reference, none, or by the four fields below (`colour.ColourRanges`).
    increased_aug: Literal["reference", "on", "off"] = "reference"
    brightness: Annotated[float, Ge(0), Le(255)] = 0.3
    contrast: Annotated[float, Ge(0), Le(1)] = 0.6
    saturation: Annotated[float, Ge(0), Le(1)] = 0.6
    hue: Annotated[float, Ge(0), Le(1)] = 0.13
    image_field: str = ""  # of MindRecord files: the field of the encoded image; empty: chosen automatically
    label_field: str = ""  # of MindRecord files: the field of the class; empty: chosen automatically

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preprocess.startswith(f"{PREFIX}:"):
            parse_name(self.preprocess)
        elif self.preprocess not in (*references.names(), PREFIX):
            raise UnknownName("data.preprocess", self.preprocess, (*references.names(), PREFIX))

    def refuse_idle_fields(self) -> None:
        """Raise `BadValue` if a colour range is set that has no effect.

        Not checked when a recipe is made, because --set changes the fields of a recipe one by one.
        """
        for field in COLOUR_FIELDS if self.increased_aug != "on" else ():
            value = getattr(self, field)
            if value != getattr(Records, field):
                reason = f"has no effect with data.increased_aug={self.increased_aug}"
                raise BadValue(f"data.{field}={value:g} {reason}.", "Give --increased-aug on, too.")

    @property
    def colours(self) -> Any:
        """Changes of colour in training: "reference" for those of the reference, a function that draws one, or None."""
        from viaduct.data.colour import ColourRanges, draw_yiq_change

        if self.increased_aug == "on":
            return partial(draw_yiq_change, ranges=ColourRanges(*(getattr(self, field) for field in COLOUR_FIELDS)))
        return None if self.increased_aug == "off" else "reference"

    @property
    def usual_image_count(self) -> int:
        return 1_281_167  # of ImageNet

    def get_normalisation(self) -> tuple[Colour, Colour]:
        from viaduct.data.preprocess import get_normalisation

        mean, scale = (tuple(map(float, values)) for values in get_normalisation(self.preprocess))
        return mean, scale  # type: ignore[return-value]

    def check_path(self, path: Path) -> None:
        if has_mindrecords(path):
            return
        if has_images(path):
            check_origin(path)
            return
        has_train, has_validation = (bool(list_record_files(path, split)) for split in SPLITS)
        if not has_validation:
            raise explain_nothing_found(path, "validation" if has_train else "train")

    def load(self, path: Path | None) -> Dataset:
        """Open TFRecord files, MindRecord files, class folders or a .csv list of images."""
        self.refuse_idle_fields()
        if path is None:
            raise BadData("this recipe trains on TFRecord files or class folders: give their folder with --data DIR.")
        if has_mindrecords(path):
            return RecordSet(self, *open_mindrecord_splits(path, self.image_field, self.label_field))
        for field in ("image_field", "label_field"):
            if getattr(self, field):
                raise BadValue(f"data.{field} is for MindRecord files, but {path} has none.", "Leave it out.")
        if has_images(path):
            return RecordSet(self, *open_image_splits(path))
        only_validation = not list_record_files(path, "train") and list_record_files(path, "validation")
        train = None if only_validation else RecordFolder(path, "train")
        return RecordSet(self, train, validation=RecordFolder(path, "validation"))

    def read_label_names(self, path: Path | None) -> dict[int, str]:
        if path is None or not path.exists():
            return {}
        return {label + self.label_shift: name for label, name in find_class_names(path)[1].items()}

    def find_stated_classes(self, path: Path) -> StatedClasses | None:
        """Return the classes that the data at a path define.

        None if they define none, cannot be read, or label_shift leaves no label of 0 or more.
        """
        try:
            path_of_names, names = find_class_names(path)
        except (OSError, BadData, BadValue):
            return None  # loading the data raises the error
        if not names:
            return None
        outputs = max(names) + self.label_shift + 1
        return StatedClasses(path_of_names, len(names), min(names), max(names), outputs) if outputs > 0 else None

    def batches(self, split: Any, *, device: Any, train: bool, seed: int, share: Any = None) -> Any:
        from viaduct.data.batches import WHOLE_BATCH
        from viaduct.data.record_batches import RecordBatches  # torch is imported here

        return RecordBatches(self, split, device=device, train=train, seed=seed, share=share or WHOLE_BATCH)


def find_class_names(path: Path) -> tuple[Path, dict[int, str]]:
    """Return the path that defines class names (of labels.txt, a list or a folder), and the name of each stored label.

    If that path does not exist, there are no names.
    """
    if has_mindrecords(path):
        folder = path if path.is_dir() else path.parent
        return folder / LABELS_FILE, read_label_names(folder)
    if has_images(path):
        return path, read_class_names(path)
    return path / LABELS_FILE, read_label_names(path)


@dataclass(frozen=True)
class StatedClasses:
    """Classes that the data define: in labels.txt beside records, in a CSV list, or by the names of class folders."""

    path: Path  # of labels.txt, the list or the folder
    count: int  # number of classes
    first: int  # the smallest stored label
    last: int  # the largest stored label
    outputs: int  # number of outputs that a network needs for these labels, after the recipe's label_shift

    def fits(self, classes: int) -> bool:
        """Return True if a network with this number of classes has the outputs that these labels need, or one more."""
        return classes in (self.outputs, self.outputs + 1)

    def __str__(self) -> str:
        classes = f"{self.count:,} class{'es' if self.count != 1 else ''}"
        return f"{self.path} has {classes}, labels {self.first:,} to {self.last:,}"


class RecordSplit:
    """Records of one split; the recipe's label_shift is added to their stored labels."""

    def __init__(self, records: Records, folder: Folder) -> None:
        self.records, self.folder = records, folder

    def __len__(self) -> int:
        return len(self.folder)

    @property
    def names(self) -> dict[int, str]:
        """Class names by shifted label."""
        return {label + self.records.label_shift: name for label, name in self.folder.names.items()}

    @cached_property
    def labels(self) -> Labels:
        """All shifted labels; one outside of the recipe's classes raises `BadData`, and so does an unreadable one.

        With on_bad_record=skip a record with an unreadable label has label 0, and is reported when a batch needs its
        image. Labels that are not in the index yet are read from the TFRecord files.
        """
        stored = self.folder.read_labels(skip_bad=self.records.on_bad_record == "skip")
        labels: Labels = np.where(stored == CORRUPT_LABEL, 0, stored + self.records.label_shift)
        wrong = np.flatnonzero((labels < 0) | (labels >= self.records.classes))
        if len(wrong):
            first = int(wrong[0])
            reason = f"its label {labels[first]} is not one of 0 to {self.records.classes - 1}"
            raise self.folder.make_error(first, reason, *self._advise_on_range(stored[stored != CORRUPT_LABEL]))
        return labels

    def _advise_on_range(self, stored: Labels) -> tuple[str, ...]:
        """Return advice if no label is 0 and the largest one needs just one output more than the recipe has."""
        classes = self.records.classes
        if self.records.label_shift or stored.min() < 1 or stored.max() != classes:
            return ()
        advice = f"--classes {classes + 1}, or --set data.label_shift=-1"
        return (f"There is no label 0 here; `viaduct data build` begins with label 1: {advice}.",)

    def read_image(self, index: int) -> Pixels:
        """Return an image preprocessed for evaluation; the mean colour for a bad record with on_bad_record=skip."""
        from viaduct.data.preprocess import get_normalisation, prepare_image, round_to_uint8

        side = self.records.size
        try:
            pixels = prepare_image(self.records.preprocess, self.folder.read_fields(index).encoded, size=side)
        except BadData as error:
            if self.records.on_bad_record == "stop":
                raise error if isinstance(error, BadRecord) else self.folder.make_error(index, error.message) from None
            pixels = np.full((side, side, 3), get_normalisation(self.records.preprocess)[0])
        return round_to_uint8(pixels)


class RecordSet:
    """A `Dataset` in files; the training split may be missing."""

    def __init__(self, records: Records, train: Folder | None, validation: Folder) -> None:
        self._train = None if train is None else RecordSplit(records, train)
        self.validation = RecordSplit(records, validation)
        names, shift = validation.names, records.label_shift
        self.names = tuple(names.get(label - shift, str(label)) for label in range(records.classes))

    @property
    def train(self) -> RecordSplit:
        """Training split; raises `BadData` if there are only validation files."""
        if self._train is None:
            folder = self.validation.folder
            if isinstance(folder, MindRecordFolder):
                hint = "Names with val, eval, dev or test in them mean validation, all others training."
                raise BadData(f"{folder.path}: there are no MindRecord files to train on.", hint)
            assert isinstance(folder, RecordFolder)  # folders of images always have both
            raise explain_nothing_found(folder.path, "train")
        return self._train

    @property
    def has_train(self) -> bool:
        return self._train is not None
