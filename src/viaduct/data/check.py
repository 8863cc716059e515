"""Checks of record files: checksums, schema, labels, images, balance, duplicates, shard sizes.

    report = check_records("records/", deep=True, decode=decode_jpeg)
    report.findings, report.shards, report.errors

An error is a record that training could not use or would learn something wrong from: corrupt, undecodable or
mislabelled; a file that is missing, damaged or compressed; no training files; or a split without a record. All other
findings are warnings. With `deep` every image is decoded; without it only its first bytes are looked at.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from viaduct.data.crc32c import crc32c
from viaduct.data.example import ImageFields, image_fields, image_filename
from viaduct.data.mindrecord import MindRecordFile, is_mindrecord
from viaduct.data.mindrecord_folder import (
    MindRecordFolder,
    choose_fields,
    holds_mindrecords,
    open_files,
    split_files,
)
from viaduct.data.origins import image_format
from viaduct.data.shards import LABELS_FILE, SPLITS, explain_nothing_found, read_label_names, record_files
from viaduct.data.tfrecord import BadRecord, Record, compression, origin_note, survey_records
from viaduct.errors import BadData
from viaduct.extras import MissingExtra

Severity = Literal["error", "warning"]
Kind = Literal[
    "corrupt",
    "undecodable",
    "mislabelled",
    "incomplete",
    "imbalance",
    "duplicates",
    "boxes",
    "shard sizes",
    "labels.txt",
    "compressed",
    "empty",
    "classes",
]
Progress = Callable[[int, int], None]
Decode = Callable[[bytes], object]

NAMED_AT_MOST = 5
MAX_FINDINGS_PER_FILE = 20  # of each severity
UNEVEN_CLASSES = 10  # a warning if the largest class has more than so many times the images of the smallest
UNEVEN_SHARDS = 2  # likewise for the bytes of a split's files


@dataclass(frozen=True)
class Finding:
    """Problem, and where it is."""

    severity: Severity
    kind: Kind
    where: str  # a file, with record and byte if it is a record; or a split
    message: str


@dataclass
class ShardCheck:
    """Line of the table: contents of a file, and how much of it is bad."""

    split: str
    path: Path
    bytes: int
    records: int = 0
    corrupt: int = 0
    undecodable: int = 0
    mislabelled: int = 0
    labels: Counter[int] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    digests: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    @property
    def bad(self) -> int:
        """Number of problems with records; a record that is both mislabelled and undecodable counts twice."""
        return self.corrupt + self.undecodable + self.mislabelled


@dataclass(frozen=True)
class CheckReport:
    """Findings, errors first, then warnings; and the figures of each file."""

    findings: list[Finding]
    shards: list[ShardCheck]

    @property
    def errors(self) -> list[Finding]:
        """Findings of severity "error"."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def labels(self, split: str) -> Counter[int]:
        """Return how many images each label has in a split."""
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
    """Check both splits of a folder. `deep` decodes every image with `decode`, in as many threads as `workers`.

    Labels must be in labels.txt, if that file names any. `classes` is the number of classes, or the number of a
    network's outputs: where labels begin with 1, as in ImageNet's records, 1,000 classes are 1 to 1,000 and fit 1,001
    outputs, so both numbers pass. `on_progress(done, total)` counts bytes.
    """
    if deep and decode is None:
        raise ValueError("a deep check needs a function to decode with")
    folder = Path(folder)
    names, findings = check_names(folder.parent if folder.is_file() else folder)
    shards = find_shards(folder, findings)
    checker = Checker(names, classes, decode if deep else None)
    total = sum(shard.bytes for shard in shards)
    done = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="viaduct-check") as pool:
        for shard in pool.map(checker.check, shards):
            done += shard.bytes
            if on_progress:
                on_progress(done, total)
    report = CheckReport(findings, shards)
    findings += [finding for shard in shards for finding in shard.findings]
    findings += [*find_empty_splits(shards), *find_spare_output(report, names, classes)]
    findings += [*find_imbalance(report, names), *find_duplicates(shards), *find_uneven_shards(shards)]
    findings.sort(key=lambda finding: finding.severity)
    return report


