"""Sources that records are built from: class folders, a list of files, or the IDX files of MNIST and its kin.

    class_folders("photos/")               photos/cat/1.jpg …; or photos/train/cat/1.jpg … and photos/val/cat/9.jpg …
    image_list("photos.csv")             path,label a line; paths are relative to the list
    idx_files("images.gz", "labels.gz")    bare grey pixels and their labels, plain or gzipped

Each gives an `Origin`: which images there are, in which classes, and how to get the bytes of one. Files must be JPEG or
PNG by their first bytes, whatever their name; others are named and refused before anything is built, except hidden
files and those that `class_folders` ignores.
"""

from __future__ import annotations

import csv
import fnmatch
import gzip
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from viaduct.data.notices import reason
from viaduct.data.png import encode_png
from viaduct.errors import BadData, BadValue
from viaduct.path_errors import refuse_special_file

FORMATS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG"}
VALIDATION_FOLDERS = ("validation", "val")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
LEFT_BY_WINDOWS = ("thumbs.db", "desktop.ini")
NAMED_AT_MOST = 5
# A gzipped file may unpack to so many bytes, or to so many times its size if that is more.
MAX_UNPACKED_BYTES, MAX_EXPANSION = 1 << 26, 50
IDX_IMAGES, IDX_LABELS = 0x803, 0x801  # unsigned bytes in three dimensions, in one


class SourceImage(NamedTuple):
    """Image of an origin. Size and time of change tell whether it is still the same one later."""

    name: str  # the path below the origin's folder; for IDX and MindRecord files, split or file and number
    group: str  # its class
    size: int  # bytes
    changed: int  # time of change in nanoseconds; for IDX files a checksum of the pair
    position: int = 0  # in an IDX file or a MindRecord split


@dataclass(frozen=True, eq=False)
class Origin:
    """Images to build records from; `validation` is None where they are to be set aside from `train`."""

    train: Sequence[SourceImage]
    validation: Sequence[SourceImage] | None
    classes: Sequence[str]  # in label order
    read: Callable[[SourceImage], bytes]
    path: Path  # the folder, list or file, for messages
    labels_given: bool = False  # True: the names of the classes are whole numbers, which are used as labels


def find_origin(path: Path | str, ignore: Sequence[str] = ()) -> Origin:
    """Open class folders or a list of files, whichever the path is. `ignore` is for folders: see `class_folders`."""
    path = Path(path)
    if path.is_dir():
        return class_folders(path, ignore)
    if path.suffix.lower() == ".csv":
        if ignore:
            raise BadValue(
                f"{path} is a list: what it shall not hold is left out of it.", "Patterns to ignore are for folders."
            )
        return image_list(path)
    raise BadData(f"{path}: expected a folder of class folders or a .csv of path,label.", describe_path(path))


def describe_path(path: Path) -> str:
    """Say whether a path that is no source exists."""
    return "It is a file of another kind." if path.exists() else "There is no such file or folder."


def image_format(head: bytes | memoryview) -> str | None:
    """Return JPEG or PNG, by the first bytes of a file; None for anything else."""
    begin = bytes(head[:8])
    return next((name for magic, name in FORMATS.items() if begin.startswith(magic)), None)


# Class folders


def class_folders(folder: Path | str, ignore: Sequence[str] = ()) -> Origin:
    """Open class folders, or such folders inside of train/ and val/ (or validation/).

    Hidden files and those that Windows leaves in folders are passed over, and files whose name matches one of the
    patterns in `ignore`, such as *.txt. Classes are numbered in order of their names, by value if all are whole
    numbers.
    """
    folder = Path(folder)
    train_folder, validation_folder = split_folders(folder)
    classes = class_names(train_folder)
    train = images_below(train_folder, folder, classes, ignore)
    empty = sorted(set(classes) - {image.group for image in train})
    if empty:
        raise BadData(f"{train_folder}: {join_first(empty)}: no images in the folder of this class.")
    validation = None
    if validation_folder:
        unknown = sorted(set(class_names(validation_folder)) - set(classes))
        if unknown:
            raise BadData(f"{validation_folder}: {join_first(unknown)}: there is no such class in {train_folder}.")
        validation = images_below(validation_folder, folder, class_names(validation_folder), ignore)
    return Origin(train, validation, classes, reader(folder), folder)


def split_folders(folder: Path) -> tuple[Path, Path | None]:
    """Return the folders of training and validation images; None without the latter."""
    train = folder / "train"
    validation = next((folder / name for name in VALIDATION_FOLDERS if (folder / name).is_dir()), None)
    if train.is_dir() and (validation or subfolders(folder) == ["train"]):
        return train, validation
    return folder, None


def subfolders(folder: Path) -> list[str]:
    """List the folders in a folder, without hidden ones."""
    return [entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]


