from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HELPER = "from accelerator_device import accelerator\n"


def check(rule: str, before: str, after: str) -> None:
    check_rewrite(rule, f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    "line",
    [
        "sizes = {'cuda': 16, 'cpu': 8}",
        "size = sizes['cuda' if fast else 'cpu']",
        "print('cuda is fast')",
        "path = os.path.join('build', 'cuda')",
        "register('cuda')(f)",
        "x = y.to('cpu')",
        "device = torch.device('mps')",
        "parser.add_argument('--kernel', default='cuda', choices=['cuda', 'triton'])",
        "parser.add_argument('--device', default='cpu', help='cuda')",
        "import xgboost\nxgboost.XGBClassifier(device='cuda')",
    ],
)
def test_a_word_that_is_no_device_stays(line: str) -> None:
    check_noop("any_device_text", f"import os\nimport torch\n{line}\n", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("device = 'cuda'", "device = accelerator.name()"),
        ("device = 'cuda' if fast else 'cpu'", "device = accelerator.name() if fast else 'cpu'"),
        ("device = torch.device('cuda')", "device = accelerator.device()"),
        ("device = torch.device('cuda:1')", "device = accelerator.device(1)"),
        ("device = torch.device('cuda', rank)", "device = accelerator.device(rank)"),
        ("device = torch.device(f'cuda:{args.gpu}')", "device = accelerator.device(args.gpu)"),
        ("x.to('cuda', non_blocking=True)", "x.to(accelerator.name(), non_blocking=True)"),
        ("x.to('cuda:%d' % (i % n))", "x.to(accelerator.name(i % n))"),
        ("x.to('cuda:' + str(i))", "x.to(accelerator.name(i))"),
        ("x.to('cuda:{}'.format(i))", "x.to(accelerator.name(i))"),
        ("x = torch.zeros(2, device='cuda')", "x = torch.zeros(2, device=accelerator.name())"),
        ("loc = 'cuda:{}'.format(i)\nx = torch.load(f, loc)", "loc = accelerator.name(i)\nx = torch.load(f, loc)"),
        (
            "torch.load(f, map_location={'cuda:0': 'cuda:1'})",
            "torch.load(f, map_location={accelerator.name(0): accelerator.name(1), 'cuda:0': accelerator.name(1)})",
        ),
        (
            "torch.load(f, map_location={'cuda:%d' % i: 'cpu'})",
            "torch.load(f, map_location={accelerator.name(i): 'cpu', 'cuda:%d' % i: 'cpu'})",
        ),
        ("def f(device='cuda'):\n    pass", "def f(device=accelerator.name()):\n    pass"),
        (
            "parser.add_argument('--device', default='cuda', choices=['cuda', 'cpu'], help='cuda')",
            "parser.add_argument('--device', default=accelerator.name(), "
            "choices=[accelerator.name(), 'cpu'], help='cuda')",
        ),
    ],
)
def test_a_text_stays_a_text_and_a_device_a_device(before: str, after: str) -> None:
    check("any_device_text", before, after)


def test_a_value_that_is_not_seen_to_be_a_device_is_named() -> None:
    source = "import torch\nsettings = {'device': 'cuda:0', 'lr': 1}\n"
    check_says("any_device_text", source, "manual", "accelerator.name(0)", to="any")


def test_a_text_that_is_put_together_otherwise_needs_manual_review() -> None:
    source = "import torch\nx.to(f'cuda:{i}{j}')\n"
    check_says("any_device_text", source, "manual", "accelerator.name(NUMBER)", to="any")


def test_both_halves_of_a_choice_go_together() -> None:
    source = "import torch\ndevice = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
    after = migrate_source(source, "", to="any").after.decode()
    assert "torch.device(accelerator.name(0) if accelerator.is_available() else 'cpu')" in after
