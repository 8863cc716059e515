"""Sharded TFRecords out of images: train-00000-of-00016 …, validation-00000-of-00002 …, labels.txt, build.json.

    build_records("photos/", "records/", on_progress=lambda done, total: ...)

The bytes of a JPEG or PNG file are stored as they are. The images and the options determine everything: which images
are set aside for validation (the same share of every class), their order (shuffled), and where a shard begins. A shard
is there whole or not at all, so a build that was killed is simply run again: it keeps the shards that are there and
ends with the same bytes. build.json says what the shards were planned from; other images or other options are refused.

Labels begin with 1, as in ImageNet's records, so that all reference networks take them as they take ImageNet: a
network has one output more than there are classes. Most references leave output 0 unused; ResNet-50 v1.5 subtracts 1
from the label and leaves the last output unused. With `first_label=0` there is no spare output, and v1.5 cannot be
trained. labels.txt has a line "label:name" for each class, as TF-Slim writes it.
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
from viaduct.data.notices import join_first, reason
from viaduct.data.origins import Origin, SourceImage, find_image_format, find_origin
from viaduct.data.shards import LABELS_FILE, SPLITS, find_shard_sets, shard_name
from viaduct.data.tfrecord import RecordWriter
from viaduct.errors import BadData, BadValue, DiskFull

Progress = Callable[[int, int], None]

MANIFEST = "build.json"
VERSION = 1  # of build.json
SHARD_BYTES = 128 << 20  # about ImageNet's 140 MB
MAX_SHARDS = 99_999  # file names have five digits
# The defaults; images that are trained on without building records are split and labelled by these, too.
VALIDATION_SHARE, SEED, FIRST_LABEL = 0.1, 0, 1


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
    seed: int = SEED,
    validation_share: float = VALIDATION_SHARE,
    first_label: int = FIRST_LABEL,
    train_shards: int | None = None,
    validation_shards: int | None = None,
    workers: int = 4,
    strict: bool = False,
    on_progress: Progress | None = None,
) -> Built:
    """Build records, or continue a build that was stopped.

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
    with explain_write_errors(out), lock_folder(out):
        refuse_other_build(out, plan)
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
    counts = [count_shards(images, requested) for images, requested in zip(splits, shards, strict=True)]
    planned = [
        Shard(
            shard_name(split, number, count),
            members[number * len(members) // count : (number + 1) * len(members) // count],
        )
        for split, members, count in zip(SPLITS, splits, counts, strict=True)
        for number in range(count)
    ]
    options = {
        "seed": seed,
        "validation_share": share,
        "first_label": first_label,
        "train_shards": counts[0],
        "validation_shards": counts[1],
    }
    manifest = {"version": VERSION, "source": summarise_source(origin), "options": options}
    return Plan(planned, labels, manifest, len(splits[0]), len(splits[1]))


def number_classes(origin: Origin, first_label: int) -> dict[str, int]:
    """Return the label of each class name, in label order."""
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


def set_aside(images: Sequence[SourceImage], share: float, seed: int) -> tuple[list[SourceImage], list[SourceImage]]:
    """Return the images to train on and those to validate with: the same share of every class, drawn by the seed.

    A class of two has one in each split; a class of one only trains.
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
    """Return the images in an order that follows from seed and names alone.

    It does not depend on the machine, the folder or the version of a library.
    """

    def draw(image: SourceImage) -> bytes:
        return hashlib.sha256(f"{seed}\0{purpose}\0{image.name}".encode("utf-8", "surrogateescape")).digest()

    return sorted(images, key=draw)


def count_shards(images: Sequence[SourceImage], requested: int | None) -> int:
    """Return the number of shards, as requested or by the bytes of the images; at most one an image."""
    by_size = -(-sum(image.size for image in images) // SHARD_BYTES)
    return min(requested or max(by_size, 1), len(images), MAX_SHARDS)


def summarise_source(origin: Origin) -> dict[str, object]:
    """Return counts and a digest by which changed images are noticed without reading them."""
    digest = hashlib.sha256("\n".join(origin.classes).encode("utf-8", "surrogateescape"))
    images = [*origin.train, *(origin.validation or ())]
    for image in images:
        line = f"{image.name}\0{image.class_name}\0{image.size}\0{image.modified}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return {
        "classes": len(origin.classes),
        "pictures": len(images),
        "bytes": sum(image.size for image in images),
        "digest": digest.hexdigest(),
    }


# An earlier build


def refuse_other_build(out: Path, plan: Plan) -> None:
    """Raise `BadData` if the folder holds other files, or a build of other images or options."""
    if not (out / MANIFEST).is_file():
        files = [
            path.name for split in SPLITS for shards in find_shard_sets(out, split).values() for path in shards.values()
        ]
        if files:
            raise BadData(f"{out}: there are records already, not of this build: {min(files)} …", "Name a new folder.")
        refuse_foreign_files(out)
        return
    earlier = read_manifest(out / MANIFEST)
    if earlier == plan.manifest:
        return
    hint = "Name a new folder, or delete this one to build again from the beginning."
    if earlier.get("source") != plan.manifest["source"]:
        changes = describe_source_change(earlier, plan)
        raise BadData(f"{out}: the images have changed since this build began: {changes}.", hint)
    raise BadData(f"{out}: this build began with other options: {describe_option_change(earlier, plan)}.", hint)


def refuse_foreign_files(out: Path) -> None:
    """Refuse a folder with any files but hidden ones and the file system's lost+found."""
    names = [path.name for path in out.iterdir() if not path.name.startswith(".") and path.name != "lost+found"]
    if names:
        raise BadData(f"{out}: it holds other things: {join_first(sorted(names))}.", "Name a new or an empty folder.")


def read_manifest(path: Path) -> dict[str, object]:
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadData(f"{path}: could not be read: {reason(error)}.", "Name a new folder to build into.") from error
    return manifest if isinstance(manifest, dict) else {}


def describe_source_change(earlier: dict[str, object], plan: Plan) -> str:
    """Describe how the images differ from those of an earlier build."""
    then, now = earlier.get("source"), plan.manifest["source"]
    assert isinstance(now, dict)
    if not isinstance(then, dict):
        return "build.json does not say what they were"
    differences = [
        f"{then[key]:,} {noun}, now {now[key]:,}"
        for key, noun in (("pictures", "images"), ("bytes", "bytes"), ("classes", "classes"))
        if then.get(key) != now[key]
    ]
    return "; ".join(differences) or "as many and as large, but with other names, classes or times of change"


def describe_option_change(earlier: dict[str, object], plan: Plan) -> str:
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
def explain_write_errors(out: Path) -> Iterator[None]:
    """Make a folder; within the block, turn errors of the file system into messages that say what to do."""
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
    """Writer of shards in threads: reading, writing and PNG's compression all release Python's global lock."""

    def __init__(self, origin: Origin, plan: Plan, out: Path, strict: bool, on_progress: Progress | None) -> None:
        self.origin, self.plan, self.out, self.strict = origin, plan, out, strict
        self.cut_short: list[str] = []  # names of JPEGs without an end marker
        self._total = plan.train + plan.validation  # images
        self._done = 0
        self._on_progress = on_progress or (lambda done, total: None)
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def write(self, missing: Sequence[Shard], workers: int) -> None:
        """Write the missing shards; if one fails, end the others and raise its error."""
        self._advance(self._total - sum(len(shard.images) for shard in missing))
        with ThreadPoolExecutor(workers, thread_name_prefix="viaduct-build") as pool:
            pending = [pool.submit(self._write_shard, shard) for shard in missing]
            try:
                wait(pending, return_when=FIRST_EXCEPTION)
            finally:
                self._stop.set()  # ends other shards after a failure or an interrupt; has no effect after success
                pool.shutdown(wait=True, cancel_futures=True)
        failures = [error for future in pending if not future.cancelled() and (error := future.exception())]
        if failures:  # the failure itself rather than a `Stopped` that followed from it
            raise min(failures, key=lambda error: isinstance(error, Stopped))

    def _write_shard(self, shard: Shard) -> None:
        with RecordWriter(self.out / shard.name) as writer:
            for image in shard.images:
                if self._stop.is_set():
                    raise Stopped
                writer.write(self._encode_record(image))
                self._advance(1)

    def _encode_record(self, image: SourceImage) -> bytes:
        """Return the tf.train.Example of an image.

        A JPEG without an end marker is noted, or refused with `strict`. Only `data check --deep` decodes images.
        """
        encoded = self.origin.read(image)
        image_format = find_image_format(encoded)
        if image_format is None:
            raise BadData(f"{self.origin.path}: {image.name}: neither JPEG nor PNG any more.")
        if image_format == "JPEG" and not has_end_marker(encoded):
            if self.strict:
                raise BadData(f"{self.origin.path}: {image.name}: the JPEG is cut short: it has no end marker.")
            with self._lock:
                self.cut_short.append(image.name)
        return encode_example(
            {
                "image/class/label": self.plan.labels[image.class_name],
                "image/class/text": image.class_name.encode("utf-8", "surrogateescape"),
                "image/encoded": encoded,
                "image/filename": image.name.encode("utf-8", "surrogateescape"),
                "image/format": image_format,
            }
        )

    def _advance(self, count: int) -> None:
        """Count images as done and report progress."""
        with self._lock:
            self._done += count
            self._on_progress(self._done, self._total)
