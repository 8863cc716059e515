"""Process groups and wrappers for the available card."""

from __future__ import annotations

import pytest

from migration.checking import check_rewrite

HELPER = "from accelerator_device import accelerator\n"
DIST = "import torch.distributed as dist\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dist.init_process_group('nccl')", "dist.init_process_group(accelerator.backend())"),
        (
            "dist.init_process_group(backend='nccl', rank=r)",
            "dist.init_process_group(backend=accelerator.backend(), rank=r)",
        ),
        (
            "b = 'nccl' if torch_ok else 'gloo'\ndist.init_process_group(b)",
            "b = accelerator.backend() if torch_ok else 'gloo'\ndist.init_process_group(b)",
        ),
        ("dist.new_group([0], backend='nccl')", "dist.new_group([0], backend=accelerator.backend())"),
        (
            "parser.add_argument('--backend', default='nccl', choices=['nccl', 'gloo'], help='nccl')",
            "parser.add_argument('--backend', default=accelerator.backend(), "
            "choices=[accelerator.backend(), 'gloo'], help='nccl')",
        ),
        ("if args.backend == 'nccl':\n    pass", "if args.backend in accelerator.BACKENDS:\n    pass"),
        (
            "if dist.get_backend() != dist.Backend.NCCL:\n    pass",
            "if dist.get_backend() not in accelerator.BACKENDS:\n    pass",
        ),
        ("a = dist.is_nccl_available()", "a = dist.is_backend_available(accelerator.backend())"),
        (
            "dist.init_process_group('nccl', device_id=device)",
            "dist.init_process_group(accelerator.backend(), device_id=accelerator.unless_cpu(device))",
        ),
    ],
)
def test_the_backend_follows_the_card(before: str, after: str) -> None:
    rule = "backend_compare" if before.startswith("if") else "backend"
    check_rewrite(rule, f"{DIST}{before}\n", f"{DIST}{HELPER}{after}\n", to="any")
