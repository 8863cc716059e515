"""Writing of tensors while the step continues."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.networks import train
from viaduct.comparison.index import Entry, Index
from viaduct.comparison.writer import Writer
from viaduct.errors import DiskFull, ViaductError

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_full_disk_stops_the_run_at_the_end_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = open

    def full(path: Any, *args: Any, **kwargs: Any) -> Any:
        if "head.weight" in str(path):
            raise OSError(28, "No space left on device")
        return plain(path, *args, **kwargs)

    monkeypatch.setattr("viaduct.comparison.writer.open", full, raising=False)
    with pytest.raises(DiskFull, match=r"head\.weight.*No space left"):
        train(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ViaductError, match=str(tmp_path)):
        train(tmp_path / "dump")


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "dump").write_text("")
    with pytest.raises(ViaductError, match="dump cannot be written"):
        train(tmp_path / "dump")


def test_the_queue_is_bounded(tmp_path: Path) -> None:
    """The queue has room for one tensor, so the run waits; all tensors arrive."""
    writer = Writer(tmp_path / "step", max_pending_bytes=1)
    writer.open()
    waiting = []
    entries = [
        Entry(f"op{number}", "", "output", 0, number, dtype="float32", file=f"{number}.npy") for number in range(9)
    ]
    for entry in entries:
        writer.put(entry, 400, lambda: np.zeros(100, np.float32))
        waiting.append(len(writer._jobs))
    writer.wait()
    writer.finish(Index(0, 0, 1, {}, {}, entries))
    assert max(waiting) <= 1
    assert len(list((tmp_path / "step").glob("*.npy"))) == 9
