"""torch.cuda's names, under whatever name the file knows them."""

from __future__ import annotations

import importlib

import pytest

from migration.checking import check_noop, check_rewrite, migrated
from viaduct.cards import CARDS
from viaduct.cards.torch_api import BOTH, CUDA, OWN, RENAMED, SUBMODULES, counterpart

RULE = "torch.cuda_api"


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nargs.cuda = True\nif args.cuda: pass\n",
        "import torch\n# torch.cuda.synchronize()\nprint('torch.cuda.synchronize')\n",
        '"""torch.cuda.set_device"""\nimport torch\n',
        "from mylib import torch\ntorch.cuda.set_device(0)\n",
        "import cupy\ncupy.cuda.Device(0)\n",
        "import pycuda.driver as cuda\ncuda.init()\n",
        "from numba import cuda\ncuda.synchronize()\n",
        "import torch\nclass A:\n    cuda = 1\nA.cuda.synchronize()\n",
        "import torch\nurl = 'https://download.pytorch.org/torch.cuda.html'\n",
        "import torch\ntorch.accelerator.synchronize()\n",
    ],
)
def test_what_is_not_torch_cuda_is_left_alone(text: str) -> None:
    check_noop(RULE, text)


@pytest.mark.parametrize(
    ("head", "written", "new"),
    [
        ("import torch", "torch.cuda.empty_cache()", "torch.npu.empty_cache()"),
        ("import torch as t", "t.cuda.empty_cache()", "t.npu.empty_cache()"),
        ("import torch", "f(torch.cuda.Stream)", "f(torch.npu.Stream)"),
        ("import torch", "@torch.cuda.amp.autocast()\ndef f(): pass", "@torch.npu.amp.autocast()\ndef f(): pass"),
        ("import torch", "torch.cuda.is_available = no", "torch.npu.is_available = no"),
        ("import torch", "torch.cuda.random.manual_seed(1)", "torch.npu.random.manual_seed(1)"),
        ("import torch", "x = torch.cuda.FloatTensor([1.0])", "x = torch.npu.FloatTensor([1.0])"),
        ("import torch", "torch.cuda.memory._dump_snapshot('a')", "torch.npu.memory._dump_snapshot('a')"),
        ("import torch", "print(f'{torch.cuda.device_count()} of {n}')", "print(f'{torch.npu.device_count()} of {n}')"),
    ],
)
def test_every_spelling(head: str, written: str, new: str) -> None:
    result = migrated(f"{head}\n{written}\n", RULE)
    assert result.after.decode() == f"{head}\nimport torch_npu\n{new}\n"


def test_an_f_string_that_also_speaks_of_the_name_is_left_to_a_person() -> None:
    text = 'import torch\nprint(f"torch.cuda.device_count is {torch.cuda.device_count()}")\n'
    result = migrated(text, RULE)
    assert not result.changed
    assert [finding.status for finding in result.findings] == ["manual"]


def test_a_line_break_and_its_comment_within_the_name_stay() -> None:
    before = "import torch\nx = (torch  # here\n     .cuda\n     .device_count())\n"
    check_rewrite(RULE, before, before.replace(".cuda", ".npu").replace("torch\n", "torch\nimport torch_npu\n", 1))


def test_both_halves_of_a_conditional_keep_their_structure() -> None:
    before = "import torch\nn = torch.cuda.device_count() if torch.cuda.is_available() else 1\n"
    after = "import torch\nimport torch_mlu\nn = torch.mlu.device_count() if torch.mlu.is_available() else 1\n"
    check_rewrite(RULE, before, after, to="mlu")


def test_what_only_one_card_has_moves_only_there() -> None:
    text = "import torch\nprint(torch.cuda.temperature())\n"
    assert not migrated(text, RULE).changed
    assert "torch.mlu.temperature()" in migrated(text, RULE, to="mlu").after.decode()


@pytest.mark.parametrize("name", ["jiterator", "get_arch_list", "DoubleTensor", "comm.broadcast", "sparse.FloatTensor"])
def test_a_name_in_no_table_has_no_counterpart(name: str) -> None:
    assert counterpart(name, CARDS["npu"]) is None


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("nvtx.range_push", "cnpx.range_push"),
        ("CUDAGraph", "MLUGraph"),
        ("nccl.version", "cncl.version"),
        ("nccl.all_reduce", None),
        ("amp.autocast_mode.autocast", "amp.autocast_mode.autocast"),
        ("amp.something", None),
        ("FloatTensor.type", "FloatTensor.type"),
    ],
)
def test_counterparts_on_the_mlu(name: str, new: str | None) -> None:
    assert counterpart(name, CARDS["mlu"]) == new


def test_every_name_in_the_tables_is_one_of_torch_cuda() -> None:
    torch = pytest.importorskip("torch")
    cards = [*OWN.values(), *(set(names) for names in RENAMED.values())]
    missing = {name for names in (BOTH, CUDA, *cards) for name in names if not hasattr(torch.cuda, name)}
    assert missing <= {"comm", "cutlass"}, "comm is imported when asked for; cutlass is a package beside torch"
    for module, names in SUBMODULES.items():
        place = importlib.import_module(f"torch.cuda.{module}")
        assert [name for name in names if not hasattr(place, name)] == []
