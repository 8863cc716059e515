"""What cannot be carried over is named, once, and left as written: rules that only speak."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, migrated

EVERYWHERE = ("npu", "mlu", "any")


def said(text: str, rule: str = "", **options: object) -> list[tuple[int, str]]:
    found = migrated(text, rule, **options).findings
    return [(finding.line, finding.status) for finding in found if finding.rule == f"torch.{rule}"]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("cuda_unknown", "import torch\ntorch.cuda.synchronize()\ntorch.npu.set_compile_mode(jit_compile=False)\n"),
        ("cuda_unknown", "import mycuda\nmycuda.cuda.jiterator()\n"),
        ("capability", "def get_device_capability(): pass\nget_device_capability()\n"),
        ("properties", "import torch\np = torch.cuda.get_device_properties(0)\nprint(p.name, p.total_memory)\n"),
        ("properties", "import torch\nprint(torch.cuda.get_device_properties)\nv = sys.version_info\nv.major\n"),
        ("double", "import torch\nx = torch.zeros(3, dtype=torch.float64)\ny = x.double()\nz = x.to(torch.float64)\n"),
        ("double", "import torch\nx = torch.zeros(3, dtype=torch.float64, device='cpu')\ny = x.to('cpu').double()\n"),
        ("cuda_graphs", "import graph\ngraph.graph()\nimport torch\ntorch.cuda.synchronize()\n"),
        ("nvtx", "import nvtx\nnvtx.push_range('a')\n"),
        ("compile", "import re\nre.compile('x')\nmodel.compile()\n"),
        ("compile", "import torch, torchair\ntorch.compile(f, backend=torchair.get_npu_backend())\n"),
        ("compile", "import torch, torchair\nmine = torchair.get_npu_backend()\ntorch.compile(f, backend=mine)\n"),
        ("jit_script", "import torch\ntorch.jit.trace(f, x)\ntorch.jit.load('a')\n"),
        ("channels_last", "import torch\nx.contiguous(memory_format=torch.contiguous_format)\nchannels_last = 1\n"),
        ("backends_cuda", "import torch\ntorch.backends.cudnn.benchmark = True\ntorch.version.git_version\n"),
        ("backends_cuda", "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n"),
    ],
)
def test_nothing_is_said_without_cause(rule: str, text: str) -> None:
    check_noop(f"torch.{rule}", text)


def test_a_name_that_another_rule_speaks_of_is_named_once() -> None:
    text = "import torch\ntorch.cuda.nvtx.range_push('a')\ntorch.cuda.DoubleTensor(3)\ng = torch.cuda.CUDAGraph()\n"
    manual = [(f.line, f.rule) for f in migrated(text).findings if f.status == "manual"]
    assert manual == [(2, "torch.nvtx"), (3, "torch.double"), (4, "torch.cuda_graphs")]


@pytest.mark.parametrize("to", EVERYWHERE)
@pytest.mark.parametrize(
    ("rule", "written"),
    [
        ("compile", "m = torch.compile(m)"),
        ("compile", "m = torch.compile(m, backend='inductor')"),
        ("compile", "m = torch.compile(m, backend=args.backend)"),
        ("compile", "@torch.compile\ndef f(x): return x"),
        ("jit_script", "m = torch.jit.script(m)"),
        ("jit_script", "@torch.jit.script\ndef f(x): return x"),
    ],
)
def test_compiled_code_gets_advice(rule: str, written: str, to: str) -> None:
    assert said(f"import torch\n{written}\n", rule, to=to) == [(2, "advice")]


def test_every_finding_has_chinese_words() -> None:
    text = (
        "import torch\ntorch.cuda.jiterator\ntorch.cuda.get_device_capability()\ntorch.cuda.nvtx.mark('a')\n"
        "torch.cuda.DoubleTensor(1)\ntorch.compile(f)\ntorch.jit.script(f)\ntorch.channels_last\ntorch.version.cuda\n"
        "torch.cuda.CUDAGraph()\ntorch.cuda.get_device_properties(0).major\ntorch.backends.cudnn.benchmark = True\n"
    )
    for to in EVERYWHERE:
        found = migrated(text, to=to).findings
        assert found
        assert all(any("\u4e00" <= letter <= "\u9fff" for letter in finding.message_zh) for finding in found)
