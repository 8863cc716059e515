"""The tuning bank: a folder with one readable JSON file of fastest variants for each device and software version.

    bank = Bank(Path("mybank"))
    bank.update(fingerprint, lambda stored: stored.with_entry(entry))
    bank.read(fingerprint).entries[key].choice

Writers merge under a lock and replace the file atomically, so several processes may write to one bank, and a killed
process leaves the file unchanged. A file that cannot be read is never overwritten; `set_aside` renames it.
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
from typing import Any

from viaduct.atomic_files import write_file
from viaduct.errors import ViaductError
from viaduct.tuning.fingerprint import Fingerprint, decode_fingerprint
from viaduct.tuning.signature import Signature, decode_signature

SCHEMA = 1
RESULT_PREFIX = "tune_result_"
MAX_BYTES = 256 << 20
Choice = Mapping[str, int | str | bool]  # a configuration of an operator: a point of its space
IMPLEMENTATIONS = {
    "conv2d": ("convolution", "matrix_product", "compiled"),
    "linear": ("linear", "transposed", "compiled"),
    "optimizer": ("fused", "foreach", "loop"),
}
"""Values of `implementation` by kind of operator; a device may support only some of them (`operators/`)."""


class BadBank(ViaductError):
    """Raised for a bank that cannot be used."""


class DamagedBank(BadBank):
    """Raised for a file of a bank that cannot be read."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path} is damaged: {why}.",
            "Move it away or repair it; `viaduct tune run` renames it and begins a new file.",
        )
        self.path, self.why = path, why


@dataclass(frozen=True)
class Entry:
    """Stored result of tuning one operator."""

    signature: Signature
    choice: Choice
    default: Choice
    default_us: float
    best_us: float
    spread: float  # interquartile range of the chosen variant's times, as a share of their median
    mode: str = ""  # of the search: "GA", "RL", …
    seed: int = 0
    measurements: int = 0
    date: str = ""
    installed: bool = False  # True if training applies the choice: a recipe's step was faster with it
    note: str = ""
    failed: tuple[tuple[Choice, str], ...] = ()
    """Configurations that crashed, hung or computed wrong values, with the reason."""

    @property
    def is_default(self) -> bool:
        return dict(self.choice) == dict(self.default)

    @property
    def gain(self) -> float:
        """The default's time divided by the choice's, both measured in the same turns."""
        return self.default_us / self.best_us if self.best_us else 1.0

    def describe_choice(self) -> str:
        return describe_choice(self.choice, self.default)

    def encode(self) -> dict[str, Any]:
        record = asdict(self)
        record["signature"] = self.signature.encode()
        record["failed"] = [{"configuration": dict(point), "reason": reason} for point, reason in self.failed]
        return record


@dataclass(frozen=True)
class Verdict:
    """Times of a recipe's complete step with and without choices of the bank."""

    step: str  # key of the step, made by training/tuned.py
    choices: Mapping[str, Choice]  # by key of the operator's signature
    without_us: float
    with_us: float
    gain: float
    turns: int
    is_gain: bool
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
        """Return the entries and verdicts of both; of two with the same key, the larger gain or the later verdict."""
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
    """Return the entry with the larger gain over the default, with the failed configurations of both."""
    better = max(first, second, key=lambda entry: (entry.gain, entry.installed, -entry.best_us))
    failed = {
        json.dumps(dict(point), sort_keys=True): (point, reason) for point, reason in (*first.failed, *second.failed)
    }
    return replace(better, failed=tuple(failed.values()))


def describe_choice(choice: Choice, default: Choice) -> str:
    """Return the values of a choice that differ from the default: `layout=channels_last`, or `default`."""
    changed = [f"{name}={value}" for name, value in choice.items() if default.get(name) != value]
    return " ".join(changed) or "default"


