from __future__ import annotations

import pytest

from migration.checking import check_noop, migrated


def said(text: str, rule: str = "", **options: object) -> list[tuple[int, str]]:
    found = migrated(text, rule, **options).findings
    return [(finding.line, finding.status) for finding in found if finding.rule == f"torch.{rule}"]


def test_channels_last_gets_advice_on_the_npu_alone() -> None:
    text = "import torch\nm = m.to(memory_format=torch.channels_last)\n"
    assert said(text, "channels_last") == [(2, "advice")]
    check_noop("torch.channels_last", text, to="mlu")


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx.contiguous(memory_format=torch.contiguous_format)\nchannels_last = 1\n",
    ],
)
def test_nothing_is_said_without_cause(text: str) -> None:
    check_noop("torch.channels_last", text)
