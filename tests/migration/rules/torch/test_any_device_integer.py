from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HELPER = "from accelerator_device import accelerator\n"


def check(rule: str, before: str, after: str) -> None:
    check_rewrite(rule, f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    "line",
    ["x.to(torch.float16)", "x.to(other)", "x.to(device)", "torch.zeros(3, device=device)", "Foo().to(0)"],
)
def test_what_is_no_number_stays(line: str) -> None:
    source = f"import torch\nclass Foo:\n    def to(self, n):\n        return self\n{line}\n"
    check_noop("any_device_integer", source, to="any")


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


def test_a_number_for_something_unknown_is_left_to_a_person() -> None:
    source = "import torch\nfrom things import Thing\nThing().to(device=0)\n"
    check_says("any_device_integer", source, "manual", "if this moves a tensor", to="any")
