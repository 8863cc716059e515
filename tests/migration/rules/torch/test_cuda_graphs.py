from __future__ import annotations

import pytest

from migration.checking import check_noop, list_findings, migrate_source


def test_a_graph_is_left_on_the_npu_and_moves_on_the_mlu() -> None:
    text = "import torch\ng = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    pass\n"
    assert list_findings(text, "cuda_graphs") == [(2, "manual"), (3, "manual")]
    after = migrate_source(text, to="mlu").after.decode()
    assert "torch.mlu.MLUGraph()" in after
    assert "torch.mlu.graph(g)" in after


@pytest.mark.parametrize(
    "text",
    [
        "import graph\ngraph.graph()\nimport torch\ntorch.cuda.synchronize()\n",
    ],
)
def test_nothing_is_reported_without_cause(text: str) -> None:
    check_noop("torch.cuda_graphs", text)
