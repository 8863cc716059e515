"""MindRecord files as a training source: which files belong to which split, and which fields are image and label.

    --data DIR                   train*.mindrecord0 … and val*, eval* or test*; or DIR/train and DIR/val
    --data cifar10.mindrecord0   one set of files (shards); a tenth of every class is set aside for validation

Files with val, eval, dev or test as a word of their name are for validation; if there are files of several of these
kinds, only the kind that comes first in this order is used. All other files are for training. Each file lists all files
of its set; a missing one is an error, unless the files were renamed, which hides that one is missing. The image is a
bytes field, the label an integer field. They are found by their usual names, or named by `data.image_field` and
`data.label_field` of the recipe. Labels are read as they are stored.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from viaduct.data.build import SEED, VALIDATION_SHARE, split_off_validation
from viaduct.data.example import MAX_NAME_LENGTH, NO_BOXES, ImageFields
from viaduct.data.file_index import CORRUPT_LABEL, Int64s
from viaduct.data.mindrecord import INTEGERS, MindRecordFile, is_mindrecord
from viaduct.data.notices import join_first
from viaduct.data.origins import Origin, SourceImage
from viaduct.data.shards import SPLITS, find_shard_sets, read_label_names
from viaduct.data.tfrecord import BadRecord
from viaduct.errors import BadData, BadValue
from viaduct.terminal import escape_controls

# Usual names of fields, most likely first.
IMAGE_FIELDS = ("image", "data", "img", "image_bytes", "image_data", "image_encoded", "encoded", "jpeg")
LABEL_FIELDS = ("label", "labels", "class", "class_id", "target", "image_class_label", "fine_label")
FILENAME_FIELDS = ("file_name", "filename", "file", "image_filename", "path")
# Kinds of files for validation, and the pattern that names of each kind contain; the first kind that is there is used.
VALIDATION_PATTERNS = {"val": "valid(ation)?|val", "eval": "eval(uation)?", "dev": "dev", "test": "test(ing)?"}
# Names of a split's folder; the first one that has MindRecord files is used.
FOLDERS = {"train": ("train", "training"), "validation": ("val", "valid", "validation", "eval", "test")}
MAX_OPEN_FILES = 128  # if a split has more files, a file is opened for each read


class MindRecordFolder:
    """Rows of a split over all its files, by number, with the methods of `RecordFolder` (index.py) that batches use.

    `image` and `label` are the names of the fields. `rows` are the numbers of the split's rows, counted over all files;
    None selects all.
    """

    def __init__(
        self, path: Path, files: Sequence[MindRecordFile], image: str, label: str, rows: Int64s | None = None
    ) -> None:
        self.path, self.files, self.image, self.label = path, files, image, label
        self.names = read_label_names(path if path.is_dir() else path.parent)
        self.starts = [0, *np.cumsum([len(file) for file in files]).tolist()]
        self._rows = np.arange(self.starts[-1]) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def locate(self, number: int) -> tuple[MindRecordFile, int]:
        """Return the file of an image and its row there."""
        if not 0 <= number < len(self):
            raise IndexError(f"record {number} of {len(self)}")
        row = int(self._rows[number])
        file = bisect_right(self.starts, row) - 1
        return self.files[file], row - self.starts[file]

    def read_fields(self, number: int) -> ImageFields:
        """Return image and label of a row; raise `BadRecord` if either cannot be read."""
        file, row = self.locate(number)
        label = int(self._stored_labels[int(self._rows[number])])
        if label == CORRUPT_LABEL:
            label = file.read_integer(row, self.label)  # raises the error of this row
        return ImageFields(file.read_blob(row, self.image), label, self.names.get(label, ""), NO_BOXES)

    @cached_property
    def _stored_labels(self) -> Int64s:
        """Labels of all rows of the files; CORRUPT_LABEL for labels that cannot be read."""
        labels = [read_label(file, row, self.label) for file in self.files for row in range(len(file))]
        return np.array(labels, dtype=np.int64)

    def read_labels(self, *, skip_bad: bool = False) -> Int64s:
        """Return the label of every row.

        A label that cannot be read raises `BadRecord`; with `skip_bad` it is CORRUPT_LABEL.
        """
        labels: Int64s = self._stored_labels[self._rows]
        if not skip_bad:
            for number in np.flatnonzero(labels == CORRUPT_LABEL).tolist():
                file, row = self.locate(number)
                file.read_integer(row, self.label)  # raises the error of this row
        return labels

    def make_error(self, number: int, reason: str, *hints: str) -> BadRecord:
        """Return an error that names the row's file, number and image file."""
        file, row = self.locate(number)
        return file.make_error(row, reason.rstrip("."), *hints, made_from=read_filename(file, row))

    def describe_location(self, number: int) -> str:
        """Return file name and number of a row, for messages."""
        file, row = self.locate(number)
        return f"{file.path.name} record {row}"

    @property
    def how_to_list_bad(self) -> str:
        """Hint on how to find all bad records, for messages about one."""
        return f"`viaduct data check {self.path} --deep` counts all of them, and names the first ones of each file."


