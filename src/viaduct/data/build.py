"""Sharded TFRecords built from images: train-00000-of-00016 …, validation-00000-of-00002 …, labels.txt, build.json.

    build_records("photos/", "records/")

JPEG and PNG files are stored unchanged. The images and the options determine the validation split (about the same share
of every class), the shuffled order and the shards (files of records). A shard gets its name only when it is complete,
so a build that was killed can be run again: it writes the missing shards, with the same bytes, and keeps the others
without reading them. build.json records the images and options; a build with other images or options into the same
folder is refused.

By default labels begin with 1, as in ImageNet's records (docs/data.md). Recipes with `label_shift=-1` cannot be trained
on records with `first_label=0`. labels.txt has a line "label:name" for each class, as in TF-Slim.
"""

from __future__ import annotations

import errno
import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from viaduct.atomic_files import LEFTOVERS, lock_folder, write_file
from viaduct.data.example import encode_example
from viaduct.data.jpeg import has_end_marker
from viaduct.data.notices import describe_error, join_first
from viaduct.data.origins import Origin, SourceImage, find_image_format, find_origin
from viaduct.data.shards import LABELS_FILE, SPLITS, find_shard_sets, format_shard_name
from viaduct.data.tfrecord import RecordWriter
from viaduct.errors import BadData, BadValue, DiskFull
from viaduct.json_records import rename_pictures

Progress = Callable[[int, int], None]  # number of images done, and of all

MANIFEST = "build.json"
VERSION = 1  # format of build.json
SHARD_BYTES = 128 << 20  # default size of a shard, about ImageNet's 140 MB
MAX_SHARDS = 99_999  # file names have five digits
# Defaults; also used by folder.py and mindrecord_folder.py, which train on images without building records.
VALIDATION_SHARE, SEED, FIRST_LABEL = 0.1, 0, 1


@dataclass(frozen=True)
class Shard:
    """File of records and the images in it."""

    name: str
    images: Sequence[SourceImage]


@dataclass(frozen=True)
class BuildPlan:
    """Contents of every shard, decided before anything is written."""

    shards: Sequence[Shard]
    labels: dict[str, int]  # label of each class name
    manifest: dict[str, object]  # the content of build.json
    train: int  # number of training images
    validation: int  # number of validation images


@dataclass(frozen=True)
class BuildResult:
    """What a build wrote."""

    folder: Path
    train: int  # number of training images
    validation: int  # number of validation images
    written: int  # number of shards that this build wrote
    kept: int  # number of shards that were there already
    labels: dict[str, int]  # label of each class name
    truncated: Sequence[str] = ()  # names of JPEGs without an end marker in the shards that this build wrote


def build_records(
    source: Origin | Path | str,
    out: Path | str,
    *,
    seed: int = SEED,
    validation_share: float = VALIDATION_SHARE,
    first_label: int = FIRST_LABEL,
    train_shards: int | None = None,
    validation_shards: int | None = None,
    workers: int = 4,
    strict: bool = False,
    on_progress: Progress | None = None,
) -> BuildResult:
    """Build records, or continue a build that was stopped.

    `source` is a folder of class folders, a .csv of path,label, or an `Origin` (see origins.py). If it has no
    validation images, `validation_share` of every class is set aside. By default a shard has at most about 128 MiB. A
    truncated JPEG is stored and, if this build wrote its shard, listed in the result; with `strict` it is an error, in
    shards of an earlier build, too.
    """
    check_options(validation_share, first_label, train_shards, validation_shards, workers)
    origin = source if isinstance(source, Origin) else find_origin(source)
    out = Path(out)
    refuse_output_in_source(origin.path, out)
    plan = make_plan(origin, seed, validation_share, first_label, (train_shards, validation_shards))
    with explain_write_errors(out), lock_folder(out):
        refuse_other_build(out, plan)
        for leftover in out.glob(LEFTOVERS):
            leftover.unlink(missing_ok=True)
        write_text(out / MANIFEST, json.dumps(plan.manifest, indent=2) + "\n")
        write_text(out / LABELS_FILE, "".join(f"{label}:{name}\n" for name, label in plan.labels.items()))
        present = {shard.name for shard in plan.shards if (out / shard.name).is_file()}
        kept = [shard for shard in plan.shards if shard.name in present]
        missing = [shard for shard in plan.shards if shard.name not in present]
        builder = Builder(origin, plan, out, strict, on_progress)
        if strict:
            builder.refuse_truncated(kept)
        builder.write(missing, workers)
    counts = plan.train, plan.validation, len(missing), len(kept)
    return BuildResult(out, *counts, plan.labels, sorted(builder.truncated))


