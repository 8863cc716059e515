"""What cannot be carried over is named, once, and left as written: rules that only speak."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrated

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


@pytest.mark.parametrize(
    "written", ["torch.cuda.jiterator", "torch.cuda.comm.broadcast(x, [0, 1])", "torch.cuda.nccl.version()"]
)
def test_a_name_that_is_in_no_table_is_unknown_on_the_npu(written: str) -> None:
    check_says("torch.cuda_unknown", f"import torch\nx = {written}\n", "manual", "not known to exist on the NPU")


def test_the_class_of_memory_errors_may_stay() -> None:
    text = "import torch\ntry: pass\nexcept torch.cuda.OutOfMemoryError: pass\n"
    check_says("torch.cuda_unknown", text, "advice", "may stay")
    assert "torch.mlu.OutOfMemoryError" in migrated(text, to="mlu").after.decode()


def test_an_unknown_name_is_found_through_an_import_that_was_moved() -> None:
    result = migrated("from torch import cuda\ncuda.synchronize()\ncuda.list_gpu_processes()\n")
    found = [finding for finding in result.findings if finding.rule == "torch.cuda_unknown"]
    assert [(finding.line, finding.status) for finding in found] == [(3, "manual")]


def test_a_name_that_another_rule_speaks_of_is_named_once() -> None:
    text = "import torch\ntorch.cuda.nvtx.range_push('a')\ntorch.cuda.DoubleTensor(3)\ng = torch.cuda.CUDAGraph()\n"
    manual = [(f.line, f.rule) for f in migrated(text).findings if f.status == "manual"]
    assert manual == [(2, "torch.nvtx"), (3, "torch.double"), (4, "torch.cuda_graphs")]


@pytest.mark.parametrize("to", EVERYWHERE)
@pytest.mark.parametrize(
    "written", ["torch.cuda.get_device_capability()[0] >= 8", "f(torch.cuda.get_device_capability)"]
)
def test_the_compute_capability_is_for_a_person(to: str, written: str) -> None:
    check_says("torch.capability", f"import torch\nx = {written}\n", "manual", "is_bf16_supported", to=to)


def test_the_compute_capability_stays_reported_where_the_mlu_has_its_own() -> None:
    result = migrated("import torch\nprint(torch.cuda.get_device_capability())\n", to="mlu")
    assert "torch.mlu.get_device_capability()" in result.after.decode()
    assert "torch.capability" in {finding.rule for finding in result.findings if finding.status == "manual"}


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nprint(torch.cuda.get_device_properties(0).major)\n",
        "import torch\np = torch.cuda.get_device_properties(0)\nprint(p.multi_processor_count)\n",
        "import torch\nclass A:\n    def f(self):\n        self.p = torch.cuda.get_device_properties(0)\n"
        "        print(self.p.minor)\n",
    ],
)
def test_properties_that_the_card_lacks_are_named(text: str) -> None:
    assert [status for _, status in said(text, "properties")] == ["manual"]


@pytest.mark.parametrize(
    "written",
    [
        "torch.cuda.DoubleTensor(3)",
        "torch.set_default_dtype(torch.float64)",
        "torch.zeros(3, dtype=torch.double, device=device)",
        "x.to(device, torch.float64)",
        "x.to(device=device, dtype=torch.float64)",
        "x.double().cuda()",
        "x.cuda().double()",
        "x.double().to('cuda:0')",
    ],
)
@pytest.mark.parametrize("to", EVERYWHERE)
def test_double_precision_on_the_card_is_named(written: str, to: str) -> None:
    assert said(f"import torch\ny = {written}\n", "double", to=to) == [(2, "manual")]


def test_a_graph_is_left_on_the_npu_and_moves_on_the_mlu() -> None:
    text = "import torch\ng = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    pass\n"
    assert said(text, "cuda_graphs") == [(2, "manual"), (3, "manual")]
    after = migrated(text, to="mlu").after.decode()
    assert "torch.mlu.MLUGraph()" in after
    assert "torch.mlu.graph(g)" in after


def test_marks_are_left_on_the_npu_and_move_on_the_mlu() -> None:
    text = "import torch\nfrom torch.cuda import nvtx\nnvtx.range_push('a')\ntorch.cuda.nvtx.range_pop()\n"
    assert said(text, "nvtx") == [(3, "manual"), (4, "manual")]
    result = migrated(text, to="mlu")
    assert "torch.mlu.cnpx.range_pop()" in result.after.decode()
    assert "nvtx.range_push('a')" in result.after.decode()
    assert not [finding for finding in result.findings if finding.status == "manual"]


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


def test_channels_last_gets_advice_on_the_npu_alone() -> None:
    text = "import torch\nm = m.to(memory_format=torch.channels_last)\n"
    assert said(text, "channels_last") == [(2, "advice")]
    check_noop("torch.channels_last", text, to="mlu")


@pytest.mark.parametrize(
    "written",
    ["print(torch.version.cuda)", "torch.backends.cuda.is_built()", "torch.backends.cuda.enable_flash_sdp(True)"],
)
def test_what_speaks_of_cuda_alone_is_named(written: str) -> None:
    assert [line for line, _ in said(f"import torch\n{written}\n", "backends_cuda")] == [2]


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
