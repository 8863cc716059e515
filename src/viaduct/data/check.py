"""Checks of TFRecord and MindRecord files: checksums, schema, labels, images, balance, duplicates, sizes of files.

    report = check_records("records/", deep=True, decode=decode_jpeg)
    report.findings, report.shards, report.errors

A finding is an error or a warning. Errors are: corrupt, undecodable or mislabelled records; missing, damaged or
compressed files; no training files; and a split whose files have no records. With `deep` every image is decoded,
otherwise only the first bytes of each are checked. A shard is one file of a split. Bounding boxes beyond an image are a
warning: only training with crops around objects uses them, and refuses such a record.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from viaduct.data.crc32c import crc32c
from viaduct.data.example import NO_BOXES, ImageFields, decode_filename, decode_image_fields
from viaduct.data.mindrecord import MindRecordFile, is_mindrecord
from viaduct.data.mindrecord_folder import MindRecordFolder, choose_fields, has_mindrecords, open_files, split_files
from viaduct.data.notices import join_first
from viaduct.data.origins import find_image_format
from viaduct.data.shards import LABELS_FILE, SPLITS, explain_nothing_found, list_record_files, read_label_names
from viaduct.data.tfrecord import BadRecord, Record, find_compression, format_origin, iterate_records
from viaduct.errors import BadData
from viaduct.extras import MissingExtra

Severity = Literal["error", "warning"]
Progress = Callable[[int, int], None]  # number of bytes done, and of all
Decode = Callable[[bytes], object]  # raises any error if the image cannot be decoded

MAX_FINDINGS_PER_FILE = 20  # of each severity
MAX_CLASS_RATIO = 10  # images in the largest class to those in the smallest; above it a warning
MAX_SHARD_RATIO = 2  # bytes of a split's largest file to those of its smallest; above it a warning


@dataclass(frozen=True)
class Finding:
    """Problem found by the check."""

    severity: Severity
    kind: str  # what is wrong, such as corrupt, undecodable, mislabelled, imbalance, duplicates
    where: str  # a split, "both splits", a path, or a record with its file, number and byte offset
    message: str


@dataclass
class ShardCheck:
    """Counts and findings of one file, filled while it is checked."""

    split: str
    path: Path
    bytes: int
    records: int = 0
    corrupt: int = 0
    undecodable: int = 0
    mislabelled: int = 0
    with_bad_boxes: int = 0  # records with a warning about bounding boxes
    labels: Counter[int] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    fingerprints: array[int] = field(default_factory=lambda: array("Q"))  # of the images (`compute_fingerprint`)

    @property
    def record_errors(self) -> int:
        """Number of errors in records: a record that is both mislabelled and undecodable counts twice."""
        return self.corrupt + self.undecodable + self.mislabelled

    def add_finding(self, severity: Severity, kind: str, where: str, message: str) -> None:
        """Add a finding about a record unless the file has MAX_FINDINGS_PER_FILE of this severity already."""
        if sum(earlier.severity == severity for earlier in self.findings) < MAX_FINDINGS_PER_FILE:
            self.findings.append(Finding(severity, kind, where, message.rstrip(".") + "."))

    def add_corrupt(self, where: str, reason: str) -> None:
        """Count a corrupt record, and add a finding about it."""
        self.corrupt += 1
        self.add_finding("error", "corrupt", where, reason)


@dataclass(frozen=True)
class CheckReport:
    """Findings, errors first; and the counts of each file."""

    findings: list[Finding]
    shards: list[ShardCheck]

    @property
    def errors(self) -> list[Finding]:
        """Findings of severity "error"."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def count_labels(self, split: str) -> Counter[int]:
        """Return the number of images of each label in a split."""
        return sum((shard.labels for shard in self.shards if shard.split == split), Counter())


