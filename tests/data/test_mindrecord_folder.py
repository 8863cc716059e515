"""Files that MindSpore wrote are read as MindSpore reads them: the same rows, labels and bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mindspore_python import run_mindspore
from viaduct.data.mindrecord_folder import MindRecordFolder, choose_fields, list_set, open_files

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "references" / "mindspore_records.py"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    run_mindspore(SCRIPT, folder)
    return folder


@pytest.mark.parametrize(
    ("name", "first"), [("one", "one.mindrecord"), ("three", "three.mindrecord0"), ("arrays", "arrays.mindrecord")]
)
def test_rows_are_those_that_mindspore_reads(name: str, first: str, theirs: Path) -> None:
    for index in theirs.glob("*.db"):
        index.unlink()
    files = open_files(list_set(theirs / first))
    folder = MindRecordFolder(theirs, files, *choose_fields(files[0], "", ""))
    read = [[folder.read_fields(row).label, bytes(folder.read_fields(row).encoded).hex()] for row in range(len(folder))]
    assert read == json.loads((theirs / f"{name}.json").read_text())
    assert folder.read_labels().tolist() == [label for label, _ in read]
