from __future__ import annotations

from pathlib import Path

import pytest

from forked_viaduct import viaduct
from viaduct.file_urls import resolve_file_url


@pytest.mark.parametrize("path", ["records", "/data/records", "synthetic", "profile:/x", "file"])
def test_a_plain_path_stays(path: str) -> None:
    assert resolve_file_url(Path(path)) == Path(path)
    assert resolve_file_url(None) is None


@pytest.mark.parametrize(
    "address", ["file:///cache/my%20records", "file:/cache/my%20records", "file:////cache/my records"]
)
def test_a_file_address_is_the_path_in_it(address: str) -> None:
    assert resolve_file_url(Path(address)) == Path("/cache/my records")


def test_train_and_evaluate_take_it(tmp_path: Path) -> None:
    for words in (["train", "resnet50_imagenet"], ["evaluate", "w.pth", "--recipe", "resnet50_imagenet"]):
        answer = viaduct(*words, "--data", f"file://{tmp_path}/absent", cwd=tmp_path)
        assert answer.returncode == 2
        assert "file:" not in answer.stderr
    answer = viaduct("train", "resnet50_imagenet", "--data", f"file://{tmp_path}/absent", cwd=tmp_path)
    assert f"{tmp_path}/absent" in answer.stderr
