"""Origins of the images that records are built from: class folders, a list of files, or IDX files such as MNIST's.

    open_class_folders("photos/")             photos/cat/1.jpg …; or photos/train/cat/1.jpg … and photos/val/cat/9.jpg …
    open_image_list("photos.csv")             lines of path,label; paths are relative to the list
    open_idx_files("images.gz", "labels.gz")  grey pixels and their labels, plain or gzipped

Each returns an `Origin`: the images, their classes, and a function that reads an image. The first bytes of each image
file must be those of a JPEG or PNG. Other files are refused, except files in a folder that are hidden, left by Windows
or ignored on request.
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

from viaduct.data.notices import describe_error, join_first
from viaduct.data.png import encode_png
from viaduct.errors import BadData, BadValue
from viaduct.path_errors import refuse_special_file

FORMATS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG"}
VALIDATION_FOLDERS = ("validation", "val")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
LEFT_BY_WINDOWS = ("thumbs.db", "desktop.ini")
# A gzipped file may expand to this many bytes, or this many times its size if that is more.
MAX_UNPACKED_BYTES, MAX_EXPANSION = 1 << 26, 50
IDX_IMAGES, IDX_LABELS = 0x803, 0x801  # first four bytes: 8 for unsigned bytes, then the number of dimensions


class SourceImage(NamedTuple):
    """Image of an origin; size and modification time show whether its content has changed."""

    # Path below the origin's folder; 0/NUMBER (training) or 1/NUMBER of IDX files, SPLIT/FILE:ROW of MindRecord files.
    name: str
    class_name: str
    size: int  # bytes of the image file; of an IDX image, its pixels
    modified: int  # time in nanoseconds; for IDX files a checksum of the split's images and labels instead
    position: int = 0  # index of the image in an IDX file or a MindRecord split


@dataclass(frozen=True, eq=False)
class Origin:
    """Images to build records from."""

    train: Sequence[SourceImage]
    validation: Sequence[SourceImage] | None  # None: a share of `train` is to be set aside for validation
    classes: Sequence[str]  # in label order
    read: Callable[[SourceImage], bytes]  # returns the encoded image
    path: Path  # the folder, list or file, for messages
    has_numeric_labels: bool = False  # True: the class names are whole numbers and are used as labels


def find_origin(path: Path | str, ignore: Sequence[str] = ()) -> Origin:
    """Open class folders or a list of files. For `ignore` see `open_class_folders`."""
    path = Path(path)
    if path.is_dir():
        return open_class_folders(path, ignore)
    if path.suffix.lower() == ".csv":
        if ignore:
            raise BadValue(
                f"{path} is a list of files; patterns to ignore are for folders.", "Remove the lines from the list."
            )
        return open_image_list(path)
    hint = "It is a file of another kind." if path.exists() else "There is no such file or folder."
    raise BadData(f"{path}: expected a folder of class folders or a .csv of path,label.", hint)


def check_origin(path: Path) -> None:
    """Raise `BadData` if `find_origin` would refuse a path by its class folders or by the first line of its list."""
    if path.is_dir():
        list_classes(find_split_folders(path)[0])
    else:
        next(read_rows(path), None)


def find_image_format(encoded: bytes | memoryview) -> str | None:
    """Return "JPEG" or "PNG", by the first 8 bytes of a file; None for anything else."""
    beginning = bytes(encoded[:8])
    return next((name for magic, name in FORMATS.items() if beginning.startswith(magic)), None)


# Class folders


def open_class_folders(folder: Path | str, ignore: Sequence[str] = ()) -> Origin:
    """Open class folders, or train/ and val/ (or validation/) with class folders in them.

    Files are skipped if they are hidden, left by Windows, or match a pattern in `ignore`, such as *.txt. Images may be
    in subfolders of a class folder, but links to folders there are not followed. Classes are numbered in order of their
    names, by value if all are whole numbers.
    """
    folder = Path(folder)
    train_folder, validation_folder = find_split_folders(folder)
    classes = list_classes(train_folder)
    train = list_images(train_folder, folder, classes, ignore)
    empty = sorted(set(classes) - {image.class_name for image in train})
    if empty:
        raise BadData(f"{train_folder}: {join_first(empty)}: no images in the folder of this class.")
    validation = None
    if validation_folder:
        validation_classes = list_classes(validation_folder)
        unknown = sorted(set(validation_classes) - set(classes))
        if unknown:
            raise BadData(f"{validation_folder}: {join_first(unknown)}: there is no such class in {train_folder}.")
        validation = list_images(validation_folder, folder, validation_classes, ignore)
    return Origin(train, validation, classes, make_reader(folder), folder)


def find_split_folders(folder: Path) -> tuple[Path, Path | None]:
    """Return the folder that has the class folders for training, and the one for validation, if any.

    They are train/ and validation/ or val/; other folders beside these two, such as test/, are not read. Without
    train/, `folder` itself has the class folders; also if train/ has other folders beside it, none of them for
    validation, because train is then the name of a class.
    """
    train = folder / "train"
    validation = next((folder / name for name in VALIDATION_FOLDERS if (folder / name).is_dir()), None)
    if train.is_dir() and (validation or list_subfolders(folder) == ["train"]):
        return train, validation
    return folder, None


def list_subfolders(folder: Path) -> list[str]:
    """List the folders in a folder, except hidden ones."""
    return [entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]


def list_classes(folder: Path) -> list[str]:
    """List the class folders; raise `BadData` if there are none, or if images are beside them."""
    names = sort_classes(list_subfolders(folder))
    stray = [entry.name for entry in os.scandir(folder) if entry.name.lower().endswith(IMAGE_SUFFIXES)]
    if stray:
        raise BadData(f"{folder}: {join_first(sorted(stray))}: images must be in class folders.")
    if not names:
        raise BadData(f"{folder}: there are no class folders in it.", "Expected FOLDER/<class>/<image>.jpg")
    return names


def sort_classes(names: Sequence[str]) -> list[str]:
    """Sort class names: by value if all are whole numbers, otherwise as text."""
    numeric = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=lambda name: (int(name) if numeric else 0, name))


def list_images(folder: Path, base: Path, classes: Sequence[str], ignore: Sequence[str]) -> list[SourceImage]:
    """List the images of every class folder, named by paths relative to `base`; raise `BadData` for other files."""
    images, refused = list[SourceImage](), list[str]()
    for class_name in classes:
        for path in list_files(folder / class_name, ignore):
            add_image(path, path.relative_to(base).as_posix(), class_name, images, refused)
    refuse_other_files(base, refused, can_ignore=True)
    return images


def list_files(folder: Path, ignore: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder that are not ignored, in an order that is the same on every machine.

    Hidden folders and links to folders are not entered; a folder that cannot be read raises `BadData`.
    """
    for folder_path, folders, names in os.walk(folder, onerror=refuse_unreadable_folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder_path, name) for name in sorted(names) if not is_ignored(name, ignore))