def check_names(folder: Path) -> tuple[dict[int, str], list[Finding]]:
    """Return the names of labels.txt, and findings about the file."""
    where = str(folder / LABELS_FILE)
    try:
        names = read_label_names(folder)
    except BadData as error:
        return {}, [Finding("warning", "labels.txt", where, error.what)]
    if names:
        return names, []
    return {}, [Finding("warning", "labels.txt", where, "missing or empty: classes will have numbers, not names.")]


def find_shards(folder: Path, findings: list[Finding]) -> list[ShardCheck]:
    """List the files to check; add a finding for a set of files that is incomplete."""
    shards = []
    if holds_mindrecords(folder):
        for split, paths in split_files(folder).items():
            try:
                open_files(paths)
            except BadData as error:
                findings.append(Finding("error", "incomplete", split, error.what))
            shards += [ShardCheck(split, path, path.stat().st_size) for path in paths if path.is_file()]
        return shards
    for split in SPLITS:
        try:
            files = record_files(folder, split)
        except BadData as error:
            if not folder.is_dir():
                raise
            findings.append(Finding("error", "incomplete", split, error.what))
            files = sorted(path for path in folder.rglob(f"{split}-?????-of-?????") if path.is_file())
        shards += [ShardCheck(split, file, file.stat().st_size) for file in files]
    if not shards:
        raise BadData(*explain_nothing_found(folder, "train"))
    return shards


class Checker:
    """Check of single files; any number of threads may share it."""

    def __init__(self, names: dict[int, str], classes: int | None, decode: Decode | None) -> None:
        self.names, self.classes, self.decode = names, classes, decode

    def check(self, shard: ShardCheck) -> ShardCheck:
        if is_mindrecord(shard.path):
            return self._check_mindrecord(shard)
        digests = list[int]()
        for found in survey_records(shard.path):
            shard.records += 1
            if isinstance(found, BadRecord):
                shard.corrupt += 1
                report_record(shard, "corrupt", found, found.reason)
            else:
                self._check_record(shard, found, digests)
        shard.digests = np.array(digests, dtype=np.uint64)
        note_unnamed_problems(shard)
        note_form(shard)
        return shard

    def _check_mindrecord(self, shard: ShardCheck) -> ShardCheck:
        """Check a MindRecord file; one whose header or pages are damaged is one error."""
        digests = list[int]()
        try:
            file = MindRecordFile(shard.path)
            image, label = choose_fields(file, "", "")
        except BadData as error:
            shard.corrupt += 1
            add_finding(shard, Finding("error", "corrupt", str(shard.path), error.what))
            return shard
        folder = MindRecordFolder(shard.path, [file], image, label)
        for row in range(len(file)):
            shard.records += 1
            try:
                encoded, number = file.blob(row, image), file.integer(row, label)
            except BadData as error:
                shard.corrupt += 1
                reason = error.reason if isinstance(error, BadRecord) else error.what
                report_record(shard, "corrupt", folder.make_error(row, reason), reason)
                continue
            fields = ImageFields(encoded, number, "", np.empty((0, 4), np.float32))
            self._check_fields(shard, fields, partial(describe_row, shard, folder, row), digests)
        shard.digests = np.array(digests, dtype=np.uint64)
        note_unnamed_problems(shard)
        if not shard.records:
            shard.findings.append(Finding("warning", "empty", str(shard.path), "there are no records in it."))
        return shard

    def _check_record(self, shard: ShardCheck, record: Record, digests: list[int]) -> None:
        try:
            fields = image_fields(record.data)
        except BadData as error:
            shard.corrupt += 1
            return report_record(shard, "corrupt", record, error.what)
        return self._check_fields(shard, fields, lambda: describe_record(shard, record), digests)

    def _check_fields(
        self, shard: ShardCheck, fields: ImageFields, where: Callable[[], str], digests: list[int]
    ) -> None:
        digests.append(fingerprint(fields.encoded))
        shard.labels[fields.label] += 1
        label_error = self._find_label_error(fields.label)
        if label_error:
            shard.mislabelled += 1
            add_finding(shard, Finding("error", "mislabelled", where(), label_error.rstrip(".") + "."))
        decode_error = self._find_decode_error(fields.encoded)
        if decode_error:
            shard.undecodable += 1
            add_finding(shard, Finding("error", "undecodable", where(), decode_error.rstrip(".") + "."))
        if not boxes_are_inside(fields):
            add_finding(shard, Finding("warning", "boxes", where(), "a box leaves the image or is turned over."))

    def _find_label_error(self, label: int) -> str | None:
        if label < 0:
            return f"its label is {label}"
        if self.names and label not in self.names:
            return f"its label {label} is not in {LABELS_FILE}, which has {min(self.names)} to {max(self.names)}"
        if self.classes is not None and label > self.last_label(self.classes):
            last = self.last_label(self.classes)
            return f"its label is {label}, where {self.classes} classes have {last - self.classes + 1} to {last}"
        return None

    def last_label(self, classes: int) -> int:
        """Return the highest label that so many classes may have.

        Labels begin with 1 unless labels.txt names a 0. Without that file labels 0 to `classes` pass here, and
        `find_spare_output` refuses them if both ends occur.
        """
        return classes - 1 if 0 in self.names else classes

    def _find_decode_error(self, encoded: memoryview) -> str | None:
        if self.decode is None:
            return None if image_format(encoded) else f"its image is neither JPEG nor PNG: {bytes(encoded[:8])!r}"
        try:
            self.decode(bytes(encoded))
        except MissingExtra:
            raise
        except Exception as error:  # a decoder may raise anything, and each error is the answer to the check
            return f"its image cannot be decoded: {' '.join(str(error).split()) or type(error).__name__}"
        return None


