"""Checkpoints that were written on a GPU."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

HEAD = "import torch\n"


@pytest.mark.parametrize(
    "source",
    [
        "torch.load('x', map_location='cpu')\n",
        "torch.load('x', 'cpu')\n",
        "torch.load('x', map_location=device)\n",
        "torch.load('x', map_location=lambda s, l: s)\n",
        "json.load(file)\n",
        "torch.load('x', map_location={'cpu': 'cpu'})\n",
        "torch.hub.load('a', 'b')\n",
    ],
)
def test_what_says_where_stays(source: str) -> None:
    check_noop("map_location", HEAD + source)


def test_hidden_arguments_are_left_to_a_person() -> None:
    check_says("map_location", HEAD + "torch.load('x', **options)\n", "manual", "map_location")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.load(path)", 'torch.load(path, map_location="cpu")'),
        ("torch.load(path, weights_only=True)", 'torch.load(path, weights_only=True, map_location="cpu")'),
        ("torch.load(path, map_location=None)", 'torch.load(path, map_location="cpu")'),
        ("torch.jit.load(path)", 'torch.jit.load(path, map_location="cpu")'),
    ],
)
def test_what_does_not_say_where_loads_on_the_host(before: str, after: str) -> None:
    check_rewrite("map_location", HEAD + before + "\n", HEAD + after + "\n")


def test_a_table_serves_checkpoints_of_both_machines() -> None:
    head = "import torch\nimport torch_npu\n"
    check_rewrite(
        "map_location",
        head + "torch.load('x', map_location={'cuda:0': 'cuda:%d' % rank})\n",
        head + "torch.load('x', map_location={'cuda:0': 'npu:%d' % rank, 'npu:0': 'npu:%d' % rank})\n",
    )


def test_a_lambda_and_a_string_follow_their_own_rules() -> None:
    source = "torch.load('x', map_location=lambda s, l: s.cuda(0))\ntorch.load('x', map_location='cuda:0')\n"
    after = migrated(HEAD + source, to="mlu").after.decode()
    assert "s.mlu(0)" in after
    assert "map_location='mlu:0'" in after
