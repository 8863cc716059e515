"""Dictionaries that are looked up by the type of a device."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "import torch\n"
TABLE = "table = {'cuda': 'nccl', 'cpu': 'gloo'}\n"


@pytest.mark.parametrize(
    "text",
    [
        TABLE + "table['cuda']\n",
        TABLE + "table[name]\n",
        TABLE + "table[token.type]\n",
        TABLE + "table.get('cuda')\ntable.get()\n",
        "table = {'cuda': 'nccl', 'npu': 'hccl'}\ntable[device.type]\n",
        "table = {'gpu': 1}\ntable[device.type]\n",
        "def f(table, device):\n    return table[device.type]\n",
    ],
)
def test_other_dicts_and_other_keys_are_not_reported(text: str) -> None:
    check_noop("torch.device_key", HEAD + text)


@pytest.mark.parametrize(
    "line",
    [
        "table[device.type]",
        "table[device]",
        "table[x.device.type]",
        "table.get(self.device.type, None)",
        "table[where.type]",
    ],
)
@pytest.mark.parametrize(("to", "word"), [("npu", "'npu'"), ("mlu", "'mlu'"), ("any", "'npu' and 'mlu'")])
def test_a_missing_key_for_the_card_is_reported(line: str, to: str, word: str) -> None:
    text = f"{HEAD}{TABLE}where = torch.device(name)\ny = {line}\n"
    check_says("torch.device_key", text, "manual", word, to=to)