def check_options(
    share: float, first_label: int, train_shards: int | None, validation_shards: int | None, workers: int
) -> None:
    """Raise `BadValue` for an option out of range."""
    if not 0 <= share < 1:
        raise BadValue(f"validation_share must be from 0 to less than 1, got {share!r}.")
    if first_label not in (0, 1):
        raise BadValue(f"first_label must be 1 or 0, got {first_label!r}.")
    if workers < 1:
        raise BadValue(f"workers must be at least 1, got {workers!r}.")
    for name, shards in (("train_shards", train_shards), ("validation_shards", validation_shards)):
        if shards is not None and not 1 <= shards <= MAX_SHARDS:
            raise BadValue(f"{name} must be from 1 to {MAX_SHARDS:,}, got {shards!r}.")


def refuse_output_in_source(source: Path, out: Path) -> None:
    """Raise `BadValue` if `out` is the source folder or lies inside it."""
    if source.is_dir() and source.resolve() in (out.resolve(), *out.resolve().parents):
        raise BadValue(f"{out}: the records cannot be written into the folder they are built from.")


# The plan


def make_plan(
    origin: Origin, seed: int, share: float, first_label: int, shards: tuple[int | None, int | None]
) -> BuildPlan:
    """Decide the split, the order and the shard of every image.

    `shards` are the requested numbers of training and validation shards; None: by size.
    """
    labels = assign_labels(origin, first_label)
    train, validation = list(origin.train), origin.validation
    if validation is None:
        train, validation = split_off_validation(train, share, seed)
    splits = [shuffle_images(train, seed), shuffle_images(validation, seed)]
    counts = [count_shards(images, requested) for images, requested in zip(splits, shards, strict=True)]
    planned = []
    for split, images, count in zip(SPLITS, splits, counts, strict=True):
        for number in range(count):
            first, end = number * len(images) // count, (number + 1) * len(images) // count
            planned.append(Shard(format_shard_name(split, number, count), images[first:end]))
    options = {
        "seed": seed,
        "validation_share": share,
        "first_label": first_label,
        "train_shards": counts[0],
        "validation_shards": counts[1],
    }
    manifest = {"version": VERSION, "source": summarise_source(origin), "options": options}
    return BuildPlan(planned, labels, manifest, len(splits[0]), len(splits[1]))


def assign_labels(origin: Origin, first_label: int) -> dict[str, int]:
    """Return the label of each class name, in label order; numeric class names of lists are their own labels."""
    for name in origin.classes:
        if not name.isprintable() or name != name.strip():
            raise BadData(f"{origin.path}: the class name {name!r} would not survive in {LABELS_FILE}.")
    if not origin.has_numeric_labels:
        return {name: label for label, name in enumerate(origin.classes, start=first_label)}
    labels = {name: int(name) for name in origin.classes}
    smallest = min(labels.values())
    if smallest < first_label:
        raise BadValue(
            f"{origin.path}: its labels begin with {smallest}, but first_label is {first_label}.",
            f"Number them from {first_label}, or give first_label {smallest} to keep them as they are.",
        )
    return labels


def split_off_validation(
    images: Sequence[SourceImage], share: float, seed: int
) -> tuple[list[SourceImage], list[SourceImage]]:
    """Split images into training and validation: about the same share of every class, drawn by the seed.

    Unless the share is 0, a class of two or more images has at least one in each split; a single image is for training.
    """
    by_class: dict[str, list[SourceImage]] = defaultdict(list)
    for image in images:
        by_class[image.class_name].append(image)
    train, validation = list[SourceImage](), list[SourceImage]()
    for members in by_class.values():
        drawn = shuffle_images(members, seed, purpose="set aside")
        count = min(max(1, round(share * len(drawn))), len(drawn) - 1) if share else 0
        validation += drawn[:count]
        train += drawn[count:]
    return train, validation