def class_names(folder: Path) -> list[str]:
    """List the class folders; refuse images beside them."""
    names = in_order(subfolders(folder))
    stray = [entry.name for entry in os.scandir(folder) if entry.name.lower().endswith(IMAGE_SUFFIXES)]
    if stray:
        raise BadData(f"{folder}: {join_first(sorted(stray))}: this image is in no class folder.")
    if not names:
        raise BadData(f"{folder}: there are no class folders in it.", "Expected FOLDER/<class>/<image>.jpg")
    return names


def in_order(names: Sequence[str]) -> list[str]:
    """Sort names as numbers where all are numbers."""
    numeric = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=lambda name: (int(name) if numeric else 0, name))


def images_below(folder: Path, base: Path, classes: Sequence[str], ignore: Sequence[str]) -> list[SourceImage]:
    """List the images of every class folder; refuse other files."""
    images, refused = list[SourceImage](), list[str]()
    for group in classes:
        for path in files_below(folder / group, ignore):
            add_image(path, path.relative_to(base).as_posix(), group, images, refused)
    refuse_other_files(base, refused, can_ignore=True)
    return images


def files_below(folder: Path, ignore: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder in a fixed order."""
    for folder_path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder_path, name) for name in sorted(names) if not is_ignored(name, ignore))


def is_ignored(name: str, ignore: Sequence[str]) -> bool:
    """Return True for hidden files, for files that Windows leaves, and for names that match a pattern."""
    by_itself = name.startswith(".") or name.lower() in LEFT_BY_WINDOWS
    return by_itself or any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore)


def add_image(path: Path, name: str, group: str, images: list[SourceImage], refused: list[str]) -> None:
    """Append a file to `images`, or to `refused` if it is neither JPEG nor PNG."""
    try:
        refuse_special_file(path)
        with open(path, "rb") as file:
            status, head = os.fstat(file.fileno()), file.read(8)
    except OSError as error:
        raise BadData(f"{path}: could not be read: {error.strerror}.") from error
    if image_format(head):
        images.append(SourceImage(name, group, status.st_size, status.st_mtime_ns))
    else:
        refused.append(name)


def refuse_other_files(base: Path, refused: Sequence[str], can_ignore: bool = False) -> None:
    """Refuse files that are no images, and say what to do with them; `can_ignore`: in folders, by their endings."""
    if not refused:
        return
    single = len(refused) == 1
    endings = sorted({Path(name).suffix for name in refused})
    named_as_images = [name for name in refused if name.lower().endswith(IMAGE_SUFFIXES)]
    hints = ["Move it away or convert it." if single else "Move them away or convert them."]
    if named_as_images:
        subject = "It is" if single else "All are" if len(named_as_images) == len(refused) else "Some are"
        hints.append(f"{subject} named as an image, and the contents are empty, damaged or of another kind.")
    elif can_ignore and all(endings):
        patterns = " ".join(f"--ignore '*{ending}'" for ending in endings)
        hints.append(f"Records without {'it' if single else 'them'}: `viaduct data build {base} --out DIR {patterns}`.")
    raise BadData(
        f"{base}: {len(refused):,} {'file is' if single else 'files are'} neither JPEG nor PNG: {join_first(refused)}.",
        *hints,
    )


def join_first(names: Sequence[str]) -> str:
    """Join the first names, and say how many more there are."""
    more = f" and {len(names) - NAMED_AT_MOST:,} more" if len(names) > NAMED_AT_MOST else ""
    return ", ".join(names[:NAMED_AT_MOST]) + more


def reader(base: Path) -> Callable[[SourceImage], bytes]:
    """Return the function that reads an image file; it raises `BadData` for one whose size has changed."""

    def read(image: SourceImage) -> bytes:
        path = base / image.name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BadData(f"{path}: could not be read: {error.strerror}.") from error
        if len(content) != image.size:
            raise BadData(
                f"{path}: it has changed since the images were listed: {image.size:,} bytes, now {len(content):,}.",
                "Start again when nothing writes to it; a build of records needs a new folder.",
            )
        return content

    return read


# A list of files


def image_list(file: Path | str) -> Origin:
    """Open a list with path,label a line; a first line that says "path,label" is a header.

    A label is a class name. If all labels are whole numbers, they are used as they are, also with gaps between them.
    """
    file = Path(file)
    images, refused = list[SourceImage](), list[str]()
    seen: dict[str, int] = {}
    for line, name, group in read_rows(file):
        if name in seen:
            raise BadData(f"{file}: line {line:,}: {name} is in line {seen[name]:,} already.")
        seen[name] = line
        if not (file.parent / name).is_file():
            raise BadData(f"{file}: line {line:,}: there is no file {file.parent / name}.", *header_hint(line))
        add_image(file.parent / name, name, group, images, refused)
    refuse_other_files(file, refused)
    if not images:
        raise BadData(f"{file}: there are no images in this list.", "Expected path,label a line.")
    classes = in_order(list({image.group for image in images}))
    numbers = all(name.isascii() and name.isdigit() and name == str(int(name)) for name in classes)
    return Origin(images, None, classes, reader(file.parent), file, labels_given=numbers)


def read_rows(file: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line number, path and label of each line that is not empty."""
    try:
        refuse_special_file(file)
        with open(file, encoding="utf-8-sig", newline="") as opened:
            for number, row in enumerate(csv.reader(opened), start=1):
                cells = [cell.strip() for cell in row]
                if not any(cells) or (number == 1 and [cell.lower() for cell in cells] == ["path", "label"]):
                    continue
                if len(cells) != 2 or not all(cells):
                    found = ",".join(row)
                    message = f"{file}: line {number:,}: expected path,label, found {found!r}."
                    raise BadData(message, *header_hint(number))
                yield number, cells[0], cells[1]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadData(f"{file}: could not be read: {reason(error)}.") from error


def header_hint(line: int) -> tuple[str, ...]:
    return ("If this line is a header, it must say path,label or be left out.",) if line == 1 else ()


# IDX


def idx_files(
    images: Path | str,
    labels: Path | str,
    *,
    validation: tuple[Path | str, Path | str] | None = None,
    names: Sequence[str] = (),
) -> Origin:
    """Open images and labels in the format of MNIST (http://yann.lecun.com/exdb/mnist), stored as grey PNGs.

    `validation` is a second pair of files. `names` are those of the classes 0, 1, …; without them they are numbers.
    """
    pairs = [IdxPair(Path(images), Path(labels))]
    if validation:
        pairs.append(IdxPair(Path(validation[0]), Path(validation[1])))
    count = 1 + max(int(pair.groups.max(initial=0)) for pair in pairs)
    classes = list(names) or [str(number) for number in range(count)]
    if len(classes) < count or len(set(classes)) < len(classes):
        raise BadValue(f"names must be {count} different ones, for the labels 0 to {count - 1}, got {classes!r}.")
    splits = [pair.images(classes, at) for at, pair in enumerate(pairs)]

    def read(image: SourceImage) -> bytes:
        pixels = pairs[int(image.name[0])].pixels[image.position]
        return encode_png(pixels[:, :, None])

    return Origin(splits[0], splits[1] if validation else None, classes, read, Path(images))


class IdxPair:
    """Pixels and labels of one split, in memory."""

    def __init__(self, images: Path, labels: Path) -> None:
        self.pixels = read_idx(images, IDX_IMAGES)
        self.groups = read_idx(labels, IDX_LABELS)
        if len(self.pixels) != len(self.groups):
            raise BadData(f"{images}: {len(self.pixels):,} images, but {len(self.groups):,} labels in {labels}.")
        self.digest = zlib.crc32(self.groups.tobytes(), zlib.crc32(self.pixels.tobytes()))

    def images(self, classes: Sequence[str], at: int) -> list[SourceImage]:
        _, height, width = self.pixels.shape
        return [
            SourceImage(f"{at}/{position:07d}", classes[group], height * width, self.digest, position)
            for position, group in enumerate(self.groups.tolist())
        ]


def read_idx(file: Path, magic: int) -> npt.NDArray[np.uint8]:
    """Read an IDX file of images or labels."""
    content = idx_content(file)
    dimensions = magic & 0xFF
    start = 4 + 4 * dimensions
    if len(content) < start or struct.unpack_from(">I", content)[0] != magic:
        raise BadData(f"{file}: not an IDX file of {'images' if magic == IDX_IMAGES else 'labels'}.")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    expected = start + int(np.prod(shape, dtype=object))
    if len(content) != expected or 0 in shape[1:]:
        raise BadData(f"{file}: expected {expected:,} bytes for {shape}, found {len(content):,}.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def idx_content(file: Path) -> bytes:
    """Return the bytes of the file, unpacked if it is gzipped, and no more than such a file may have."""
    try:
        refuse_special_file(file)
        with open(file, "rb") as opened:
            packed = opened.read(2) == b"\x1f\x8b"
        if not packed:
            return file.read_bytes()
        size = file.stat().st_size
        limit = max(MAX_UNPACKED_BYTES, MAX_EXPANSION * size)
        with gzip.open(file) as unpacked:
            content = unpacked.read(limit + 1)
        if len(content) > limit:
            raise BadData(f"{file}: unfolds from {size:,} to more than {limit:,} bytes.", "Unpack it with gunzip.")
        return content
    except (OSError, EOFError, zlib.error) as error:
        raise BadData(f"{file}: could not be read: {reason(error)}.") from error
