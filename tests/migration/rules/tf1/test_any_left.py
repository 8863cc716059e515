from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says


@pytest.mark.parametrize("source", ["import torch  # no tensorflow\n", "from .tensorflow import x\nx()\n"])
def test_a_file_without_tensorflow_is_not_reported(source: str) -> None:
    check_noop("tf1.any_left", source, to="any")


def test_a_file_of_tensorflow_is_reported_once_at_its_first_import() -> None:
    source = "import os\nimport tensorflow as tf\nfrom tensorflow import keras\ntf.Session()\n"
    result = check_says("tf1.any_left", source, "unresolved", "no device-neutral API", to="any")
    assert [finding.line for finding in result.findings] == [2]
