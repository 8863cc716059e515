"""The tuning bank: a folder with one indented JSON file of fastest variants for each device and set of versions.

    bank = Bank(Path("mybank"))
    bank.update(fingerprint, lambda stored: stored.with_entry(entry))
    bank.read(fingerprint).entries[key].choice

The device and the versions are a fingerprint. Writers change a file's current contents under a lock and replace the
file atomically, so several processes may write to one bank, and a killed process leaves the file unchanged. A file that
cannot be read is never overwritten; `set_aside` renames it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from viaduct.atomic_files import write_file
from viaduct.errors import ViaductError
from viaduct.json_records import Damaged, decode_record, load_object, require_fields
from viaduct.search_space import Point
from viaduct.tuning.fingerprint import Fingerprint
from viaduct.tuning.signature import Signature

SCHEMA = 1  # version of a bank's file
RESULT_PREFIX = "tune_result_"  # of the names of result files (result_file.py), which are in the same folder
MAX_BYTES = 256 << 20  # of a bank's file; larger ones are not read
Choice = Point  # a variant of an operator: {"layout": "channels_last", "implementation": "convolution", …}
Microseconds = Annotated[float, Ge(0)]
IMPLEMENTATIONS = {
    "conv2d": ("convolution", "matrix_product", "compiled"),
    "linear": ("linear", "transposed", "compiled"),
    "optimizer": ("fused", "foreach", "loop"),
}
"""Values of `implementation` by kind of operator; a device may support only some of them (`operators/`)."""


class BadBank(ViaductError):
    """A bank that cannot be used."""


class DamagedBank(BadBank):
    """A file of a bank that cannot be read, or that is of another fingerprint than its name says."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path} is damaged: {why}.",
            "Move it away or repair it; `viaduct tune run` renames it and begins a new file.",
        )
        self.path, self.why = path, why


@dataclass(frozen=True)
class FailedPoint:
    """A configuration that crashed, hung or computed wrong values."""

    configuration: Choice
    reason: str


@dataclass(frozen=True)
class Entry:
    """Stored result of tuning one operator."""

    signature: Signature
    choice: Choice  # the fastest variant
    default: Choice  # the variant that is used without tuning
    default_us: Microseconds
    best_us: Microseconds  # of `choice`
    spread: Annotated[float, Ge(0)]  # interquartile range of the chosen variant's times, as a share of their median
    mode: str = ""  # search method: "GA", "RL", …
    seed: int = 0
    measurements: int = 0  # points that were measured in the search, without the confirmation
    date: str = ""  # ISO, local time
    installed: bool = False  # True if training applies the choice: a recipe's step was faster with it (see Verdict)
    note: str = ""
    failed: tuple[FailedPoint, ...] = ()  # not measured again

    @property
    def is_default(self) -> bool:
        return dict(self.choice) == dict(self.default)

    @property
    def gain(self) -> float:
        """The default's time divided by the choice's, both measured in the same turns; 1 if the latter is 0."""
        return self.default_us / self.best_us if self.best_us else 1.0

    def encode(self) -> dict[str, Any]:
        return asdict(self) | {"signature": self.signature.encode()}


@dataclass(frozen=True)
class Verdict:
    """Times of a recipe's complete step with and without choices of the bank."""

    step: str  # key of the recipe's step, made by training/tuned.py
    choices: Mapping[str, Choice]  # by key of the operator's signature
    without_us: Microseconds
    with_us: Microseconds
    gain: Annotated[float, Ge(0)]  # `without_us` / `with_us`, by the median of the turns
    turns: int
    is_gain: bool  # True if the step was significantly faster with the choices: training then applies them
    date: str = ""

    def describe_times(self) -> str:
        return f"{self.without_us / 1000:.2f} ms without, {self.with_us / 1000:.2f} ms with the choices"


@dataclass(frozen=True)
class BankContents:
    """The contents of one file of a bank."""

    fingerprint: Fingerprint
    entries: Mapping[str, Entry] = field(default_factory=dict)  # by key of the operator's signature
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # by key of the step

    def with_entry(self, entry: Entry) -> BankContents:
        return replace(self, entries={**self.entries, entry.signature.key: entry})

    def with_verdict(self, verdict: Verdict) -> BankContents:
        return replace(self, verdicts={**self.verdicts, verdict.step: verdict})

    def merge(self, other: BankContents) -> BankContents:
        """Return the entries and verdicts of both; for one key the better entry, or the later verdict."""
        entries = dict(self.entries)
        for key, entry in other.entries.items():
            entries[key] = choose_better(entries[key], entry) if key in entries else entry
        verdicts = {**self.verdicts}
        for key, verdict in other.verdicts.items():
            if key not in verdicts or verdict.date > verdicts[key].date:
                verdicts[key] = verdict
        return replace(self, entries=entries, verdicts=verdicts).uninstall_unmeasured()

    def uninstall_unmeasured(self) -> BankContents:
        """Mark entries as not installed unless a verdict with a gain contains their choice."""
        gained = [verdict.choices for verdict in self.verdicts.values() if verdict.is_gain]
        entries = {}
        for key, entry in self.entries.items():
            is_measured = any(choices.get(key) == entry.choice for choices in gained)
            entries[key] = replace(entry, installed=entry.installed and is_measured)
        return replace(self, entries=entries)

    def encode(self) -> str:
        record = {
            "schema": SCHEMA,
            "fingerprint": asdict(self.fingerprint),
            "entries": {key: entry.encode() for key, entry in sorted(self.entries.items())},
            "verdicts": {key: asdict(verdict) for key, verdict in sorted(self.verdicts.items())},
        }
        return json.dumps(record, indent=1, allow_nan=False) + "\n"


