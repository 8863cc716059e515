"""Functions and classes of torch.cuda, also under an alias."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HELPER = "from accelerator_device import accelerator\n"

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
def test_every_way_to_write_the_name_is_replaced(head: str, written: str, new: str) -> None:
    result = migrate_source(f"{head}\n{written}\n", RULE)
    assert result.after.decode() == f"{head}\nimport torch_npu\n{new}\n"


def test_an_f_string_with_the_name_in_its_text_needs_manual_review() -> None:
    text = 'import torch\nprint(f"torch.cuda.device_count is {torch.cuda.device_count()}")\n'
    result = migrate_source(text, RULE)
    assert not result.changed
    assert [finding.status for finding in result.findings] == ["manual"]


def test_a_line_break_and_its_comment_within_the_name_stay() -> None:
    before = "import torch\nx = (torch  # here\n     .cuda\n     .device_count())\n"
    check_rewrite(RULE, before, before.replace(".cuda", ".npu").replace("torch\n", "torch\nimport torch_npu\n", 1))


def test_both_halves_of_a_conditional_keep_their_structure() -> None:
    before = "import torch\nn = torch.cuda.device_count() if torch.cuda.is_available() else 1\n"
    after = "import torch\nimport torch_mlu\nn = torch.mlu.device_count() if torch.mlu.is_available() else 1\n"
    check_rewrite(RULE, before, after, to="mlu")


def test_a_name_of_one_card_is_replaced_for_that_card_only() -> None:
    text = "import torch\nprint(torch.cuda.temperature())\n"
    assert not migrate_source(text, RULE).changed
    assert "torch.mlu.temperature()" in migrate_source(text, RULE, to="mlu").after.decode()


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ("import torch\ntry:\n    f()\nexcept torch.cuda.OutOfMemoryError:\n    pass\n", "advice", "2.5"),
    ],
)
def test_what_needs_review_for_the_available_card_is_reported(source: str, status: str, word: str) -> None:
    check_says("cuda_api", source, status, word, to="any")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.accelerator.synchronize()\n",
        "import torch\ntorch.backends.cudnn.benchmark = True\n",
        "from mine import cuda\ncuda.synchronize()\n",
        "import torch\n'''torch.cuda.synchronize()'''  # torch.cuda.empty_cache()\n",
        "import torch\nurl = 'https://example.org/torch.cuda.html'\n",
        "import torch\ncuda = torch.cuda\n",
    ],
)
def test_what_is_not_cudas_stays(source: str) -> None:
    check_noop("cuda_api", source, to="any")


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        ("import torch", "torch.cuda.is_available()", "accelerator.is_available()"),
        ("import torch as t", "t.cuda.device_count() > 1", "accelerator.device_count() > 1"),
        ("import torch.cuda", "torch.cuda.Stream(priority=-1)", "accelerator.Stream(priority=-1)"),
        ("import torch.cuda as c", "c.memory_allocated()", "accelerator.memory_allocated()"),
        ("import torch", "torch.cuda.random.get_rng_state_all()", "accelerator.get_rng_state_all()"),
        ("import torch", "torch.cuda.FloatTensor if cuda else torch.FloatTensor", None),
        ("import torch", 'f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB"', None),
        ("import torch", "call(torch.cuda.synchronize)", "call(accelerator.synchronize)"),
    ],
)
def test_every_way_to_write_the_name_is_replaced_for_the_available_card(
    head: str, before: str, after: str | None
) -> None:
    after = after or before.replace("torch.cuda.", "accelerator.")
    check_rewrite("cuda_api", f"{head}\nx = {before}\n", f"{head}\n{HELPER}x = {after}\n", to="any")


def test_an_import_that_is_no_longer_used_is_removed() -> None:
    before = "import torch\nfrom torch import cuda\nfrom torch.cuda import synchronize\ncuda.init()\nsynchronize()\n"
    check_rewrite(
        "cuda_api", before, f"import torch\n{HELPER}accelerator.init()\naccelerator.synchronize()\n", to="any"
    )


def test_the_device_block_has_another_name_in_the_helper() -> None:
    body = "with {}(1):\n    pass\n"
    check_rewrite(
        "cuda_api",
        "import torch\n" + body.format("torch.cuda.device"),
        f"import torch\n{HELPER}" + body.format("accelerator.device_index"),
        to="any",
    )


def test_a_branch_under_a_test_for_a_card_keeps_its_structure() -> None:
    before = """\
    import torch
    if not torch.cuda.is_available():
        print("using CPU")  # slow
    elif distributed:
        torch.cuda.set_device(gpu)
    """
    after = """\
    import torch
    from accelerator_device import accelerator
    if not accelerator.is_available():
        print("using CPU")  # slow
    elif distributed:
        accelerator.set_device(gpu)
    """
    check_rewrite("cuda_api", before, after, to="any")


@pytest.mark.parametrize(
    ("name", "risk"),
    [
        ("torch.cuda.nvtx.range_push('a')", "high"),
        ("torch.cuda.CUDAGraph()", "high"),
        ("torch.cuda.comm.scatter(x)", "high"),
    ],
)
def test_a_name_that_only_cuda_has_stays_and_is_reported(name: str, risk: str) -> None:
    result = check_says("cuda_api", f"import torch\n{name}\n", "manual", "available on CUDA only", to="any")
    assert result.findings[0].risk == risk


def test_under_a_test_for_cuda_the_risk_is_low() -> None:
    source = f"import torch\n{HELPER}if accelerator.name() == 'cuda':\n    torch.cuda.nvtx.mark('a')\n"
    assert check_says("cuda_api", source, "manual", "available on CUDA only", to="any").findings[0].risk == "low"


def test_a_name_in_use_is_not_taken_for_the_helper() -> None:
    source = "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\ntorch.cuda.synchronize()\n"
    after = migrate_source(source, "cuda_api", to="any").after.decode()
    assert "from accelerator_device import accelerator as any_accelerator\n" in after
    assert "\nany_accelerator.synchronize()\n" in after
    assert "accelerator = Accelerator()\n" in after


def test_a_parameter_of_that_name_hides_it() -> None:
    source = "import torch\ntorch.cuda.synchronize()\ndef f(accelerator):\n    torch.cuda.empty_cache()\n"
    after = migrate_source(source, "cuda_api", to="any").after.decode()
    assert "def f(accelerator):\n    any_accelerator.empty_cache()\n" in after


def test_the_module_as_a_value_needs_manual_review() -> None:
    check_says("cuda_api", "import torch\nuse(torch.cuda)\n", "manual", "as a module", to="any")


def test_a_default_type_is_not_replaced_by_the_helpers() -> None:
    """The NPU takes none; the rule of default types says so."""
    check_noop("cuda_api", "import torch\ntorch.set_default_tensor_type(torch.cuda.FloatTensor)\n", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = isinstance(x.data, torch.cuda.FloatTensor)", "a = isinstance(x.data, accelerator.types.FloatTensor)"),
        ("a = isinstance(x, (int, torch.cuda.HalfTensor))", "a = isinstance(x, (int, accelerator.types.HalfTensor))"),
        ("a = kind is torch.cuda.LongTensor", "a = kind is accelerator.types.LongTensor"),
        (
            "KINDS = [torch.cuda.FloatTensor]\na = type(x) in KINDS",
            "KINDS = [accelerator.types.FloatTensor]\na = type(x) in KINDS",
        ),
        ("x = torch.cuda.FloatTensor(3)", "x = accelerator.FloatTensor(3)"),
        (
            "KINDS = [torch.cuda.FloatTensor]\na = type(x) in KINDS\nx = KINDS[0](3)",
            "KINDS = [accelerator.FloatTensor]\na = type(x) in KINDS\nx = KINDS[0](3)",
        ),
    ],
)
def test_a_compared_type_is_never_the_cpus(before: str, after: str) -> None:
    check_rewrite("cuda_api", f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


NEUTRAL = """\
import torch
device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
torch.accelerator.synchronize()
x = torch.zeros(3, device=device)
"""

MPS = """\
import torch
if not args.no_mps and torch.backends.mps.is_available():
    device = torch.device("mps")
