"""Files of labels, which name the outputs of a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.errors import BadData
from viaduct.handover.labels import read_labels_file


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\nb\nc\n", ("a", "b", "c")), ("0:a\n2:c\n", ("a", "1", "c")), ("x\ny\n", ("0", "x", "y"))],
)
def test_a_labels_file_names_outputs(text: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text(text)
    assert read_labels_file(tmp_path / "names.txt", 3, 0) == expected


def test_too_many_labels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n")
    with pytest.raises(BadData, match="4 names, and the network 3 outputs"):
        read_labels_file(tmp_path / "names.txt", 3, 0)
