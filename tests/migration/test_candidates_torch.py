"""Places without a call: a method kept for later, a function passed as a value, a module looked up by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from migration.small_project import migrated_project
from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project
from viaduct.migration.summary import Summary, summarise

HEAD = "import torch, sys, importlib\nfrom functools import partial, wraps\n"


def summary_of(folder: Path, text: str, **options: object) -> Summary:
    (folder / "train.py").write_text(text)
    return summarise(migrated_project(folder, **options))


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        "use = args.cuda\n",
        "class Net(torch.nn.Module):\n    def go(self):\n        return self.cuda\n",
        "class Box:\n    def cuda(self):\n        return self\nmove = Box().cuda\n",
        "names = {'cuda': 1}\nnames['cuda']\n",
        "@wraps(torch.load)\ndef load(*args):\n    pass\n",
        "kind = read is torch.load\n",
    ],
)
def test_what_only_looks_like_it_is_not_counted(tmp_path: Path, text: str, to: str) -> None:
    assert summary_of(tmp_path, HEAD + text, to=to).verdict == "nothing to change"


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        "torch.__dict__['cuda'].synchronize()\n",
        "vars(torch)['cuda'].synchronize()\n",
        "sys.modules['torch.cuda'].synchronize()\n",
        "card = torch.device\nLOADERS = {'.pt': torch.load}\n",
        "read = partial(torch.load)\n",
        "register(loader=torch.load)\n",
        "class Reader:\n    def __init__(self):\n        self.load = torch.load\n",
    ],
)
def test_what_is_handed_on_or_looked_up_is_unresolved(tmp_path: Path, text: str, to: str) -> None:
    summary = summary_of(tmp_path, HEAD + text, to=to)
    assert summary.verdict == "incomplete"
    assert sum(row.unresolved for row in summary.ledger) == 1


@pytest.mark.parametrize(
    "text",
    [
        "x = torch.zeros(2)\nmove = x.cuda\n",
        "net = torch.nn.Linear(2, 2)\nrun(net.cuda)\n",
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.head = torch.nn.Linear(2, 2)\n        self.move = self.head.cuda\n",
    ],
)
def test_a_method_kept_for_later_is_the_cards(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(HEAD + text)
    outcome = migrated_project(tmp_path, to="mlu")
    assert ".cuda" not in outcome.by_path["train.py"].new_text
    assert summarise(outcome).verdict == "complete"
    assert summary_of(tmp_path, HEAD + text, to="any").verdict == "incomplete"


def test_a_partial_load_that_says_where_is_right(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, HEAD + "read = partial(torch.load, map_location='cpu')\n")
    assert [(row.requirement, row.needed, row.right) for row in summary.ledger] == [("checkpoints", 1, 1)]


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_private_functions_of_cuda_are_unresolved(tmp_path: Path, to: str) -> None:
    summary = summary_of(tmp_path, HEAD + "stream = torch._C._cuda_getCurrentRawStream(0)\n", to=to)
    assert [(row.requirement, row.unresolved) for row in summary.ledger] == [("device_calls", 1)]


@pytest.mark.parametrize(("to", "state"), [("npu", "manual"), ("mlu", "changed"), ("any", "manual")])
@pytest.mark.parametrize("use", ["ProcessGroupNCCL.Options()", "ProcessGroupNCCL"])
def test_the_class_of_nccls_groups_is_counted_for_every_target(tmp_path: Path, use: str, to: str, state: str) -> None:
    summary = summary_of(tmp_path, f"import torch.distributed as dist\noptions = dist.{use}\n", to=to)
    row = next(row for row in summary.ledger if row.requirement == "backend")
    assert row.needed == getattr(row, state) == 1


@pytest.mark.parametrize(
    "line",
    [
        'os.system("python eval.py --device cuda")',
        'subprocess.check_call("torchrun e.py --device=cuda:0", shell=True)',
        'COMMAND = f"python x.py --dist-backend nccl --seed {os.getpid()}"',
        'subprocess.run("CUDA_VISIBLE_DEVICES=0 python x.py", shell=True)',
    ],
)
@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_a_command_that_chooses_cuda_in_a_text_is_not_called_complete(tmp_path: Path, line: str, to: str) -> None:
    (tmp_path / "train.py").write_text(
        f"import os\nimport subprocess\nimport torch\nx = torch.ones(1).cuda()\n{line}\n"
    )
    outcome = migrate_project(tmp_path, Options(to=to), 1)
    assert any(location.line == 5 and location.state != "right" for file in outcome.files for location in file.places)


@pytest.mark.parametrize(
    "line", ['"""Run: python train.py --device cuda"""', 'print("run it with --device cuda")', "x = 1  # --device cuda"]
)
def test_a_command_that_is_only_told_needs_no_change(tmp_path: Path, line: str) -> None:
    (tmp_path / "train.py").write_text(f"import torch\nx = torch.ones(1).cuda()\n{line}\n")
    outcome = migrate_project(tmp_path, Options(to="npu"), 1)
    assert not any(location.line == 3 for file in outcome.files for location in file.places)


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        "modules = [torch]\nmodules[0].cuda.synchronize()\n",
        "__import__('torch').cuda.empty_cache()\n",
        "class Timer:\n    def __init__(self, lib):\n        self.lib = lib\n"
        "    def stop(self):\n        self.lib.cuda.synchronize()\n",
    ],
)
def test_a_function_of_cuda_behind_an_object_that_may_be_torch_is_unresolved(
    tmp_path: Path, text: str, to: str
) -> None:
    summary = summary_of(tmp_path, HEAD + text, to=to)
    assert [(row.requirement, row.unresolved) for row in summary.ledger] == [("device_calls", 1)]


@pytest.mark.parametrize(
    "text", ["import cupy\ncupy.cuda.Stream()\n", "args.cuda.lower()\n", "from numba import cuda\ncuda.stream()\n"]
)
def test_a_module_named_cuda_of_another_library_is_not_torchs(tmp_path: Path, text: str) -> None:
    assert all(row.requirement != "device_calls" for row in summary_of(tmp_path, HEAD + text).ledger)


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize(
    "text",
    [
        "start(settings={'CUDA_VISIBLE_DEVICES': '0'})\n",
        "start(CUDA_VISIBLE_DEVICES='0')\n",
        "mock.patch.dict(place, {'CUDA_VISIBLE_DEVICES': '0'})\n",
    ],
)
def test_a_variable_of_cuda_in_a_dict_that_may_be_an_environment_is_unresolved(
    tmp_path: Path, text: str, to: str
) -> None:
    summary = summary_of(tmp_path, HEAD + text, to=to)
    assert [(row.requirement, row.unresolved) for row in summary.ledger] == [("visible_devices", 1)]


def test_a_dict_with_the_variables_of_several_cards_needs_no_change(tmp_path: Path) -> None:
    text = "start({'CUDA_VISIBLE_DEVICES': '0', 'ASCEND_RT_VISIBLE_DEVICES': '0'})\n"
    assert [(row.requirement, row.right) for row in summary_of(tmp_path, HEAD + text).ledger] == [
        ("visible_devices", 1)
    ]