def choose_better(first: Entry, second: Entry) -> Entry:
    """Return the entry with the larger gain over the default, with the failed configurations of both.

    Of equal gains an installed entry is better, then the shorter time.
    """
    better = max(first, second, key=lambda entry: (entry.gain, entry.installed, -entry.best_us))
    failed = {encode_point(row.configuration): row for row in (*first.failed, *second.failed)}
    return replace(better, failed=tuple(failed.values()))


def encode_point(point: Point) -> str:
    """Return a point as text that does not depend on the order of its parameters."""
    return json.dumps(dict(point), sort_keys=True)


def describe_choice(choice: Choice, default: Choice) -> str:
    """Return the values of a choice that differ from the default: `layout=channels_last`, or `default`."""
    changed = [f"{name}={value}" for name, value in choice.items() if default.get(name) != value]
    return " ".join(changed) or "default"


@dataclass(frozen=True)
class Bank:
    """A folder with one file for each fingerprint."""

    path: Path

    def list_files(self) -> list[Path]:
        """Return the bank's files, without result files."""
        files = sorted(self.path.glob("*.json"))
        return [file for file in files if not file.name.startswith((RESULT_PREFIX, "."))]

    def find_file(self, fingerprint: Fingerprint) -> Path:
        """Return the path of the file for a fingerprint, which need not exist."""
        return self.path / fingerprint.file_name

    def read(self, fingerprint: Fingerprint) -> BankContents:
        """Return the contents for a fingerprint, empty if there is no file; raise DamagedBank for an invalid file."""
        file = self.find_file(fingerprint)
        if not file.exists():
            return BankContents(fingerprint)
        stored = read_bank_file(file)
        if stored.fingerprint != fingerprint:
            differences = ", ".join(fingerprint.list_differences(stored.fingerprint))
            raise DamagedBank(file, f"its name and its contents are of different devices or versions ({differences})")
        return stored

    def list_other_fingerprints(self, fingerprint: Fingerprint) -> list[Fingerprint]:
        """Return the other fingerprints of the bank's files; unreadable files are skipped."""
        fingerprints = []
        for file in self.list_files():
            try:
                file_fingerprint = read_bank_file(file).fingerprint
            except BadBank:
                continue
            if file_fingerprint != fingerprint:
                fingerprints.append(file_fingerprint)
        return fingerprints

    def update(self, fingerprint: Fingerprint, change: Callable[[BankContents], BankContents]) -> BankContents:
        """Apply `change` to the contents for a fingerprint, under a lock; return the new contents."""
        with self.lock():
            changed = change(self.read(fingerprint))
            write_file(self.find_file(fingerprint), changed.encode().encode())
        return changed

    def set_aside(self, file: Path) -> Path:
        """Rename a damaged file; return its new path."""
        with self.lock():
            stamp = time.strftime("%Y%m%d-%H%M%S")
            aside = file.with_name(f"{file.name}.damaged-{stamp}")
            count = 1
            while aside.exists():
                count += 1
                aside = file.with_name(f"{file.name}.damaged-{stamp}-{count}")
            file.rename(aside)
        return aside

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the bank's lock within the block; wait for other processes."""
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def read_bank_file(file: Path) -> BankContents:
    """Return the checked contents of a bank's file; raise DamagedBank or, for a newer schema, BadBank."""
    try:
        record = load_object(file, MAX_BYTES)
        require_fields(record, {"schema": int})
        if record["schema"] > SCHEMA:
            raise BadBank(
                f"{file} has schema {record['schema']}; this viaduct knows {SCHEMA}.", "Use the viaduct that wrote it."
            )
        require_fields(record, {"entries": dict, "verdicts": dict})
        contents: BankContents = decode_record(BankContents, record)
        for key, entry in contents.entries.items():
            check_entry(key, entry)
    except Damaged as error:
        raise DamagedBank(file, str(error)) from None
    return contents.uninstall_unmeasured()


def check_entry(key: str, entry: Entry) -> None:
    """Raise Damaged for an entry of another operator, or for an implementation that its kind of operator lacks."""
    if entry.signature.key != key:
        raise Damaged(f"entry {key!r:.60} contains another operator's signature")
    implementations = IMPLEMENTATIONS.get(entry.signature.kind, ())
    implementation = entry.choice.get("implementation")
    if implementations and implementation is not None and implementation not in implementations:
        raise Damaged(
            f"the implementation of {key!r:.60} is {implementation!r:.60}; there are {', '.join(implementations)}"
        )