def shuffle_images(images: Iterable[SourceImage], seed: int, purpose: str = "order") -> list[SourceImage]:
    """Return the images in an order that depends only on the seed and their names."""

    def compute_key(image: SourceImage) -> bytes:
        return hashlib.sha256(f"{seed}\0{purpose}\0{image.name}".encode("utf-8", "surrogateescape")).digest()

    return sorted(images, key=compute_key)


def count_shards(images: Sequence[SourceImage], requested: int | None) -> int:
    """Return the number of shards: as requested, or by total size; never more than images or MAX_SHARDS."""
    by_size = -(-sum(image.size for image in images) // SHARD_BYTES)
    return min(requested or max(by_size, 1), len(images), MAX_SHARDS)


def summarise_source(origin: Origin) -> dict[str, object]:
    """Return counts, and a digest of names, classes, sizes and modification times, which shows changed images."""
    digest = hashlib.sha256("\n".join(origin.classes).encode("utf-8", "surrogateescape"))
    images = [*origin.train, *(origin.validation or ())]
    for image in images:
        line = f"{image.name}\0{image.class_name}\0{image.size}\0{image.modified}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return {
        "classes": len(origin.classes),
        "images": len(images),
        "bytes": sum(image.size for image in images),
        "digest": digest.hexdigest(),
    }


# An earlier build


def refuse_other_build(out: Path, plan: BuildPlan) -> None:
    """Raise `BadData` if the folder contains other files, or a build of other images or options."""
    if not (out / MANIFEST).is_file():
        files = [
            path.name for split in SPLITS for shards in find_shard_sets(out, split).values() for path in shards.values()
        ]
        if files:
            raise BadData(f"{out}: it already has records, but no {MANIFEST}: {min(files)} …", "Name a new folder.")
        others = [path.name for path in out.iterdir() if not path.name.startswith(".") and path.name != "lost+found"]
        if others:
            raise BadData(f"{out}: it has other files: {join_first(sorted(others))}.", "Name a new or an empty folder.")
        return
    earlier = read_manifest(out / MANIFEST)
    if earlier == plan.manifest:
        return
    hint = "Name a new folder, or delete this one to build again from the beginning."
    if earlier.get("source") != plan.manifest["source"]:
        changes = describe_source_change(earlier, plan)
        raise BadData(f"{out}: the images have changed since this build began: {changes}.", hint)
    raise BadData(f"{out}: this build began with other options: {describe_option_change(earlier, plan)}.", hint)


def read_manifest(path: Path) -> dict[str, object]:
    """Return the content of build.json, with keys of older versions renamed; {} if it is no JSON object."""
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path}: could not be read: {describe_error(error)}."
        raise BadData(message, "Name a new folder to build into.") from error
    if not isinstance(manifest, dict):
        return {}
    if isinstance(source := manifest.get("source"), dict):
        rename_pictures(source)
    return manifest


def describe_source_change(earlier: dict[str, object], plan: BuildPlan) -> str:
    """Describe how the images differ from those of an earlier build."""
    before, now = earlier.get("source"), plan.manifest["source"]
    assert isinstance(now, dict)
    if not isinstance(before, dict):
        return "build.json does not describe them"
    differences = [
        f"{before[key]:,} {key}, now {now[key]:,}"
        for key in ("images", "bytes", "classes")
        if isinstance(before.get(key), int) and before[key] != now[key]
    ]
    return "; ".join(differences) or "same number and total size, but other names, classes, sizes or modification times"


