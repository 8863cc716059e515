"""Names of PyTorch whose uses are reported with a fixed message."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, list_findings, migrate_source

EVERYWHERE = ("npu", "mlu", "any")


@pytest.mark.parametrize("to", EVERYWHERE)
@pytest.mark.parametrize(
    "written", ["torch.cuda.get_device_capability()[0] >= 8", "f(torch.cuda.get_device_capability)"]
)
def test_the_compute_capability_needs_manual_review(to: str, written: str) -> None:
    check_says("torch.capability", f"import torch\nx = {written}\n", "manual", "is_bf16_supported", to=to)


def test_the_compute_capability_stays_reported_where_the_mlu_has_its_own() -> None:
    result = migrate_source("import torch\nprint(torch.cuda.get_device_capability())\n", to="mlu")
    assert "torch.mlu.get_device_capability()" in result.after.decode()
    assert "torch.capability" in {finding.rule for finding in result.findings if finding.status == "manual"}


@pytest.mark.parametrize(
    "text",
    [
        "def get_device_capability(): pass\nget_device_capability()\n",
    ],
)
def test_nothing_is_reported_of_capability_without_cause(text: str) -> None:
    check_noop("torch.capability", text)


def test_channels_last_gets_advice_on_the_npu_alone() -> None:
    text = "import torch\nm = m.to(memory_format=torch.channels_last)\n"
    assert list_findings(text, "channels_last") == [(2, "advice")]
    check_noop("torch.channels_last", text, to="mlu")


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx.contiguous(memory_format=torch.contiguous_format)\nchannels_last = 1\n",
    ],
)
def test_nothing_is_reported_of_channels_last_without_cause(text: str) -> None:
    check_noop("torch.channels_last", text)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.jit.trace(f, x)\ntorch.jit.load('a')\n",
    ],
)
def test_nothing_is_reported_of_jit_script_without_cause(text: str) -> None:
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
    assert list_findings(f"import torch\n{written}\n", "jit_script", to=to) == [(2, "advice")]


@pytest.mark.parametrize(
    "text",
    [
        "import re\nre.compile('x')\nmodel.compile()\n",
        "import torch, torchair\ntorch.compile(f, backend=torchair.get_npu_backend())\n",
        "import torch, torchair\nmine = torchair.get_npu_backend()\ntorch.compile(f, backend=mine)\n",
    ],
)
def test_nothing_is_reported_of_compile_without_cause(text: str) -> None:
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
def test_compile_gets_advice(written: str, to: str) -> None:
    assert list_findings(f"import torch\n{written}\n", "compile", to=to) == [(2, "advice")]


def test_a_graph_of_the_submodule_has_the_cards_graph_as_its_nearest() -> None:
    text = "import torch\ng = torch.cuda.graphs.CUDAGraph()\nwith torch.cuda.graphs.graph(g):\n    pass\n"
    messages = [finding.message for finding in migrate_source(text, "cuda_graphs").findings]
    assert [message.partition("nearest is ")[2].partition(",")[0] for message in messages] == [
        "torch.npu.NPUGraph",
        "torch.npu.graph",
    ]


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
def test_nothing_is_reported_of_cuda_graphs_without_cause(text: str) -> None:
    check_noop("torch.cuda_graphs", text)


BESIDE = "torch.tensorflow_beside"


def test_somebody_elses_session_is_left_alone() -> None:
    check_noop(BESIDE, "import torch\nimport requests\nrequests.Session()\n")


def test_the_first_session_of_a_pytorch_file_is_mentioned_once() -> None:
    source = "import torch\nimport tensorflow as tf\na = tf.Session()\nb = tf.Session()\ntorch.ones(1).cuda()\n"
    result = check_says(BESIDE, source, "advice", "runs on the host")
    assert [finding.line for finding in result.findings] == [3]