def fingerprint(encoded: memoryview) -> int:
    """Return two unrelated checksums of an image as one number of 64 bits.

    They are five times as fast as a cryptographic hash, which is not needed: images are not made to collide.
    """
    return crc32c(encoded) << 32 | zlib.crc32(encoded)


def report_record(shard: ShardCheck, kind: Kind, at: Record | BadRecord, reason: str) -> None:
    add_finding(shard, Finding("error", kind, describe_record(shard, at), reason.rstrip(".") + "."))


def describe_record(shard: ShardCheck, at: Record | BadRecord) -> str:
    """Return the file, the number and the offset of a record, and its image file if known, for messages."""
    number = at.record if isinstance(at, BadRecord) else at.number
    made_from = at.made_from if isinstance(at, BadRecord) else image_filename(at.data)
    return f"{shard.path}: record {number:,} at byte {at.offset:,}{origin_note(made_from)}"


def describe_row(shard: ShardCheck, folder: MindRecordFolder, row: int) -> str:
    return describe_record(shard, folder.make_error(row, "bad"))


def add_finding(shard: ShardCheck, finding: Finding) -> None:
    """Add a finding about a record unless the file has enough of its severity; the table has the numbers.

    Errors and warnings are limited separately, so that many warnings do not hide an error.
    """
    if sum(earlier.severity == finding.severity for earlier in shard.findings) < MAX_FINDINGS_PER_FILE:
        shard.findings.append(finding)


def note_unnamed_problems(shard: ShardCheck) -> None:
    """Add a finding that counts the problems if not all of them were named."""
    if shard.bad > MAX_FINDINGS_PER_FILE:
        message = f"its records have {shard.bad:,} problems; the first {MAX_FINDINGS_PER_FILE} are named."
        shard.findings.append(Finding("error", "corrupt", str(shard.path), message))


def note_form(shard: ShardCheck) -> None:
    """Add findings about a file that is empty or compressed."""
    if not shard.records:
        shard.findings.append(Finding("warning", "empty", str(shard.path), "there are no records in it."))
    kind = compression(shard.path)
    if kind:
        message = f"compressed ({kind}): training reads at random, so it must be unpacked first."
        shard.findings.append(Finding("error", "compressed", str(shard.path), message))


def boxes_are_inside(fields: ImageFields) -> bool:
    boxes = fields.boxes
    if not len(boxes):
        return True
    return bool((boxes >= 0).all() and (boxes <= 1).all() and (boxes[:, :2] <= boxes[:, 2:]).all())


# All files together