def describe_option_change(earlier: dict[str, object], plan: BuildPlan) -> str:
    """Describe how the options or the version of build.json differ from those of an earlier build."""
    before, now = earlier.get("options"), plan.manifest["options"]
    assert isinstance(now, dict)
    if not isinstance(before, dict):
        return "build.json does not list them"
    changes = [f"{name} {before.get(name)!r}, now {now[name]!r}" for name in now if before.get(name) != now[name]]
    return ", ".join(changes) or f"{MANIFEST} of version {earlier.get('version')!r}, now {VERSION}"


def write_text(path: Path, content: str) -> None:
    write_file(path, content.encode("utf-8", "surrogateescape"))


@contextmanager
def explain_write_errors(out: Path) -> Iterator[None]:
    """Create the folder; within the `with` block, turn file system errors into messages that say what to do."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"{out}: the disk is full, or a quota is used up.",
                "The finished shards are complete: make room and run the same build again.",
            ) from error
        if out.exists() and not out.is_dir():
            raise BadData(f"{out}: it is a file, and records go into a folder.", "Name a folder.") from error
        raise BadData(f"{out}: could not be written to: {describe_error(error)}.") from error


# The shards


class StoppedEarly(Exception):
    """Raised in a thread that stops because another shard failed or the build was interrupted."""


class Builder:
    """Writer of shards in threads."""

    def __init__(self, origin: Origin, plan: BuildPlan, out: Path, strict: bool, on_progress: Progress | None) -> None:
        self.origin, self.plan, self.out, self.strict = origin, plan, out, strict
        self.truncated: list[str] = []  # names of JPEGs without an end marker
        self._total = plan.train + plan.validation  # images of all shards
        self._done = 0
        self._on_progress = on_progress or (lambda done, total: None)
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def write(self, missing: Sequence[Shard], workers: int) -> None:
        """Write the missing shards; if one fails, stop the others and raise its error."""
        self._advance(self._total - sum(len(shard.images) for shard in missing))
        with ThreadPoolExecutor(workers, thread_name_prefix="viaduct-build") as pool:
            pending = [pool.submit(self._write_shard, shard) for shard in missing]
            try:
                wait(pending, return_when=FIRST_EXCEPTION)
            finally:
                self._stop.set()  # stops the other shards after a failure or an interrupt
                pool.shutdown(wait=True, cancel_futures=True)
        failures = [error for future in pending if not future.cancelled() and (error := future.exception())]
        if failures:  # the cause is the failure that is not a StoppedEarly
            raise min(failures, key=lambda error: isinstance(error, StoppedEarly))

    def refuse_truncated(self, kept: Sequence[Shard]) -> None:
        """Raise `BadData` for a JPEG without an end marker in shards of an earlier build, which may have stored it."""
        for shard in kept:
            for image in shard.images:
                self._read_image(image)

    def _write_shard(self, shard: Shard) -> None:
        with RecordWriter(self.out / shard.name) as writer:
            for image in shard.images:
                if self._stop.is_set():
                    raise StoppedEarly
                writer.write(self._encode_record(image))
                self._advance(1)

    def _encode_record(self, image: SourceImage) -> bytes:
        """Return the tf.train.Example of an image, which is not decoded."""
        encoded, image_format = self._read_image(image)
        return encode_example(
            {
                "image/class/label": self.plan.labels[image.class_name],
                "image/class/text": image.class_name.encode("utf-8", "surrogateescape"),
                "image/encoded": encoded,
                "image/filename": image.name.encode("utf-8", "surrogateescape"),
                "image/format": image_format,
            }
        )

    def _read_image(self, image: SourceImage) -> tuple[bytes, str]:
        """Return the content of an image file, and "JPEG" or "PNG".

        A JPEG without an end marker is added to `truncated`, or refused with `strict`.
        """
        encoded = self.origin.read(image)
        image_format = find_image_format(encoded)
        if image_format is None:
            raise BadData(f"{self.origin.path}: {image.name}: no longer a JPEG or PNG file.")
        if image_format == "JPEG" and not has_end_marker(encoded):
            if self.strict:
                raise BadData(f"{self.origin.path}: {image.name}: the JPEG is cut short: it has no end marker.")
            with self._lock:
                self.truncated.append(image.name)
        return encoded, image_format

    def _advance(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._on_progress(self._done, self._total)