else:
    device = torch.device("cpu")
torch.mps.empty_cache()
"""


@pytest.mark.parametrize("text", [NEUTRAL, MPS], ids=["accelerator", "mps"])
@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_device_neutral_code_and_branches_for_other_devices_are_left_alone(text: str, to: str) -> None:
    result = migrate_source(text, to=to)
    assert not result.changed
    assert not result.findings


def test_a_branch_for_the_cpu_keeps_its_structure() -> None:
    before = (
        "import torch\nif not torch.cuda.is_available():\n    print('using CPU, this will be slow')\nelse:\n    go()\n"
    )
    after = before.replace("torch.cuda", "torch.npu").replace("import torch\n", "import torch\nimport torch_npu\n")
    assert migrate_source(before).after.decode() == after


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ndef f(scaler: torch.cuda.amp.GradScaler) -> torch.cuda.amp.GradScaler:\n    return scaler\n",
        "import torch\nclass A:\n    scaler: torch.cuda.amp.GradScaler\n",
        "# torch.cuda.amp.autocast()\nimport torch\n",
    ],
)
def test_a_class_of_mixed_precision_in_an_annotation_stays(source: str) -> None:
    check_noop(RULE, source, to="any")


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        ("import torch", "torch.cuda.amp.autocast()", "accelerator.autocast()"),
        ("import torch as t", "t.cuda.amp.autocast(on)", "accelerator.autocast(on)"),
        (
            "import torch\nfrom torch.cuda import amp",
            "amp.GradScaler(2.0, enabled=on)",
            "accelerator.GradScaler(2.0, enabled=on)",
        ),
        ("import torch\nfrom torch.cuda.amp import autocast as ac", "ac(dtype=d)", "accelerator.autocast(dtype=d)"),
        ("import torch", "make(torch.cuda.amp.GradScaler)", "make(accelerator.GradScaler)"),
    ],
)
def test_mixed_precision_of_cuda_becomes_the_helpers(head: str, before: str, after: str) -> None:
    left = "\n".join(line for line in head.split("\n") if "torch.cuda" not in line)  # used no more
    check_rewrite(RULE, f"{head}\nx = {before}  # kept\n", f"{left}\n{HELPER}x = {after}  # kept\n", to="any")


def test_decorators_of_mixed_precision_are_replaced() -> None:
    head = "import torch\nfrom torch.cuda.amp import autocast, custom_fwd\n"
    body = "class F(torch.autograd.Function):\n    @staticmethod\n    @{}\n    def forward(ctx, x):\n        return x\n"
    more = "@{}(enabled=False)\ndef f(x):\n    return x\n"
    before = head + body.format("custom_fwd") + more.format("autocast")
    after = "import torch\n" + HELPER + body.format("accelerator.amp.custom_fwd") + more.format("accelerator.autocast")
    result = check_rewrite("", before, after, to="any")
    assert {finding.rule for finding in result.findings} == {"torch.cuda_api", "torch.unused_imports"}


def test_a_class_in_isinstance_needs_manual_review() -> None:
    source = "import torch\nif isinstance(s, torch.cuda.amp.GradScaler):\n    pass\n"
    check_says(RULE, source, "manual", "its own class", to="any")


@pytest.mark.parametrize(
    "line",
    [
        "def run(scaler: GradScaler | None = None):\n    pass\n",
        "def make() -> GradScaler:\n    pass\n",
        "scaler: Optional[GradScaler] = None\n",
    ],
)
def test_a_class_in_an_annotation_is_right_as_it_is(line: str) -> None:
    result = migrate_source(
        f"import torch\nfrom typing import Optional\nfrom torch.cuda.amp import GradScaler\n{line}", to="any"
    )
    assert [(location.requirement, location.state) for location in result.places] == [("amp", "right")]


def test_the_value_behind_an_annotation_is_changed() -> None:
    source = "import torch\nfrom torch.cuda.amp import GradScaler\nkind: type = GradScaler\n"
    assert "kind: type = accelerator.GradScaler" in migrate_source(source, to="any").after.decode()
