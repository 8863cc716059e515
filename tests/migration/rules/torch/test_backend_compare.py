from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HELPER = "from accelerator_device import accelerator\n"

HEAD = "import torch.distributed as dist\n"


@pytest.mark.parametrize(
    "source",
    [
        HEAD + "if 'nccl' in os.environ: pass\n",
        HEAD + "if dist.get_backend() == 'gloo': pass\n",
        HEAD + "if 'NCCL_DEBUG' in names: pass\n",
        HEAD + "if 'use nccl here' in backend_notes: pass\n",
        HEAD + "if dist.get_backend() == 'hccl': pass  # was nccl\n",
    ],
)
def test_comparisons_without_nccl_are_left_alone(source: str) -> None:
    check_noop("backend_compare", source)


def test_something_that_may_be_a_backend_needs_manual_review() -> None:
    check_says("backend_compare", HEAD + "if args.library == 'nccl': pass\n", "manual", "hccl")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if dist.get_backend() == 'nccl': pass\n", "if dist.get_backend() == 'cncl': pass\n"),
        ('assert args.dist_backend in ("gloo", "nccl")\n', 'assert args.dist_backend in ("gloo", "cncl")\n'),
        ("if 'nccl' != self.backend: pass\n", "if 'cncl' != self.backend: pass\n"),
        ("b = dist.get_backend()\nif b == 'nccl': pass\n", "b = dist.get_backend()\nif b == 'cncl': pass\n"),
        ("if backend.startswith('nccl'): pass\n", "if backend.startswith('cncl'): pass\n"),
        (
            "match backend:\n    case 'nccl': pass\n    case _: pass\n",
            "match backend:\n    case 'cncl': pass\n    case _: pass\n",
        ),
    ],
)
def test_comparisons_of_a_backend_are_edited(before: str, after: str) -> None:
    check_rewrite("backend_compare", HEAD + before, HEAD + after, to="mlu")


def test_a_patch_cannot_change_a_comparison() -> None:
    result = check_says(
        "backend_compare", HEAD + "if dist.get_backend() == 'nccl': pass\n", "manual", "write hccl", mode="patch"
    )
    assert result.findings[0].risk == "high"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if args.backend == 'nccl':\n    pass", "if args.backend in accelerator.BACKENDS:\n    pass"),
        (
            "if dist.get_backend() != dist.Backend.NCCL:\n    pass",
            "if dist.get_backend() not in accelerator.BACKENDS:\n    pass",
        ),
    ],
)
def test_a_comparison_becomes_one_with_all_backends(before: str, after: str) -> None:
    check_rewrite("backend_compare", f"{HEAD}{before}\n", f"{HEAD}{HELPER}{after}\n", to="any")


@pytest.mark.parametrize("to", ["any", "npu"])
@pytest.mark.parametrize(
    "source",
    [
        "if args.library == 'nccl': pass\n",
        "if library.startswith('nccl'): pass\n",
        "match library:\n    case 'nccl': pass\n    case _: pass\n",
    ],
)
def test_a_comparison_of_something_else_is_reported(source: str, to: str) -> None:
    check_says("backend_compare", HEAD + source, "manual", "if this checks the collective backend", to=to)


@pytest.mark.parametrize(
    "source",
    [
        "if 'nccl' in backend: pass\n",
        "if args.backend in ('gloo', 'nccl'): pass\n",
        "if backend.upper() == 'NCCL': pass\n",
        "if backend == 'cpu:gloo,cuda:nccl': pass\n",
        "if library == dist.Backend.NCCL: pass\n",
        "if backend.startswith('nccl'): pass\n",
        "match backend:\n    case 'nccl': pass\n    case _: pass\n",
    ],
)
def test_any_reports_what_it_cannot_change(source: str) -> None:
    check_says("backend_compare", HEAD + source, "manual", "accelerator.BACKENDS", to="any")