def read_label(file: MindRecordFile, row: int, field: str) -> int:
    """Read the label of a row; CORRUPT_LABEL if it cannot be read."""
    try:
        return file.read_integer(row, field)
    except BadData:
        return CORRUPT_LABEL


def read_filename(file: MindRecordFile, row: int) -> str:
    """Return the name of the image file that a row was made from, for messages; empty if unknown."""
    name = next((name for name in FILENAME_FIELDS if name in file.schema), None)
    if name is None:
        return ""
    try:
        return escape_controls(str(file.read_values(row).get(name, "")))[:MAX_NAME_LENGTH]
    except BadData:
        return ""


# Files


def has_mindrecords(path: Path) -> bool:
    """Return True for a MindRecord file, and for a folder with MindRecord files and no TFRecords."""
    if path.is_file():
        return is_mindrecord(path)
    if not path.is_dir() or any(find_shard_sets(path, split) for split in SPLITS):
        return False
    folders = [path, *(path / name for names in FOLDERS.values() for name in names)]
    return any(next(list_mindrecords(folder), None) is not None for folder in folders)


def list_mindrecords(folder: Path) -> Iterator[Path]:
    """Yield the MindRecord files of a folder, sorted; none if there is no such folder."""
    if folder.is_dir():
        yield from (path for path in sorted(folder.iterdir()) if path.is_file() and is_mindrecord(path))


