"""Mixed precision for the available card."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

RULE = "any_amp"
HELPER = "from accelerator_device import accelerator\n"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nwith torch.autocast(device.type):\n    pass\n",
        "import torch\nwith torch.autocast(device_type=kind, dtype=torch.bfloat16):\n    pass\n",
        "import torch\nwith torch.autocast('cpu'):\n    pass\n",
        "import torch\nscaler = torch.amp.GradScaler(device)\n",
        "from mine import autocast, GradScaler\nwith autocast():\n    scaler = GradScaler()\n",
        "import torch\ndef f(scaler: torch.cuda.amp.GradScaler) -> torch.cuda.amp.GradScaler:\n    return scaler\n",
        "import torch\nclass A:\n    scaler: torch.cuda.amp.GradScaler\n",
        "# torch.cuda.amp.autocast()\nimport torch\n",
    ],
)
def test_what_names_no_cuda_stays(source: str) -> None:
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
        ("import torch", "torch.autocast('cuda')", "accelerator.autocast()"),
        ("import torch", "torch.autocast('cuda', d, on)", "accelerator.autocast(dtype=d, enabled=on)"),
        ("import torch", "torch.autocast(dtype=d, device_type='cuda')", "accelerator.autocast(dtype=d)"),
        ("import torch", "torch.amp.autocast(device_type='cuda', enabled=on)", "accelerator.autocast(enabled=on)"),
        (
            "from torch.amp import GradScaler",
            "GradScaler('cuda', init_scale=2.0)",
            "accelerator.GradScaler(init_scale=2.0)",
        ),
        ("from torch.amp import GradScaler", "GradScaler(enabled=on)", "accelerator.GradScaler(enabled=on)"),
        (
            "import torch",
            "torch.autocast('cuda' if on else 'cpu', dtype=d)",
            "torch.autocast(accelerator.card() if on else 'cpu', dtype=d)",
        ),
        (
            "import torch",
            "torch.amp.custom_fwd(device_type='cuda')(f)",
            "torch.amp.custom_fwd(device_type=accelerator.card())(f)",
        ),
        ("import torch", "make(torch.cuda.amp.GradScaler)", "make(accelerator.GradScaler)"),
    ],
)
def test_every_spelling(head: str, before: str, after: str) -> None:
    left = "\n".join(line for line in head.split("\n") if "torch.cuda" not in line)  # used no more
    check_rewrite(RULE, f"{head}\nx = {before}  # kept\n", f"{left}\n{HELPER}x = {after}  # kept\n", to="any")


def test_decorators() -> None:
    head = "import torch\nfrom torch.cuda.amp import autocast, custom_fwd\n"
    body = "class F(torch.autograd.Function):\n    @staticmethod\n    @{}\n    def forward(ctx, x):\n        return x\n"
    more = "@{}(enabled=False)\ndef f(x):\n    return x\n"
    before = head + body.format("custom_fwd") + more.format("autocast")
    after = "import torch\n" + HELPER + body.format("accelerator.amp.custom_fwd") + more.format("accelerator.autocast")
    result = check_rewrite("", before, after, to="any")
    assert {finding.rule for finding in result.findings} == {"torch.any_amp", "torch.unused_imports"}


def test_a_class_that_is_requested_needs_manual_review() -> None:
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
