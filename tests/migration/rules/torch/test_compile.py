"""Code that `torch.compile` compiles."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, list_findings

EVERYWHERE = ("npu", "mlu", "any")


@pytest.mark.parametrize(
    "text",
    [
        "import re\nre.compile('x')\nmodel.compile()\n",
        "import torch, torchair\ntorch.compile(f, backend=torchair.get_npu_backend())\n",
        "import torch, torchair\nmine = torchair.get_npu_backend()\ntorch.compile(f, backend=mine)\n",
    ],
)
def test_nothing_is_reported_without_cause(text: str) -> None:
    check_noop("torch.compile", text)


@pytest.mark.parametrize("to", EVERYWHERE)
@pytest.mark.parametrize(
    "written",
    [
        "m = torch.compile(m)",
        "m = torch.compile(m, backend='inductor')",
        "m = torch.compile(m, backend=args.backend)",
        "@torch.compile\ndef f(x): return x",
    ],
)
def test_compiled_code_gets_advice(written: str, to: str) -> None:
    assert list_findings(f"import torch\n{written}\n", "compile", to=to) == [(2, "advice")]
