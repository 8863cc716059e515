"""Sharded TFRecords out of images: train-00000-of-00016 …, validation-00000-of-00002 …, labels.txt, build.json.

    build_records("photos/", "records/", on_progress=lambda done, total: ...)

The bytes of a JPEG or PNG file are stored as they are. Everything follows from the images and the options: which
ones are set aside for validation (the same share of every class), their order (shuffled), and where a shard begins.
A shard is there whole or not at all, so a build that was killed is simply run again: it keeps the shards that are
there and ends with the same bytes. build.json says what the shards were planned from; other images or other options
are refused.

Labels begin with 1, as in ImageNet's records, so that all reference networks take them as they take ImageNet: a
network has one output more than there are classes. Most references leave output 0 unused; ResNet-50 v1.5 subtracts 1
and leaves the last. With `first_label=0` there is no spare output, and v1.5 cannot be trained. labels.txt
has "label:name" a line, as TF-Slim writes it, which says for itself where the labels begin.
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

from viaduct.atomic_files import LEFTOVERS, lock_folder, replace_file
from viaduct.data.example import encode_example
from viaduct.data.jpeg import has_end_marker
from viaduct.data.notices import reason
from viaduct.data.origins import Origin, SourceImage, find_origin, image_format, join_first
from viaduct.data.shards import LABELS_FILE, SPLITS, shard_name, shard_sets
from viaduct.data.tfrecord import RecordWriter
from viaduct.errors import BadData, BadValue, DiskFull

Progress = Callable[[int, int], None]

MANIFEST = "build.json"
VERSION = 1
SHARD_BYTES = 128 << 20  # about ImageNet's 140 MB
MAX_SHARDS = 99_999
WORKERS = 4


@dataclass(frozen=True)
class Shard:
    """File of records and the images in it."""

    name: str
    images: Sequence[SourceImage]


@dataclass(frozen=True)
class Plan:
    """Contents of every shard, decided before anything is written."""

    shards: Sequence[Shard]
    labels: dict[str, int]
    manifest: dict[str, object]
    train: int
    validation: int


@dataclass(frozen=True)
class Built:
    """Outcome of a build."""

    folder: Path
    train: int  # images
    validation: int
    written: int  # shards
    kept: int  # shards that were there already
    labels: dict[str, int]  # class name to label
    cut_short: Sequence[str] = ()  # JPEGs without an end marker, among the images that were written this time


def build_records(
    source: Origin | Path | str,
    out: Path | str,
    *,
    seed: int = 0,
    validation_share: float = 0.1,
    first_label: int = 1,
    train_shards: int | None = None,
    validation_shards: int | None = None,
    workers: int = WORKERS,
    strict: bool = False,
    on_progress: Progress | None = None,
) -> Built:
    """Build records, or go on with a build that was stopped.

    `source` is a folder of class folders, a .csv of path,label, or an `Origin` (see origins.py). `validation_share` of
    every class is set aside where the source has no validation images of its own; 0 sets none aside. Without a
    number of shards each has about 128 MiB. A JPEG that is cut short goes in and is named; with `strict` it ends the
    build. `on_progress(done, total)` counts images.
    """
    check_options(validation_share, first_label, train_shards, validation_shards, workers)
    origin = source if isinstance(source, Origin) else find_origin(source)
    out = Path(out)
    refuse_nested(origin.path, out)
    plan = make_plan(origin, seed, validation_share, first_label, (train_shards, validation_shards))
    with writable(out), lock_folder(out):
        agree_with_earlier(out, plan)
        for leftover in out.glob(LEFTOVERS):
            leftover.unlink(missing_ok=True)
        write_text(out / MANIFEST, json.dumps(plan.manifest, indent=2) + "\n")
        write_text(out / LABELS_FILE, "".join(f"{label}:{name}\n" for name, label in plan.labels.items()))
        missing = [shard for shard in plan.shards if not (out / shard.name).is_file()]
        builder = Builder(origin, plan, out, strict, on_progress)
        builder.write(missing, workers)
    kept = len(plan.shards) - len(missing)
    return Built(out, plan.train, plan.validation, len(missing), kept, plan.labels, sorted(builder.cut_short))


def check_options(
    share: float, first_label: int, train_shards: int | None, validation_shards: int | None, workers: int
) -> None:
    if not 0 <= share < 1:
        raise BadValue(f"validation_share must be from 0 to less than 1, got {share!r}.")
    if first_label not in (0, 1):
        raise BadValue(f"first_label must be 1 or 0, got {first_label!r}.")
    if workers < 1:
        raise BadValue(f"workers must be at least 1, got {workers!r}.")
    for name, shards in (("train_shards", train_shards), ("validation_shards", validation_shards)):
        if shards is not None and not 1 <= shards <= MAX_SHARDS:
            raise BadValue(f"{name} must be from 1 to {MAX_SHARDS:,}, got {shards!r}.")


def refuse_nested(source: Path, out: Path) -> None:
    """Refuse to write the records into the folder they are built from."""
    if source.is_dir() and source.resolve() in (out.resolve(), *out.resolve().parents):
        raise BadValue(f"{out}: the records cannot be written into the folder they are built from.")


# The plan


def make_plan(origin: Origin, seed: int, share: float, first_label: int, shards: tuple[int | None, int | None]) -> Plan:
    """Decide the split, the order and the shard of every image."""
    labels = number_classes(origin, first_label)
    train, validation = list(origin.train), origin.validation
    if validation is None:
        train, validation = set_aside(train, share, seed)
    splits = [shuffle_images(train, seed), shuffle_images(validation, seed)]
    counts = [shard_count(images, wanted) for images, wanted in zip(splits, shards, strict=True)]
    planned = [
        Shard(shard_name(split, number, count), images)
        for split, members, count in zip(SPLITS, splits, counts, strict=True)
        for number, images in enumerate(split_evenly(members, count))
    ]
    options = {
        "seed": seed,
        "validation_share": share,
        "first_label": first_label,
        "train_shards": counts[0],
        "validation_shards": counts[1],
    }
    manifest = {"version": VERSION, "source": source_summary(origin), "options": options}
    return Plan(planned, labels, manifest, len(splits[0]), len(splits[1]))


def number_classes(origin: Origin, first_label: int) -> dict[str, int]:
    """Return the label of each class name, in label order."""
    for name in origin.classes:
        if not name.isprintable() or name != name.strip():
            raise BadData(f"{origin.path}: the class name {name!r} would not survive in {LABELS_FILE}.")
    if not origin.labels_given:
        return {name: label for label, name in enumerate(origin.classes, start=first_label)}
    labels = {name: int(name) for name in origin.classes}
    smallest = min(labels.values())
    if smallest < first_label:
        raise BadValue(
            f"{origin.path}: its labels begin with {smallest}, but first_label is {first_label}.",
            f"Number them from {first_label}, or give first_label {smallest} to keep them as they are.",
        )
    return labels


def set_aside(images: Sequence[SourceImage], share: float, seed: int) -> tuple[list[SourceImage], list[SourceImage]]:
    """Draw the same share of every class by the seed.

    A class of two has one in each split; a class of one only trains.
    """
    groups: dict[str, list[SourceImage]] = defaultdict(list)
    for image in images:
        groups[image.group].append(image)
    train, validation = list[SourceImage](), list[SourceImage]()
    for members in groups.values():
        drawn = shuffle_images(members, seed, purpose="set aside")
        count = min(max(1, round(share * len(drawn))), len(drawn) - 1) if share else 0
        validation += drawn[:count]
        train += drawn[count:]
    return train, validation


def shuffle_images(images: Iterable[SourceImage], seed: int, purpose: str = "order") -> list[SourceImage]:
    """Return the images in an order that follows from seed and names alone.

    It does not depend on the machine, the folder or the version of a library.
    """

    def draw(image: SourceImage) -> bytes:
        return hashlib.sha256(f"{seed}\0{purpose}\0{image.name}".encode("utf-8", "surrogateescape")).digest()

    return sorted(images, key=draw)


def shard_count(images: Sequence[SourceImage], wanted: int | None) -> int:
    """Return the number of shards: at most one an image, 0 without images."""
    natural = -(-sum(image.size for image in images) // SHARD_BYTES)
    return min(wanted or max(natural, 1), len(images), MAX_SHARDS)


def split_evenly(images: Sequence[SourceImage], count: int) -> Iterator[Sequence[SourceImage]]:
    """Yield `count` runs whose lengths differ by one at most."""
    for number in range(count):
        yield images[number * len(images) // count : (number + 1) * len(images) // count]


def source_summary(origin: Origin) -> dict[str, object]:
    """Return enough to tell whether the images are still the same ones, without reading them."""
    digest = hashlib.sha256("\n".join(origin.classes).encode("utf-8", "surrogateescape"))
    images = [*origin.train, *(origin.validation or ())]
    for image in images:
        line = f"{image.name}\0{image.group}\0{image.size}\0{image.changed}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return {
        "classes": len(origin.classes),
        "pictures": len(images),
        "bytes": sum(image.size for image in images),
        "digest": digest.hexdigest(),
    }


# An earlier build


def agree_with_earlier(out: Path, plan: Plan) -> None:
    """Raise `BadData` if the folder holds other files, or a build of other images or options."""
    if not (out / MANIFEST).is_file():
        strangers = sorted(
            path.name for split in SPLITS for found in shard_sets(out, split).values() for path in found.values()
        )
        if strangers:
            raise BadData(
                f"{out}: there are records already, not of this build: {strangers[0]} …", "Name a new folder."
            )
        refuse_foreign_files(out)
        return
    earlier = read_manifest(out / MANIFEST)
    if earlier == plan.manifest:
        return
    hint = "Name a new folder, or delete this one to build again from the beginning."
    if earlier.get("source") != plan.manifest["source"]:
        raise BadData(f"{out}: the images have changed since this build began: {source_change(earlier, plan)}.", hint)
    raise BadData(f"{out}: this build began with other options: {option_change(earlier, plan)}.", hint)


def refuse_foreign_files(out: Path) -> None:
    """Refuse a folder with files of another kind.

    Hidden files, and those that belong to the disk, are ignored.
    """
    found = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    others = [name for name in found if name != "lost+found"]
    if others:
        raise BadData(f"{out}: it holds other things: {join_first(others)}.", "Name a new or an empty folder.")


def read_manifest(path: Path) -> dict[str, object]:
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadData(f"{path}: could not be read: {reason(error)}.", "Name a new folder to build into.") from error
    return manifest if isinstance(manifest, dict) else {}


def source_change(earlier: dict[str, object], plan: Plan) -> str:
    """Describe how the images differ from those of an earlier build."""
    then, now = earlier.get("source"), plan.manifest["source"]
    assert isinstance(now, dict)
    if not isinstance(then, dict):
        return "build.json does not say what they were"
    counted = [
        f"{then[key]:,} {noun}, now {now[key]:,}"
        for key, noun in (("pictures", "images"), ("bytes", "bytes"), ("classes", "classes"))
        if then.get(key) != now[key]
    ]
    return "; ".join(counted) or "as many and as large, but with other names, classes or times of change"


def option_change(earlier: dict[str, object], plan: Plan) -> str:
    """Describe how the options differ from those of an earlier build."""
    then, now = earlier.get("options"), plan.manifest["options"]
    assert isinstance(now, dict)
    if not isinstance(then, dict):
        return "build.json does not say which"
    return ", ".join(f"{name} {then.get(name)!r}, now {now[name]!r}" for name in now if then.get(name) != now[name])


def write_text(path: Path, content: str) -> None:
    with replace_file(path) as file:
        file.write(content.encode("utf-8", "surrogateescape"))


@contextmanager
def writable(out: Path) -> Iterator[None]:
    """Make a folder, and explain why writing to it fails."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"{out}: the disk is full.",
                "The shards that are there are whole: make room and run the same build again.",
            ) from error
        if out.exists() and not out.is_dir():
            raise BadData(f"{out}: it is a file, and records go into a folder.", "Name a folder.") from error
        raise BadData(f"{out}: could not be written to: {reason(error)}.") from error