def refuse_unreadable_folder(error: OSError) -> None:
    """Raise `BadData` for an error of `os.walk`, which would go on without the folder's files."""
    raise BadData(f"{error.filename}: could not be read: {error.strerror}.") from error


def is_ignored(name: str, ignore: Sequence[str]) -> bool:
    """Return True for hidden files, for files that Windows leaves, and for names that match a pattern."""
    is_system_file = name.startswith(".") or name.lower() in LEFT_BY_WINDOWS
    return is_system_file or any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore)


def add_image(path: Path, name: str, class_name: str, images: list[SourceImage], refused: list[str]) -> None:
    """Append a file to `images`, or its name to `refused` if it is neither JPEG nor PNG."""
    try:
        refuse_special_file(path)
        with open(path, "rb") as file:
            status, beginning = os.fstat(file.fileno()), file.read(8)
    except OSError as error:
        raise BadData(f"{path}: could not be read: {error.strerror}.") from error
    if find_image_format(beginning):
        images.append(SourceImage(name, class_name, status.st_size, status.st_mtime_ns))
    else:
        refused.append(name)


def refuse_other_files(base: Path, refused: Sequence[str], can_ignore: bool = False) -> None:
    """Raise `BadData` with hints if there are refused files; with `can_ignore` a hint may suggest --ignore."""
    if not refused:
        return
    is_single = len(refused) == 1
    files, them = ("file is", "it") if is_single else ("files are", "them")
    endings = sorted({Path(name).suffix for name in refused})
    named_as_images = [name for name in refused if name.lower().endswith(IMAGE_SUFFIXES)]
    hints = [f"Move {them} away or convert {them}."]
    if named_as_images:
        subject = "It is" if is_single else "All are" if len(named_as_images) == len(refused) else "Some are"
        hints.append(f"{subject} named as an image, but the content is empty, damaged or of another kind.")
    elif can_ignore and all(endings):
        patterns = " ".join(f"--ignore '*{ending}'" for ending in endings)
        hints.append(f"Records without {them}: `viaduct data build {base} --out DIR {patterns}`.")
    raise BadData(f"{base}: {len(refused):,} {files} neither JPEG nor PNG: {join_first(refused)}.", *hints)


def make_reader(base: Path) -> Callable[[SourceImage], bytes]:
    """Return a function that reads an image file, and raises `BadData` if its size has changed."""

    def read(image: SourceImage) -> bytes:
        path = base / image.name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BadData(f"{path}: could not be read: {error.strerror}.") from error
        if len(content) != image.size:
            raise BadData(
                f"{path}: it has changed since the images were listed: {image.size:,} bytes, now {len(content):,}.",
                "Start again when nothing writes to it, and build records into a new folder.",
            )
        return content

    return read


# A list of files


