"""Calls of `.cuda()` and their receivers."""

from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_source

HEAD = "import torch\nimport torch_npu\n"


BATCH = "class Batch:\n    def cuda(self, where=None):\n        return self\n"


@pytest.mark.parametrize("receiver", ["thing", "loader.next()", "things[0]"])
def test_a_receiver_that_may_be_the_projects_own_needs_manual_review(receiver: str) -> None:
    check_says("cuda_method", HEAD + BATCH + f"{receiver}.cuda()\n", "manual", "Batch")


def test_a_class_of_another_program_does_not_matter() -> None:
    before, after = HEAD + "def move(thing):\n    return thing.cuda()\n", "    return thing.npu()\n"
    result = migrate_source(before, "cuda_method", others={"other.py": "import torch\n" + BATCH})
    assert result.after.decode().endswith(after)


def test_a_class_that_can_come_here_does() -> None:
    others = {"batch.py": "import torch\n" + BATCH, "main.py": "import torch\nimport batch\nimport script\n"}
    check_says("cuda_method", HEAD + "def move(thing):\n    return thing.cuda()\n", "manual", "Batch", others=others)


def test_looking_it_up_by_name_is_reported() -> None:
    check_says("cuda_method", HEAD + "if hasattr(x, 'cuda'):\n    pass\n", "manual", "by its name")


def test_whose_method_is_not_shown_needs_manual_review() -> None:
    source = "import torch\nclass Batch:\n    def cuda(self):\n        return self\ndef f(x):\n    return x.cuda()\n"
    check_says("cuda_method", source, "manual", "if this moves", to="any")