def check_records(
    folder: Path | str,
    deep: bool = False,
    *,
    decode: Decode | None = None,
    classes: int | None = None,
    workers: int = 2,
    on_progress: Progress | None = None,
) -> CheckReport:
    """Check both splits of a folder in `workers` threads; `deep` decodes every image with `decode`.

    Labels must be in labels.txt, if there is one. `classes` is the number of classes or of a network's outputs: for
    labels 1 to 1,000, as in ImageNet's records, 1,001 is right and 1,000 a warning.
    """
    if deep and decode is None:
        raise ValueError("a deep check needs a function to decode with")
    folder = Path(folder)
    names, findings = read_names(folder.parent if folder.is_file() else folder)
    shards = list_shards(folder, findings)
    checker = Checker(names, classes, decode if deep else None)
    total = sum(shard.bytes for shard in shards)
    done = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="viaduct-check") as pool:
        for shard in pool.map(checker.check, shards):
            done += shard.bytes
            if on_progress:
                on_progress(done, total)
    report = CheckReport(findings, shards)
    report.findings.extend(finding for shard in shards for finding in shard.findings)
    report.findings.extend([*find_empty_splits(shards), *find_missing_output(report, names, classes)])
    report.findings.extend([*find_imbalance(report, names), *find_duplicates(shards), *find_uneven_shards(shards)])
    report.findings.sort(key=lambda finding: finding.severity)
    return report


def read_names(folder: Path) -> tuple[dict[int, str], list[Finding]]:
    """Return the class names in labels.txt, and findings about the file."""
    where = str(folder / LABELS_FILE)
    try:
        names = read_label_names(folder)
    except BadData as error:
        return {}, [Finding("warning", "labels.txt", where, error.message)]
    if names:
        return names, []
    return {}, [Finding("warning", "labels.txt", where, "missing or empty: classes will have numbers, not names.")]


def list_shards(folder: Path, findings: list[Finding]) -> list[ShardCheck]:
    """List the files that training uses; if some of a split are missing, add a finding and list those that exist."""
    shards = []
    if has_mindrecords(folder):
        for split, paths in split_files(folder).items():
            try:
                open_files(paths)
            except BadData as error:
                findings.append(Finding("error", "incomplete", split, error.message))
            shards += [ShardCheck(split, path, path.stat().st_size) for path in paths if path.is_file()]
        return shards
    for split in SPLITS:
        try:
            files = list_record_files(folder, split)
        except BadData as error:
            if not folder.is_dir():
                raise
            findings.append(Finding("error", "incomplete", split, error.message))
            files = sorted(path for path in folder.rglob(f"{split}-?????-of-?????") if path.is_file())
        shards += [ShardCheck(split, file, file.stat().st_size) for file in files]
    if not shards:
        raise explain_nothing_found(folder, "train")
    return shards


