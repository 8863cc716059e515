"""The older profiler, torch.autograd.profiler."""

from __future__ import annotations

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

RULE = "torch.profiler"


def test_tables_of_the_older_profiler_are_not_reported() -> None:
    text = (
        "import torch\nwith torch.autograd.profiler.profile() as prof: pass\nprint(prof.key_averages())\n"
        "with torch.profiler.profile() as prof: pass\nprint(prof.key_averages())\n"
    )
    lines = [finding.line for finding in migrate_source(text, RULE).findings if "key_averages" in finding.message]
    assert lines == [5]


OLD = "torch.autograd_profiler"


def test_the_older_profiler_of_the_cpu_is_left_alone() -> None:
    check_noop(OLD, "import torch\nwith torch.autograd.profiler.profile(use_cuda=False) as p: pass\n")
    check_noop(OLD, "import torch\nwith torch.autograd.profiler.profile() as p: pass\n", to="mlu")


def test_the_older_profiler_does_not_see_the_npu() -> None:
    text = "import torch\nwith torch.autograd.profiler.profile(use_cuda=True) as p: pass\n"
    check_says(OLD, text, "manual", "torch_npu.profiler")
    check_says(OLD, "import torch\nwith torch.autograd.profiler.emit_nvtx(): pass\n", "manual", "torch_npu.profiler")


def test_the_older_profiler_gets_the_mlu_as_its_device() -> None:
    before = "import torch\nwith torch.autograd.profiler.profile(use_cuda=True) as p: pass\n"
    after = 'import torch\nimport torch_mlu\nwith torch.autograd.profiler.profile(use_device="mlu") as p: pass\n'
    check_rewrite(OLD, before, after, to="mlu")


def test_a_flag_of_the_older_profiler_needs_manual_review() -> None:
    text = "import torch\nwith torch.autograd.profiler.profile(use_cuda=flag) as p: pass\n"
    check_says(OLD, text, "manual", "use_device", to="mlu")


def test_an_imported_emit_nvtx_is_replaced() -> None:
    before = "from torch.autograd.profiler import emit_nvtx\nwith emit_nvtx(): pass\n"
    after = "from torch_mlu.profiler import emit_cnpx as emit_nvtx\nwith emit_nvtx(): pass\n"
    check_rewrite(OLD, before, after, to="mlu")


def test_a_name_that_its_f_string_also_has_in_words_is_reported() -> None:
    name = "torch.autograd.profiler.emit_nvtx"
    check_says(OLD, f'import torch\nprint(f"{name}: {{{name}}}")\n', "manual", "cannot be edited safely", to="mlu")
