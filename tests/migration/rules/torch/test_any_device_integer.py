from __future__ import annotations

import pytest

from migration.checking import check_rewrite

HELPER = "from accelerator_device import accelerator\n"


def check(rule: str, before: str, after: str) -> None:
    check_rewrite(rule, f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.to(0)", "x.to(accelerator.device(0))"),
        ("x.to(local_rank, torch.float16)", "x.to(accelerator.device(local_rank), torch.float16)"),
        ("torch.device(args.gpu)", "accelerator.device(args.gpu)"),
        ("x.to(device=0, non_blocking=True)", "x.to(device=accelerator.device(0), non_blocking=True)"),
        ("x.new_zeros(3, device=1)", "x.new_zeros(3, device=accelerator.device(1))"),
        ("m.to_empty(device=local_rank)", "m.to_empty(device=accelerator.device(local_rank))"),
        ("torch.zeros(3, device=rank)", "torch.zeros(3, device=accelerator.device(rank))"),
        (
            "r = int(os.environ['LOCAL_RANK'])\nx.to(r)",
            "r = int(os.environ['LOCAL_RANK'])\nx.to(accelerator.device(r))",
        ),
    ],
)
def test_a_number_gets_its_card(before: str, after: str) -> None:
    check("any_device_integer", before, after)