class Checker:
    """Checks files one by one; several threads may share an instance."""

    def __init__(self, names: dict[int, str], classes: int | None, decode: Decode | None) -> None:
        self.names, self.classes, self.decode = names, classes, decode

    def check(self, shard: ShardCheck) -> ShardCheck:
        """Check all records of a file; fill in its counts and findings, and return it."""

        def add(severity: Severity, kind: str, message: str) -> None:
            shard.findings.append(Finding(severity, kind, str(shard.path), message))

        compression = ""
        if is_mindrecord(shard.path):
            self._check_mindrecord(shard)
        else:
            self._check_tfrecords(shard)
            compression = find_compression(shard.path)
        named = f"the first {MAX_FINDINGS_PER_FILE} are named."
        if shard.record_errors > MAX_FINDINGS_PER_FILE:
            add("error", "corrupt", f"its records have {shard.record_errors:,} problems; {named}")
        if shard.with_bad_boxes > MAX_FINDINGS_PER_FILE:
            add("warning", "boxes", f"{shard.with_bad_boxes:,} of its records have such boxes; {named}")
        if not shard.records and not shard.corrupt:
            add("warning", "empty", "there are no records in it.")
        if compression:
            message = f"compressed ({compression}): training reads at random, so it must be unpacked first."
            add("error", "compressed", message)
        return shard

    def _check_tfrecords(self, shard: ShardCheck) -> None:
        """Check the records of a TFRecord file up to one after which no record can be located; its finding says so."""
        for record in iterate_records(shard.path):
            shard.records += 1
            if isinstance(record, BadRecord):
                unchecked = "; what follows it in the file was not checked" if record.hides_rest else ""
                shard.add_corrupt(describe_record(shard, record), record.reason + unchecked)
                continue
            try:
                fields = decode_image_fields(record.data)
            except BadData as error:
                shard.add_corrupt(describe_record(shard, record), error.message)
            else:
                self._check_fields(shard, fields, partial(describe_record, shard, record))

    def _check_mindrecord(self, shard: ShardCheck) -> None:
        """Check a MindRecord file; a damaged header or page index, or fields of unclear meaning, are a single error."""
        try:
            file = MindRecordFile(shard.path)
            image, label = choose_fields(file, "", "")
        except BadData as error:
            shard.add_corrupt(str(shard.path), error.message)
            return
        folder = MindRecordFolder(shard.path, [file], image, label)
        for row in range(len(file)):
            shard.records += 1
            try:
                fields = ImageFields(file.read_blob(row, image), file.read_integer(row, label), "", NO_BOXES)
            except BadData as error:
                reason = error.reason if isinstance(error, BadRecord) else error.message
                shard.add_corrupt(describe_row(shard, folder, row), reason)
            else:
                self._check_fields(shard, fields, partial(describe_row, shard, folder, row))

    def _check_fields(self, shard: ShardCheck, fields: ImageFields, describe_place: Callable[[], str]) -> None:
        """Check label, image and boxes of a record; `describe_place` returns where it is, for a finding."""
        shard.fingerprints.append(compute_fingerprint(fields.encoded))
        shard.labels[fields.label] += 1
        label_error = self._find_label_error(fields.label)
        if label_error:
            shard.mislabelled += 1
            shard.add_finding("error", "mislabelled", describe_place(), label_error)
        decode_error = self._find_decode_error(fields.encoded)
        if decode_error:
            shard.undecodable += 1
            shard.add_finding("error", "undecodable", describe_place(), decode_error)
        boxes = fields.boxes
        if not ((boxes >= 0) & (boxes <= 1)).all() or (boxes[:, :2] > boxes[:, 2:]).any():
            shard.with_bad_boxes += 1
            message = "a box extends beyond the image or has its corners swapped."
            shard.add_finding("warning", "boxes", describe_place(), message)

    def _find_label_error(self, label: int) -> str | None:
        """Return what is wrong with a label; None if nothing is."""
        if label < 0:
            return f"its label is {label}"
        if self.names and label not in self.names:
            return f"its label {label} is not in {LABELS_FILE}, which has {min(self.names)} to {max(self.names)}"
        if self.classes is not None:
            # Labels begin with 1 unless labels.txt names a label 0. Without labels.txt, 0 to `classes` pass here;
            # `find_missing_output` reports them if both 0 and `classes` occur.
            last = self.classes - 1 if 0 in self.names else self.classes
            if label > last:
                return f"its label is {label}, where {self.classes} classes have {last - self.classes + 1} to {last}"
        return None

    def _find_decode_error(self, encoded: memoryview) -> str | None:
        """Return why an image cannot be decoded or, without `decode`, is neither JPEG nor PNG; None if it can or is."""
        if self.decode is None:
            return None if find_image_format(encoded) else f"its image is neither JPEG nor PNG: {bytes(encoded[:8])!r}"
        try:
            self.decode(bytes(encoded))
        except MissingExtra:
            raise
        except Exception as error:  # decoders raise many types of error, and each means that decoding failed
            return f"its image cannot be decoded: {' '.join(str(error).split()) or type(error).__name__}"
        return None


def compute_fingerprint(encoded: memoryview) -> int:
    """Return CRC-32C and CRC-32 of an image file as one 64-bit number; five times as fast as a cryptographic hash."""
    return crc32c(encoded) << 32 | zlib.crc32(encoded)


def describe_record(shard: ShardCheck, record: Record | BadRecord) -> str:
    """Return file, number, offset and, if known, image file of a record, for messages."""
    number = record.record if isinstance(record, BadRecord) else record.number
    made_from = record.made_from if isinstance(record, BadRecord) else decode_filename(record.data)
    return f"{shard.path}: record {number:,} at byte {record.offset:,}{format_origin(made_from)}"