# The shards


class Stopped(Exception):
    """Raised in a thread whose shard ends early because another shard failed."""


class Builder:
    """Writes shards in threads: reading, writing and PNG's compression all leave Python free to go on."""

    def __init__(self, origin: Origin, plan: Plan, out: Path, strict: bool, on_progress: Progress | None) -> None:
        self.origin, self.plan, self.out, self.strict = origin, plan, out, strict
        self.cut_short: list[str] = []
        self.total = plan.train + plan.validation
        self.done = 0
        self._on_progress = on_progress or (lambda done, total: None)
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def write(self, missing: Sequence[Shard], workers: int) -> None:
        self._advance(self.total - sum(len(shard.images) for shard in missing))
        with ThreadPoolExecutor(workers, thread_name_prefix="viaduct-build") as pool:
            pending = [pool.submit(self._write_shard, shard) for shard in missing]
            try:
                wait(pending, return_when=FIRST_EXCEPTION)
            finally:
                self._stop.set()  # after a failure or an interrupt; otherwise nobody looks any more
                pool.shutdown(wait=True, cancel_futures=True)
        failures = [error for future in pending if not future.cancelled() and (error := future.exception())]
        for error in sorted(failures, key=lambda error: isinstance(error, Stopped)):
            raise error

    def _write_shard(self, shard: Shard) -> None:
        with RecordWriter(self.out / shard.name) as writer:
            for image in shard.images:
                if self._stop.is_set():
                    raise Stopped
                writer.write(self._example(image))
                self._advance(1)

    def _example(self, image: SourceImage) -> bytes:
        encoded = self.origin.read(image)
        form = image_format(encoded)
        if form is None:
            raise BadData(f"{self.origin.path}: {image.name}: neither JPEG nor PNG any more.")
        if form == "JPEG" and not has_end_marker(encoded):
            self._note_cut_short(image)
        return encode_example(
            {
                "image/class/label": self.plan.labels[image.group],
                "image/class/text": image.group.encode("utf-8", "surrogateescape"),
                "image/encoded": encoded,
                "image/filename": image.name.encode("utf-8", "surrogateescape"),
                "image/format": form,
            }
        )

    def _note_cut_short(self, image: SourceImage) -> None:
        """Only the end marker is looked for, which costs next to nothing; `data check --deep` decodes."""
        if self.strict:
            raise BadData(f"{self.origin.path}: {image.name}: the JPEG is cut short: it has no end marker.")
        with self._lock:
            self.cut_short.append(image.name)

    def _advance(self, count: int) -> None:
        with self._lock:
            self.done += count
            self._on_progress(self.done, self.total)
