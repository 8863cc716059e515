"""Code that `torch.jit.script` compiles."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, migrated

EVERYWHERE = ("npu", "mlu", "any")


def said(text: str, rule: str = "", **options: object) -> list[tuple[int, str]]:
    found = migrated(text, rule, **options).findings
    return [(finding.line, finding.status) for finding in found if finding.rule == f"torch.{rule}"]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.jit.trace(f, x)\ntorch.jit.load('a')\n",
    ],
)
def test_nothing_is_said_without_cause(text: str) -> None:
    check_noop("torch.jit_script", text)


@pytest.mark.parametrize("to", EVERYWHERE)
@pytest.mark.parametrize(
    "written",
    [
        "m = torch.jit.script(m)",
        "@torch.jit.script\ndef f(x): return x",
    ],
)
def test_compiled_code_gets_advice(written: str, to: str) -> None:
    assert said(f"import torch\n{written}\n", "jit_script", to=to) == [(2, "advice")]
