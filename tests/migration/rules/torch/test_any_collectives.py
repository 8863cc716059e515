"""Process groups and wrappers for whatever card there is."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HELPER = "from accelerator_device import accelerator\n"
DIST = "import torch.distributed as dist\n"
DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\n"


@pytest.mark.parametrize(
    "line",
    [
        "dist.init_process_group('gloo')",
        f"{HELPER}dist.init_process_group(accelerator.backend())",
        f"{HELPER}dist.init_process_group(cfg.get('backend', accelerator.backend()))",
        f"{HELPER}p.add_argument('--backend', default=accelerator.backend())\ndist.init_process_group(args.backend)",
        "dist.new_group([0], backend=dist.get_backend())",
        "print('over nccl')",
        "os.environ['NCCL_DEBUG'] = 'INFO'",
        "if 'nccl' in os.environ:\n    pass",
        "parser.add_argument('--dist-backend', default='gloo', help='nccl')",
        "setup('nccl')",
    ],
)
def test_what_names_no_backend_stays(line: str) -> None:
    check_noop("any_backend", f"import os\n{DIST}{line}\n", to="any")


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
    check_rewrite("any_backend", f"{DIST}{before}\n", f"{DIST}{HELPER}{after}\n", to="any")


@pytest.mark.parametrize("given", ["backend", "cfg['backend']", "backend=choose()"])
def test_a_backend_that_is_decided_at_run_time_is_left_to_a_person(given: str) -> None:
    check_says("any_backend", f"{DIST}dist.init_process_group({given})\n", "manual", "decided at run time", to="any")


def test_a_backend_for_each_kind_of_device_is_left_to_a_person() -> None:
    check_says(
        "any_backend", f"{DIST}dist.init_process_group('cpu:gloo,cuda:nccl')\n", "manual", "put it together", to="any"
    )


@pytest.mark.parametrize(
    "lines",
    [
        "model = DDP(model)",
        "model = DDP(model, device_ids=None)",
        "if torch.cuda.is_available():\n    model = DDP(model, device_ids=[gpu])",
        "if not torch.cuda.is_available():\n    pass\nelif many:\n    model = DDP(model, device_ids=[gpu])",
        "on = torch.cuda.is_available()\nif on and many:\n    model = DDP(model, device_ids=[gpu])",
    ],
)
def test_a_wrapper_that_is_right_without_a_card_stays(lines: str) -> None:
    check_noop("any_ddp", f"import torch\n{DDP}{lines}\n", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DDP(model, device_ids=[gpu])", "DDP(model, device_ids=accelerator.unless_cpu([gpu]))"),
        (
            "DDP(model, [gpu], output_device=gpu)",
            "DDP(model, accelerator.unless_cpu([gpu]), output_device=accelerator.unless_cpu(gpu))",
        ),
        (
            "if torch.cuda.is_available():\n    pass\nelse:\n    DDP(model, device_ids=[0])",
            "if torch.cuda.is_available():\n    pass\nelse:\n    DDP(model, device_ids=accelerator.unless_cpu([0]))",
        ),
    ],
)
def test_without_a_card_it_gets_no_device(before: str, after: str) -> None:
    check_rewrite("any_ddp", f"import torch\n{DDP}{before}\n", f"import torch\n{DDP}{HELPER}{after}\n", to="any")


def test_data_parallel_stays_with_a_word() -> None:
    source = "import torch\nmodel = torch.nn.DataParallel(model)\n"
    check_says("any_data_parallel", source, "manual", "CUDA alone", to="any")