def split_files(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split; a split without files has no entry."""
    if path.is_file():
        return group_by_split(list_set(path))
    splits = group_by_split(list_mindrecords(path))
    for split, names in FOLDERS.items():
        for name in names:
            files = list(list_mindrecords(path / name))
            if files:
                splits.setdefault(split, files)
    return splits


def list_set(path: Path) -> list[Path]:
    """Return the paths of all files of the set that a file lists, whether they exist or not.

    A file that is not in its own list was renamed: then only its path is returned.
    """
    names = MindRecordFile(path, stay_open=False).shard_names
    return [path.with_name(name) for name in names if Path(name).name == name] if path.name in names else [path]


def group_by_split(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Group files by the split that their names suggest; of several kinds for validation, return only the first."""
    kinds: dict[str, list[Path]] = {}
    for file in files:
        kinds.setdefault(find_kind(file), []).append(file)
    validation = next((kinds[kind] for kind in VALIDATION_PATTERNS if kind in kinds), [])
    splits = {"train": kinds.get("train", []), "validation": validation}
    return {split: files for split, files in splits.items() if files}


def find_kind(file: Path) -> str:
    """Return the kind that a file's name suggests, such as val for `imagenet_val.mindrecord3`; by default train."""
    name = file.name.lower()
    patterns = VALIDATION_PATTERNS.items()
    return next((kind for kind, pattern in patterns if re.search(rf"(?<![a-z])({pattern})(?![a-z])", name)), "train")


def open_files(paths: Sequence[Path]) -> list[MindRecordFile]:
    """Open the files of a split, sorted by set and place in the set; raise `BadData` if a set is incomplete."""
    present = {path.name for path in paths}
    if missing_path := next((path for path in paths if not path.is_file()), None):
        raise BadData(f"{missing_path} is missing; another file of its set names it.", "Copy the whole set.")
    files = [MindRecordFile(path, stay_open=len(paths) <= MAX_OPEN_FILES) for path in paths]
    for file in files:
        names = file.shard_names if file.path.name in file.shard_names else []
        absent = [name for name in names if name not in present]
        if absent:
            missing = f"{len(absent):,} of the {len(names):,} files of {file.path.name}'s set are missing"
            examples = join_first(list(map(escape_controls, absent)))
            raise BadData(f"{file.path.parent}: {missing}: {examples}.", "Copy the whole set.")
        if file.schema != files[0].schema:
            raise BadData(f"{file.path} has other fields than {files[0].path}.", describe_fields(file))
    return sorted(files, key=lambda file: (file.shard_names, file.shard, file.path.name))


# Fields


def choose_fields(file: MindRecordFile, image: str, label: str) -> tuple[str, str]:
    """Return the names of the fields of image and label; `image` and `label` are names requested by the recipe."""
    blobs = [name for name, field in file.schema.items() if field.kind == "bytes"]
    scalars = (None, (), (1,), (-1,))  # shapes of a single number
    numbers = [name for name, field in file.schema.items() if field.kind in INTEGERS and field.shape in scalars]
    return (
        choose_field(file, image, blobs, IMAGE_FIELDS, "image_field", "bytes", "the encoded image"),
        choose_field(file, label, numbers, LABEL_FIELDS, "label_field", "int32 or int64", "the class"),
    )


def choose_field(
    file: MindRecordFile,
    requested: str,
    fitting: list[str],
    usual: tuple[str, ...],
    setting: str,
    types: str,
    meaning: str,
) -> str:
    """Return the requested field, else the first usual name in `fitting`, else the only field in `fitting`.

    `fitting` are the fields of the right types. `setting` is the recipe's field for this choice; it, `types` and
    `meaning` are for messages. Raise `BadValue` if the requested field does not fit, and `BadData` if no field or
    several fields fit.
    """
    fields = describe_fields(file)
    if requested:
        if requested in fitting:
            return requested
        raise BadValue(f"data.{setting}={requested!r} is not a field of {types}, {meaning} in {file.path}.", fields)
    known = [name for name in usual if name in fitting]
    if known or len(fitting) == 1:
        return (known or fitting)[0]
    if not fitting:
        raise BadData(f"{file.path}: there is no field of {types} for {meaning}.", fields)
    hint = f"Choose one: --set data.{setting}=NAME."
    raise BadData(f"{file.path}: several fields of {types} could be {meaning}.", fields, hint)


def describe_fields(file: MindRecordFile) -> str:
    return "It has: " + ", ".join(f"{escape_controls(name)} ({field})" for name, field in file.schema.items()) + "."


# Splits


def open_mindrecords(path: Path, image: str = "", label: str = "") -> dict[str, MindRecordFolder]:
    """Open the files of each split; `image` and `label` are names of fields, chosen automatically if empty."""
    files = {split: open_files(paths) for split, paths in split_files(path).items()}
    fields = choose_fields(next(iter(files.values()))[0], image, label)
    return {split: MindRecordFolder(path, members, *fields) for split, members in files.items()}


def open_mindrecord_splits(
    path: Path, image: str = "", label: str = ""
) -> tuple[MindRecordFolder | None, MindRecordFolder]:
    """Return training and validation images; training is None if there are only validation files.

    Without validation files about a tenth of the training images is set aside. `image` and `label` are as in
    `open_mindrecords`.
    """
    folders = open_mindrecords(path, image, label)
    for folder in folders.values():
        if not len(folder):
            raise BadData(f"{folder.files[0].path}: there are no records in its set of files.")
    if "validation" in folders:
        return folders.get("train"), folders["validation"]
    return split_rows(folders["train"])


def split_rows(folder: MindRecordFolder) -> tuple[MindRecordFolder, MindRecordFolder]:
    """Split rows into training and validation: about a tenth of every class, as `viaduct data build` does."""
    labels = folder.read_labels(skip_bad=True)
    images = [
        SourceImage(str(row), class_name=str(label), size=0, modified=0, position=row)
        for row, label in enumerate(labels.tolist())
    ]
    train, validation = split_off_validation(images, VALIDATION_SHARE, SEED)
    if not validation:
        raise BadData(f"{folder.path}: there are no validation files, and too few images to set some aside.")

    def select_rows(images: list[SourceImage]) -> MindRecordFolder:
        selected = np.array(sorted(image.position for image in images), dtype=np.int64)
        return MindRecordFolder(folder.path, folder.files, folder.image, folder.label, selected)

    return select_rows(train), select_rows(validation)


def open_mindrecord_origin(path: Path) -> Origin:
    """Open MindRecord files as an origin to build TFRecords from; the stored labels are the class names."""
    folders = open_mindrecords(path)
    if "train" not in folders:
        raise BadData(f"{path}: there are no MindRecord files to train on.", "Names with val or test mean validation.")
    images = {split: list_images(folder, split) for split, folder in folders.items()}
    labels = sorted({int(image.class_name) for listed in images.values() for image in listed})
    classes = [str(label) for label in labels]

    def read(image: SourceImage) -> bytes:
        split = image.name.partition("/")[0]
        return bytes(folders[split].read_fields(image.position).encoded)

    return Origin(images["train"], images.get("validation"), classes, read, path, has_numeric_labels=True)


def list_images(folder: MindRecordFolder, split: str) -> list[SourceImage]:
    """List the rows as images, named SPLIT/FILE:ROW."""
    modified = {file.path: file.path.stat().st_mtime_ns for file in folder.files}
    images = []
    for number, label in enumerate(folder.read_labels().tolist()):
        file, row = folder.locate(number)
        name, size = f"{split}/{file.path.name}:{row}", int(file.blob_lengths[row])
        images.append(SourceImage(name, str(label), size, modified[file.path], number))
    return images
