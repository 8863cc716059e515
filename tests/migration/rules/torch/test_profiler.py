"""Profilers: torch_npu's own, torch_mlu's activity."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HELPER = "from accelerator_device import accelerator\n"

RULE = "torch.profiler"


@pytest.mark.parametrize(
    "text",
    [
        "from torch.profiler import ProfilerActivity, profile\nprofile(activities=[ProfilerActivity.CPU])\n",
        "from torch.profiler import record_function\nwith record_function('a'): pass\n",
        "from mylib import profile, ProfilerActivity\nprofile(activities=[ProfilerActivity.CUDA])\n",
        "import cProfile\ncProfile.run('x')\n",
    ],
)
@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_what_does_not_profile_a_card_is_left_alone(text: str, to: str) -> None:
    check_noop(RULE, text, to=to)


def test_record_function_stays_with_torch() -> None:
    before = "from torch.profiler import profile, record_function\nwith profile() as p, record_function('a'): pass\n"
    after = (
        "from torch_npu.profiler import profile\nfrom torch.profiler import record_function\n"
        "with profile() as p, record_function('a'): pass\n"
    )
    check_rewrite(RULE, before, after)


def test_a_dotted_name_is_replaced_as_a_whole() -> None:
    before = (
        "import torch\np = torch.profiler.profile(\n    activities=[torch.profiler.ProfilerActivity.CUDA],  # both\n"
        "    schedule=torch.profiler.schedule(wait=1, warmup=1, active=2),\n)\n"
    )
    after = before.replace("torch.profiler", "torch_npu.profiler").replace("CUDA", "NPU")
    check_rewrite(RULE, before, after.replace("import torch\n", "import torch\nimport torch_npu\n"))


def test_an_alias_of_the_module_keeps_its_other_names() -> None:
    before = "import torch\nimport torch.profiler as tp\nwith tp.profile() as p, tp.record_function('a'): pass\n"
    after = (
        "import torch\nimport torch_npu\nimport torch.profiler as tp\n"
        "with torch_npu.profiler.profile() as p, tp.record_function('a'): pass\n"
    )
    check_rewrite(RULE, before, after)


def test_on_the_mlu_torchs_profiler_gets_the_activity_mlu() -> None:
    before = (
        "import torch\nfrom torch.profiler import ProfilerActivity as A, profile\nprofile(activities=[A.CPU, A.CUDA])\n"
    )
    after = before.replace("A.CUDA", "A.MLU").replace("import torch\n", "import torch\nimport torch_mlu\n", 1)
    check_rewrite(RULE, before, after, to="mlu")


def test_a_table_needs_manual_review_on_the_npu() -> None:
    text = "from torch.profiler import profile\nwith profile() as p: pass\nprint(p.key_averages().table())\n"
    found = migrate_source(text, RULE).findings
    assert [(finding.line, finding.status) for finding in found] == [(1, "changed"), (3, "manual")]


def test_a_column_of_cuda_gets_advice_on_the_mlu() -> None:
    text = "import torch\nprint(p.key_averages().table(sort_by='cuda_time_total'))\n"
    check_says(RULE, text, "advice", "device_time_total", to="mlu")


def test_use_cuda_needs_manual_review() -> None:
    found = migrate_source("import torch\nwith torch.profiler.profile(use_cuda=True): pass\n", RULE).findings
    assert "manual" in {finding.status for finding in found}


@pytest.mark.parametrize(
    "source",
    [
        "from torch.profiler import ProfilerActivity as A\nprint(A.CPU)\n",
    ],
)
def test_what_needs_nothing_for_the_available_card_stays(source: str) -> None:
    check_noop("profiler", source, to="any")


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        (
            "from torch.profiler import *\nimport torch",
            "a = torch.profiler.ProfilerActivity.CUDA",
            "a = accelerator.activity()",
        ),
    ],
)
def test_it_follows_the_available_card(head: str, before: str, after: str) -> None:
    check_rewrite("profiler", f"{head}\n{before}\n", f"{head}\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ("import torch\ntorch.autograd.profiler.profile(use_cuda=True)\n", "manual", "use_device"),
    ],
)
def test_what_needs_review_for_the_available_card_is_reported(source: str, status: str, word: str) -> None:
    check_says("profiler", source, status, word, to="any")


def test_a_name_that_its_f_string_also_has_in_words_is_reported() -> None:
    name = "torch.profiler.ProfilerActivity.CUDA"
    check_says(RULE, f'import torch\nprint(f"{name}: {{{name}}}")\n', "manual", "cannot be edited safely", to="mlu")
