"""ONNX Runtime's CUDA provider, TensorRT, and torch.cuda looked up by its name."""

from __future__ import annotations

import pytest

from migration.checking import migrate_source

PROVIDERS = "providers = ['CUDAExecutionProvider'] if cuda else ['CPUExecutionProvider']\n"


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        f"cuda = torch.cuda.is_available() and device.type != 'cpu'\n{PROVIDERS}",
        f"def load(path):\n    cuda = torch.cuda.is_available()\n    {PROVIDERS}",
        "need('onnxruntime-gpu' if torch.cuda.is_available() else 'onnxruntime')\n",
        "providers = []\nif torch.cuda.is_available():\n    providers.append('CUDAExecutionProvider')\n",
        "class A:\n    def go(self):\n        use = torch.cuda.device_count() > 0\n        if use:\n"
        "            self.session(providers=['TensorrtExecutionProvider', 'CPUExecutionProvider'])\n",
    ],
)
def test_a_test_that_chooses_nvidias_runtime_stays_and_is_reported_once(text: str, to: str) -> None:
    result = migrate_source(f"import torch\n{text}", to=to)
    assert not result.changed, result.after.decode()
    assert [(finding.rule, finding.status) for finding in result.findings] == [("torch.nvidia_runtime", "manual")]


def test_other_tests_in_the_file_are_migrated() -> None:
    device = "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    after = migrate_source(f"import torch\ncuda = torch.cuda.is_available()\n{PROVIDERS}{device}").after.decode()
    assert "cuda = torch.cuda.is_available()\n" in after
    assert "device = 'npu' if torch.npu.is_available() else 'cpu'\n" in after


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_tensorrt_inside_a_function_is_reported_once_and_not_edited(to: str) -> None:
    text = (
        "import torch\n"
        "def load(path, device):\n"
        "    if path.endswith('.engine'):\n"
        "        import tensorrt as trt\n"
        "        if device.type == 'cpu':\n"
        "            device = torch.device('cuda:0')\n"
        "        stream = torch.cuda.current_stream()\n"
        "        images, marks = images.cuda(), torch.load('marks.pt')\n"
        "        with torch.autocast('cuda', enabled=images.is_cuda):\n"
        "            pass\n"
    )
    result = migrate_source(text, to=to)
    assert not result.changed, result.after.decode()
    assert [(finding.rule, finding.status) for finding in result.findings] == [("torch.packages", "manual")]
    other = text + "    else:\n        return torch.load(path).cuda()\n"
    assert "return torch.load(path).cuda()" not in migrate_source(other, to=to).after.decode()


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_torch_cuda_looked_up_by_its_name_is_reported_once(to: str) -> None:
    result = migrate_source("import torch\nmodule = getattr(torch, 'cuda')\nmodule.synchronize()\n", to=to)
    assert not result.changed
    assert [finding.status for finding in result.findings] == ["manual"]


def test_hasattr_of_torch_and_cuda_is_not_reported() -> None:
    assert not migrate_source("import torch\nok = hasattr(torch, 'cuda')\n").findings


def test_a_module_that_is_imported_by_its_name_is_edited_and_not_reported() -> None:
    result = migrate_source("import importlib\nimport torch\nm = importlib.import_module('torch.cuda')\n")
    assert "import_module('torch.npu')" in result.after.decode()
    assert {finding.status for finding in result.findings} == {"changed"}
