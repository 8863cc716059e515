"""Recognition of a profile's format."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from viaduct.errors import BadData
from viaduct.profiling.folder import write_profile
from viaduct.profiling.readers import load_readers, read_any

from .profiler_files import make_kineto, write_msprof, write_torch_npu


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"there is no '.*absent'"):
        read_any(tmp_path / "absent")


def test_a_folder_without_a_profile_says_what_it_holds_and_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "weights").mkdir()
    with pytest.raises(BadData) as raised:
        read_any(tmp_path)
    assert "It holds: notes.txt, weights/." in str(raised.value)
    for name in ("msprof", "torch_npu", "torch.profiler", "profile.json"):
        assert name in str(raised.value)


def test_a_file_of_another_kind_is_no_profile(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"lr": 0.1}')
    with pytest.raises(BadData) as caught:
        read_any(file)
    assert caught.value.hints[0] == "It is a file of another kind."  # not: "It holds: …"


def test_readers_do_not_import_torch() -> None:
    code = (
        "import sys; from viaduct.profiling import readers; readers.load_readers(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_folder_of_torch_npu_is_not_taken_for_msprofs_raw_data_in_it(tmp_path: Path) -> None:
    output = write_torch_npu(tmp_path)
    write_msprof(output.parent)
    assert read_any(output.parent).facts.kind == "torch_npu"


def test_every_file_of_the_folder_is_a_reader() -> None:
    folder = Path(sys.modules["viaduct.profiling.readers"].__file__ or "").parent
    assert len(load_readers()) == len(list(folder.glob("[a-z]*.py")))


def write_kineto(folder: Path) -> None:
    (folder / "a.pt.trace.json").write_text(json.dumps(make_kineto(cuda=True)))


@pytest.mark.parametrize("write", [write_msprof, write_torch_npu, write_kineto], ids=lambda write: write.__name__)
def test_damage_is_reported_and_never_ends_in_a_traceback(write: Callable[[Path], object], tmp_path: Path) -> None:
    write(tmp_path)
    rng = random.Random(23)
    for file in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for _ in range(12):
            offset = rng.randrange(len(content))
            damage = rng.choice([b"", b'"', b"\x00\xff", b"[]", b"-1e999", b"\n,,,"])
            file.write_bytes(content[:offset] + damage + (content[offset + 3 :] if damage else b""))
            try:
                profile = read_any(tmp_path)
            except BadData:
                continue
            write_profile(profile, tmp_path.parent / "copy")
            assert list(read_any(tmp_path.parent / "copy").steps) == list(profile.steps)
        file.write_bytes(content)