@dataclass(frozen=True)
class Bank:
    """A folder with one file for each fingerprint."""

    path: Path

    def list_files(self) -> list[Path]:
        files = sorted(self.path.glob("*.json"))
        return [file for file in files if not file.name.startswith((RESULT_PREFIX, "."))]

    def find_file(self, fingerprint: Fingerprint) -> Path:
        return self.path / fingerprint.file_name

    def read(self, fingerprint: Fingerprint) -> BankContents:
        """Return the contents for a fingerprint, empty without a file; raise DamagedBank for an invalid one."""
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
        if not file.is_file() or file.stat().st_size > MAX_BYTES:
            raise DamagedBank(file, f"it is not a regular file, or has more than {MAX_BYTES >> 20} MiB")
        record = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DamagedBank(file, f"it is not JSON ({str(error)[:80]})") from None
    if not isinstance(record, dict) or not isinstance(record.get("schema"), int):
        raise DamagedBank(file, "it has no schema number")
    if record["schema"] > SCHEMA:
        raise BadBank(
            f"{file} has schema {record['schema']}; this viaduct knows {SCHEMA}.", "Use the viaduct that wrote it."
        )
    try:
        entries = {key: decode_entry(key, entry) for key, entry in require_object(record, "entries").items()}
        verdicts = {key: decode_verdict(entry) for key, entry in require_object(record, "verdicts").items()}
        return BankContents(decode_fingerprint(record.get("fingerprint")), entries, verdicts).uninstall_unmeasured()
    except ValueError as error:
        raise DamagedBank(file, str(error)) from None


def require_object(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"its {name} are not an object")
    return value


def decode_entry(key: str, record: Any) -> Entry:
    if not isinstance(record, dict):
        raise ValueError(f"entry {key!r:.60} is not an object")
    signature = decode_signature(record.get("signature"))
    if signature.key != key:
        raise ValueError(f"entry {key!r:.60} contains another operator's signature")
    failed = record.get("failed", [])
    if not isinstance(failed, list) or not all(isinstance(row, dict) for row in failed):
        raise ValueError(f"`failed` of {key!r:.60} is not a list of objects")
    choice = decode_choice(record.get("choice"), key)
    implementations = IMPLEMENTATIONS.get(signature.kind, ())
    if implementations and choice.get("implementation", implementations[0]) not in implementations:
        implementation = choice["implementation"]
        raise ValueError(
            f"the implementation of {key!r:.60} is {implementation!r:.60}; there are {', '.join(implementations)}"
        )
    return Entry(
        signature=signature,
        choice=choice,
        default=decode_choice(record.get("default"), key),
        default_us=decode_number(record, "default_us", key),
        best_us=decode_number(record, "best_us", key),
        spread=decode_number(record, "spread", key),
        mode=str(record.get("mode", "")),
        seed=int(decode_number(record, "seed", key, default=0)),
        measurements=int(decode_number(record, "measurements", key, default=0)),
        date=str(record.get("date", "")),
        installed=record.get("installed") is True,
        note=str(record.get("note", "")),
        failed=tuple((decode_choice(row.get("configuration"), key), str(row.get("reason", ""))) for row in failed),
    )


def decode_verdict(record: Any) -> Verdict:
    if not isinstance(record, dict):
        raise ValueError("a verdict is not an object")
    step = str(record.get("step", ""))
    choices = require_object(record, "choices")
    return Verdict(
        step=step,
        choices={key: decode_choice(choice, step) for key, choice in choices.items()},
        without_us=decode_number(record, "without_us", step),
        with_us=decode_number(record, "with_us", step),
        gain=decode_number(record, "gain", step),
        turns=int(decode_number(record, "turns", step)),
        is_gain=record.get("is_gain") is True,
        date=str(record.get("date", "")),
    )


def decode_choice(value: Any, key: str) -> Choice:
    if not isinstance(value, dict) or not all(isinstance(part, int | str | bool) for part in value.values()):
        raise ValueError(f"a configuration of {key!r:.60} is {value!r:.60}")
    return value


def decode_number(record: dict[str, Any], name: str, key: str, default: float | None = None) -> float:
    """Return a number of the operator or step `key`; raise ValueError if it is invalid or missing."""
    value = record.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise ValueError(f"{name} of {key!r:.60} is {value!r:.60}")
    return value