def find_empty_splits(shards: Sequence[ShardCheck]) -> list[Finding]:
    """Find splits without files or without records."""
    findings = []
    for split in SPLITS:
        mine = [shard for shard in shards if shard.split == split]
        if not mine:
            severity: Severity = "error" if split == "train" else "warning"
            findings.append(Finding(severity, "empty", split, "there are no such files, and training needs some."))
        elif not any(shard.records for shard in mine):
            findings.append(Finding("error", "empty", split, f"there is not one record in its {len(mine)} files."))
    return findings


def find_spare_output(report: CheckReport, names: dict[int, str], classes: int | None) -> list[Finding]:
    """Find a label N where `classes` is N.

    Labels 1 to N are right for N classes, but a network needs N + 1 outputs for them. Labels 0 to N are too many.
    """
    labels = {label for split in SPLITS for label in report.labels(split)}
    if classes is None or classes not in labels or 0 in names:
        return []
    if 0 in labels and not names:
        message = f"labels are 0 to {classes}, which are {classes + 1} classes and not {classes}."
        return [Finding("error", "mislabelled", "both splits", message)]
    advice = f"a recipe needs data.classes={classes + 1}, or data.label_shift=-1 with {classes}."
    return [Finding("warning", "classes", "both splits", f"labels go up to {classes}, counted from 1: {advice}")]


def find_imbalance(report: CheckReport, names: dict[int, str]) -> list[Finding]:
    """Find classes without images, and classes much smaller than others."""
    findings = []
    for split in SPLITS:
        counts = report.labels(split)
        expected = {label for label in names if label or counts[0]}  # 0 may be the background, which has no images
        absent = sorted(expected - set(counts)) if counts else []
        if absent:
            listed = join_first([format_label(names, label) for label in absent])
            findings.append(
                Finding("warning", "imbalance", split, f"{len(absent):,} classes have no images: {listed}.")
            )
        if counts and max(counts.values()) > UNEVEN_CLASSES * min(counts.values()):
            (most, many), *_, (least, few) = counts.most_common()
            message = f"{format_label(names, most)} has {many:,} images, {format_label(names, least)} {few:,}."
            findings.append(Finding("warning", "imbalance", split, message))
    return findings


def format_label(names: dict[int, str], label: int) -> str:
    """Return a label with the name of its class."""
    return f"{label} ({names[label]})" if label in names else str(label)


def join_first(items: Sequence[str]) -> str:
    """Join the first items, and say how many more there are."""
    more = f" and {len(items) - NAMED_AT_MOST:,} more" if len(items) > NAMED_AT_MOST else ""
    return ", ".join(items[:NAMED_AT_MOST]) + more


def find_duplicates(shards: Sequence[ShardCheck]) -> list[Finding]:
    """Find images with equal fingerprints, which means equal encoded bytes.

    Of twenty million checks of ImageNet about one would mistake two different images for copies.
    """
    findings, distinct = [], {}
    for split in SPLITS:
        digests = np.concatenate([np.empty(0, np.uint64), *(shard.digests for shard in shards if shard.split == split)])
        distinct[split] = np.unique(digests)
        repeated = len(digests) - len(distinct[split])
        if repeated:
            message = f"{repeated:,} of {len(digests):,} images are copies of another one."
            findings.append(Finding("warning", "duplicates", split, message))
    shared = len(np.intersect1d(distinct["train"], distinct["validation"], assume_unique=True))
    if shared:
        message = f"{shared:,} images to validate with are also trained on; the accuracy will look too good."
        findings.append(Finding("warning", "duplicates", "validation", message))
    return findings


def find_uneven_shards(shards: Sequence[ShardCheck]) -> list[Finding]:
    """Find splits whose largest file is much larger than the smallest."""
    findings = []
    for split in SPLITS:
        sizes = sorted((shard.bytes, shard.path.name) for shard in shards if shard.split == split)
        if sizes and sizes[-1][0] > UNEVEN_SHARDS * sizes[0][0]:
            message = f"{sizes[-1][1]} has {sizes[-1][0]:,} bytes, {sizes[0][1]} {sizes[0][0]:,}."
            findings.append(Finding("warning", "shard sizes", split, message))
    return findings