def describe_row(shard: ShardCheck, folder: MindRecordFolder, row: int) -> str:
    """Describe a row of a MindRecord file as `describe_record` does a record; this reads its other fields."""
    return describe_record(shard, folder.make_error(row, ""))  # an error has the number, the offset and the image file


# All files together


def find_empty_splits(shards: Sequence[ShardCheck]) -> Iterator[Finding]:
    """Find splits without files or without records."""
    for split in SPLITS:
        records = [shard.records for shard in shards if shard.split == split]
        if not records:
            severity: Severity = "error" if split == "train" else "warning"
            yield Finding(severity, "empty", split, f"there are no {split} files.")
        elif not any(records):
            yield Finding("error", "empty", split, f"there are no records in its {len(records)} files.")


def find_missing_output(report: CheckReport, names: dict[int, str], classes: int | None) -> list[Finding]:
    """Report a label N if `classes` is N, because a network with N outputs (0 to N - 1) has none for it.

    Labels 1 to N are N classes, but need a network of N + 1 outputs. Labels 0 to N are N + 1 classes.
    """
    labels = {label for split in SPLITS for label in report.count_labels(split)}
    if classes is None or classes not in labels or 0 in names:
        return []
    if 0 in labels and not names:
        message = f"labels are 0 to {classes}, which are {classes + 1} classes and not {classes}."
        return [Finding("error", "mislabelled", "both splits", message)]
    advice = f"a recipe needs data.classes={classes + 1}, or data.label_shift=-1 with {classes}."
    return [Finding("warning", "classes", "both splits", f"labels go up to {classes}, counted from 1: {advice}")]


def find_imbalance(report: CheckReport, names: dict[int, str]) -> Iterator[Finding]:
    """Find classes without images, and a largest class much larger than the smallest."""
    for split in SPLITS:
        counts = report.count_labels(split)
        # Label 0 may be the background class, which has no images.
        expected = {label for label in names if label != 0 or counts[0]}
        absent = sorted(expected - set(counts)) if counts else []
        if absent:
            listed = join_first([format_label(names, label) for label in absent])
            yield Finding("warning", "imbalance", split, f"{len(absent):,} classes have no images: {listed}.")
        if counts and max(counts.values()) > MAX_CLASS_RATIO * min(counts.values()):
            (largest, most), *_, (smallest, fewest) = counts.most_common()
            message = f"{format_label(names, largest)} has {most:,} images, {format_label(names, smallest)} {fewest:,}."
            yield Finding("warning", "imbalance", split, message)


def format_label(names: dict[int, str], label: int) -> str:
    return f"{label} ({names[label]})" if label in names else str(label)


def find_duplicates(shards: Sequence[ShardCheck]) -> Iterator[Finding]:
    """Find images with equal fingerprints, within each split and between the two.

    The chance of a false report is 1 in 20 million for all of ImageNet.
    """
    fingerprints = {}
    for split in SPLITS:
        arrays = [np.array(shard.fingerprints, np.uint64) for shard in shards if shard.split == split]
        fingerprints[split] = np.concatenate([np.empty(0, np.uint64), *arrays])
        count = len(fingerprints[split])
        repeated = count - len(np.unique(fingerprints[split]))
        if repeated:
            message = f"{repeated:,} of {count:,} images are copies of another one."
            yield Finding("warning", "duplicates", split, message)
    shared = int(np.isin(fingerprints["validation"], fingerprints["train"]).sum())
    if shared:
        message = f"{shared:,} validation images are also training images; the accuracy will look too good."
        yield Finding("warning", "duplicates", "validation", message)


def find_uneven_shards(shards: Sequence[ShardCheck]) -> Iterator[Finding]:
    """Find splits whose largest file is much larger than the smallest."""
    for split in SPLITS:
        sizes = sorted((shard.bytes, shard.path.name) for shard in shards if shard.split == split)
        if sizes and sizes[-1][0] > MAX_SHARD_RATIO * sizes[0][0]:
            (fewest_bytes, smallest), (most_bytes, largest) = sizes[0], sizes[-1]
            message = f"{largest} has {most_bytes:,} bytes, {smallest} {fewest_bytes:,}."
            yield Finding("warning", "shard sizes", split, message)