def open_image_list(file: Path | str) -> Origin:
    """Open a list with lines of path,label; a first line "path,label" is a header.

    A label is a class name. If all are whole numbers without leading zeros, these are the labels, even with gaps.
    """
    file = Path(file)
    images, refused = list[SourceImage](), list[str]()
    first_lines: dict[str, int] = {}
    for line, name, class_name in read_rows(file):
        if name in first_lines:
            raise BadData(f"{file}: line {line:,}: {name} is in line {first_lines[name]:,} already.")
        first_lines[name] = line
        if not (file.parent / name).is_file():
            raise BadData(f"{file}: line {line:,}: there is no file {file.parent / name}.", *suggest_header(line))
        add_image(file.parent / name, name, class_name, images, refused)
    refuse_other_files(file, refused)
    if not images:
        raise BadData(f"{file}: there are no images in this list.", "Expected lines of path,label.")
    classes = sort_classes(list({image.class_name for image in images}))
    are_numbers = all(name.isascii() and name.isdigit() and name == str(int(name)) for name in classes)
    return Origin(images, None, classes, make_reader(file.parent), file, has_numeric_labels=are_numbers)


def read_rows(file: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line number, path and label of each line except the header and empty lines."""
    try:
        refuse_special_file(file)
        with open(file, encoding="utf-8-sig", newline="") as opened:
            for number, row in enumerate(csv.reader(opened), start=1):
                cells = [cell.strip() for cell in row]
                if not any(cells) or (number == 1 and [cell.lower() for cell in cells] == ["path", "label"]):
                    continue
                if len(cells) != 2 or not all(cells):
                    message = f"{file}: line {number:,}: expected path,label, found {','.join(row)!r}."
                    raise BadData(message, *suggest_header(number))
                yield number, cells[0], cells[1]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadData(f"{file}: could not be read: {describe_error(error)}.") from error


def suggest_header(line: int) -> tuple[str, ...]:
    """Return a hint about the header of a list if the error is in line 1."""
    return ("If this line is a header, it must say path,label or be left out.",) if line == 1 else ()


# IDX files


def open_idx_files(
    images: Path | str,
    labels: Path | str,
    *,
    validation: tuple[Path | str, Path | str] | None = None,
    names: Sequence[str] = (),
) -> Origin:
    """Open images and labels in the format of MNIST (http://yann.lecun.com/exdb/mnist); images are read as grey PNGs.

    `validation` is a second pair of files. `names` are the names of classes 0, 1, …; the default is their numbers.
    """
    pairs = [read_idx_pair(Path(images), Path(labels))]
    if validation:
        pairs.append(read_idx_pair(Path(validation[0]), Path(validation[1])))
    last = max(int(labels_of_split.max(initial=0)) for _, labels_of_split in pairs)
    class_names = list(names) or [str(label) for label in range(last + 1)]
    if len(class_names) <= last or len(set(class_names)) < len(class_names):
        raise BadValue(f"expected {last + 1} different names, for the labels 0 to {last}, got {class_names!r}.")
    splits = []
    for split, (pixels, classes) in enumerate(pairs):
        digest = zlib.crc32(classes.tobytes(), zlib.crc32(pixels.tobytes()))
        _, height, width = pixels.shape
        splits.append(
            [
                SourceImage(f"{split}/{position:07d}", class_names[label], height * width, digest, position)
                for position, label in enumerate(classes.tolist())
            ]
        )

    def read(image: SourceImage) -> bytes:
        pixels, _ = pairs[int(image.name[0])]
        return encode_png(pixels[image.position, :, :, None])

    return Origin(splits[0], splits[1] if validation else None, class_names, read, Path(images))


def read_idx_pair(images: Path, labels: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Read images, N x height x width, and their N labels; raise `BadData` if the numbers differ."""
    pixels, classes = read_idx(images, IDX_IMAGES), read_idx(labels, IDX_LABELS)
    if len(pixels) != len(classes):
        raise BadData(f"{images}: {len(pixels):,} images, but {len(classes):,} labels in {labels}.")
    return pixels, classes


def read_idx(file: Path, magic: int) -> npt.NDArray[np.uint8]:
    """Read an IDX file of images or labels: the magic number, the size of each dimension (uint32), the bytes."""
    content = read_unpacked(file)
    dimensions = magic & 0xFF  # their number is the last byte of the magic number
    start = 4 + 4 * dimensions
    if len(content) < start or struct.unpack_from(">I", content)[0] != magic:
        raise BadData(f"{file}: not an IDX file of {'images' if magic == IDX_IMAGES else 'labels'}.")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    expected = start + int(np.prod(shape, dtype=object))
    if len(content) != expected or 0 in shape[1:]:
        raise BadData(f"{file}: expected {expected:,} bytes for {shape}, found {len(content):,}.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_unpacked(file: Path) -> bytes:
    """Return the content of a file, unpacked if it is gzipped; raise `BadData` if it expands too much."""
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
            raise BadData(f"{file}: expands from {size:,} to more than {limit:,} bytes.", "Unpack it with gunzip.")
        return content
    except (OSError, EOFError, zlib.error) as error:
        raise BadData(f"{file}: could not be read: {describe_error(error)}.") from error
