"""Image files that a user names: which are found, and which are read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from forked_viaduct import start_command
from unprivileged import drop_file_privileges
from viaduct.data.png import encode_png
from viaduct.handover.image_files import find_images, read_image_file, read_path_list


def test_a_list_may_be_separated_by_nul_bytes() -> None:
    assert read_path_list(b"a b\nc\n\n\xff.jpg\r\n") == ["a b", "c", "\udcff.jpg"]
    assert read_path_list(b"a\nb\0c\0") == ["a\nb", "c"]


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "open.png").write_bytes(encode_png(np.zeros((2, 2, 3), np.uint8)))
    with start_command(print_found, tmp_path) as command:
        out, stderr = command.communicate()
    (tmp_path / "closed").chmod(0o700)
    assert json.loads(out) == [1, [[str(tmp_path / "closed"), "the folder may not be read (permission denied)"]]], (
        stderr
    )


def print_found(folder: Path) -> None:
    drop_file_privileges()
    found = find_images([str(folder)])
    print(json.dumps([len(found.files), found.errors]))


def test_a_file_in_a_folder_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"BM" + bytes(12) + b"\x28\0\0\0" + bytes(20))
    (tmp_path / "b").write_bytes(b"RIFF1234WEBPVP8 ")
    (tmp_path / "c").write_bytes(b"RIFF1234AVI ")
    found = find_images([str(tmp_path)])
    assert [read_image_file(file) is not None for file in found.files] == [True, True, False]
