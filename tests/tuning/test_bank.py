"""The bank: several writers, damage, other devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tuning.bank_entries import ELSEWHERE, HERE, make_entry
from viaduct.tuning.bank import IMPLEMENTATIONS, BadBank, Bank, BankContents, DamagedBank, FailedPoint, Verdict
from viaduct.tuning.operators import conv2d, linear, optimizer
from viaduct.tuning.signature import Signature
from viaduct.tuning.table import describe_state

WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tuning.bank_entries import HERE, make_entry
from viaduct.tuning.bank import Bank
for number in range(25):
    Bank(Path(sys.argv[2])).update(HERE, lambda stored: stored.with_entry(make_entry(f"{sys.argv[3]}{number}")))
"""


def test_entries_survive_writing_and_reading(tmp_path: Path) -> None:
    failed = (FailedPoint({"layout": "channels_last"}, "killed by SIGSEGV"),)
    entry = make_entry("1x3x8x8", failed=failed, installed=True, note="why", date="2026-01-01")
    verdict = Verdict("step of a recipe", {entry.signature.key: entry.choice}, 10.0, 8.0, 1.25, 9, True)
    written = Bank(tmp_path).update(HERE, lambda stored: stored.with_entry(entry).with_verdict(verdict))
    assert Bank(tmp_path).read(HERE) == written
    assert Bank(tmp_path).read(HERE).entries[entry.signature.key] == entry


def test_nothing_is_read_for_another_version(tmp_path: Path) -> None:
    Bank(tmp_path).update(HERE, lambda stored: stored.with_entry(make_entry("a")))
    assert Bank(tmp_path).read(ELSEWHERE).entries == {}
    assert Bank(tmp_path).list_other_fingerprints(ELSEWHERE) == [HERE]
    assert ELSEWHERE.list_differences(HERE) == ["torch 2.13.0, here 2.11.0"]


def test_a_file_that_was_renamed_for_another_device_is_refused(tmp_path: Path) -> None:
    Bank(tmp_path).update(HERE, lambda stored: stored.with_entry(make_entry("a")))
    (tmp_path / HERE.file_name).rename(tmp_path / ELSEWHERE.file_name)
    with pytest.raises(DamagedBank, match=r"torch 2\.13\.0"):
        Bank(tmp_path).read(ELSEWHERE)


@pytest.mark.process
def test_two_writers_both_survive(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    words = [sys.executable, "-c", WRITER, tests, str(tmp_path)]
    writers = [subprocess.Popen([*words, name]) for name in ("a", "b")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert len(Bank(tmp_path).read(HERE).entries) == 50


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "fingerprint": {}, "entries": {}, "verdicts": {}}']
)
def test_a_damaged_file_is_named_and_never_overwritten(tmp_path: Path, text: str) -> None:
    file = tmp_path / HERE.file_name
    file.write_text(text)
    bank = Bank(tmp_path)
    with pytest.raises(DamagedBank, match=HERE.file_name):
        bank.update(HERE, lambda stored: stored.with_entry(make_entry("a")))
    assert file.read_text() == text
    aside = bank.set_aside(file)
    assert aside.read_text() == text
    assert not file.exists()
    assert bank.list_files() == []


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("best_us", "fast", r"entries\.conv2d x=a\.best_us is 'fast'; it must be a number"),
        ("best_us", -1.0, r"entries\.conv2d x=a\.best_us is -1\.0; it must be 0 or more"),
        ("choice", {"layout": [1]}, r"entries\.conv2d x=a\.choice\.layout is \[1\]"),
        ("failed", [{"reason": "hung"}], r"entries\.conv2d x=a\.failed\[0\]\.configuration is missing"),
        ("signature", {"x": "a"}, "a signature has no kind"),
        ("signature", {"kind": "conv2d", "x": "b"}, "entry 'conv2d x=a' contains another operator's signature"),
    ],
)
def test_a_damaged_entry_is_named(field: str, value: object, message: str, tmp_path: Path) -> None:
    Bank(tmp_path).update(HERE, lambda stored: stored.with_entry(make_entry("a")))
    file = tmp_path / HERE.file_name
    record = json.loads(file.read_text())
    record["entries"]["conv2d x=a"][field] = value
    file.write_text(json.dumps(record))
    with pytest.raises(DamagedBank, match=message):
        Bank(tmp_path).read(HERE)


def test_a_newer_schema_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / HERE.file_name).write_text('{"schema": 99}')
    with pytest.raises(BadBank, match="schema 99") as raised:
        Bank(tmp_path).read(HERE)
    assert not isinstance(raised.value, DamagedBank)


def test_the_larger_gain_wins_and_failures_are_kept() -> None:
    slow = make_entry("a", 100, 95, failed=(FailedPoint({"layout": "x"}, "crashed"),))
    fast = make_entry("a", 200, 150, failed=(FailedPoint({"layout": "y"}, "hung"),))
    merged = BankContents(HERE).with_entry(slow).merge(BankContents(HERE).with_entry(fast).with_entry(make_entry("b")))
    assert merged.entries["conv2d x=a"].best_us == 150
    assert [row.reason for row in merged.entries["conv2d x=a"].failed] == ["crashed", "hung"]
    assert set(merged.entries) == {"conv2d x=a", "conv2d x=b"}


def test_after_a_merge_only_choices_of_the_kept_verdict_are_installed() -> None:
    def install(name: str, date: str, step: str = "step") -> BankContents:
        entry = make_entry(name, installed=True)
        verdict = Verdict(step, {entry.signature.key: entry.choice}, 10.0, 8.0, 1.25, 9, True, date)
        return BankContents(HERE).with_entry(entry).with_verdict(verdict)

    def list_installed(stored: BankContents) -> list[str]:
        return [key for key, entry in stored.entries.items() if entry.installed]

    merged = install("a", "2026-01-01").merge(install("b", "2026-01-02"))
    assert list_installed(merged) == ["conv2d x=b"]
    assert describe_state(merged.entries["conv2d x=a"]) == "not installed: no verdict of a whole step yet"
    apart = install("a", "2026-01-01").merge(install("b", "2026-01-02", "step of another recipe"))
    assert list_installed(apart) == ["conv2d x=a", "conv2d x=b"]


def test_an_entry_that_says_installed_without_a_verdict_is_not(tmp_path: Path) -> None:
    Bank(tmp_path).update(HERE, lambda stored: stored.with_entry(make_entry("a", installed=True)))
    assert not Bank(tmp_path).read(HERE).entries["conv2d x=a"].installed


def test_an_unknown_implementation_is_damage(tmp_path: Path) -> None:
    entry = make_entry("a", choice={"layout": "as_given", "implementation": "magic"})
    Bank(tmp_path).update(HERE, lambda stored: stored.with_entry(entry))
    with pytest.raises(DamagedBank, match="implementation of 'conv2d x=a' is 'magic'; there are convolution, "):
        Bank(tmp_path).read(HERE)


def test_implementations_are_those_of_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv2d, "can_compile", lambda device: True)
    monkeypatch.setattr(linear, "can_compile", lambda device: True)
    signatures = {
        conv2d: Signature.of("conv2d", layout="contiguous", w="8x3x1x1", groups=1, padding="0x0"),
        linear: Signature.of("linear", dtype="float32", compute="float32"),
        optimizer: Signature.of("optimizer"),
    }
    for kind, signature in signatures.items():
        parameters = {row.name: row.values for row in kind.make_space(signature, "cpu", True).parameters}
        assert parameters["implementation"] == IMPLEMENTATIONS[kind.KIND]
