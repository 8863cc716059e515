"""Devices by text, by number, by method; and questions for them."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

HELPER = "from accelerator_device import accelerator\n"


def check(rule: str, before: str, after: str) -> None:
    check_rewrite(rule, f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


# ---- texts


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


def test_a_text_that_is_put_together_otherwise_is_left_to_a_person() -> None:
    source = "import torch\nx.to(f'cuda:{i}{j}')\n"
    check_says("any_device_text", source, "manual", "accelerator.name(NUMBER)", to="any")


# ---- methods


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nclass Batch:\n    def cuda(self):\n        return self\nb = Batch().cuda()\n",
        "import torch\nif args.cuda:\n    pass\n",
        "import torch\nimport mxnet\nmxnet.nd.ones(1).cuda()\n",
    ],
)
def test_somebody_elses_method_stays(source: str) -> None:
    check_noop("any_cuda_method", source, to="any")


def test_whose_method_is_not_shown_is_left_to_a_person() -> None:
    source = "import torch\nclass Batch:\n    def cuda(self):\n        return self\ndef f(x):\n    return x.cuda()\n"
    check_says("any_cuda_method", source, "manual", "if this moves", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.cuda()", "x.to(accelerator.device())"),
        ("x.cuda(None)", "x.to(accelerator.device())"),
        ("x.cuda(args.gpu, True)", "x.to(accelerator.device(args.gpu), non_blocking=True)"),
        ("x.cuda(non_blocking=True)", "x.to(accelerator.device(), non_blocking=True)"),
        ("x.cuda(device=1, non_blocking=b)", "x.to(device=accelerator.device(1), non_blocking=b)"),
        ("x.cuda('cuda:1')", "x.to(accelerator.device(1))"),
        (
            "torch.load(f, map_location=lambda storage, _: storage.cuda(1))",
            "torch.load(f, map_location=lambda storage, _: storage.to(device=accelerator.device(1)))",
        ),
        ("x, y = x.cuda(), y.cuda()", "x, y = x.to(accelerator.device()), y.to(accelerator.device())"),
        ("m = torch.nn.DataParallel(m).cuda()", "m = torch.nn.DataParallel(m).to(accelerator.device())"),
        (
            "x = (\n    x.float()\n    .cuda()  # over\n)",
            "x = (\n    x.float()\n    .to(accelerator.device())  # over\n)",
        ),
    ],
)
def test_every_form_of_the_method(before: str, after: str) -> None:
    check("any_cuda_method", before, after)


@pytest.mark.parametrize(
    "line", ["go = methodcaller('cuda')", "ys = map(torch.Tensor.cuda, xs)", "f = getattr(x, 'cuda')"]
)
def test_a_method_that_is_handed_on_is_left_to_a_person(line: str) -> None:
    source = f"import torch\nfrom operator import methodcaller\n{line}\n"
    check_says("any_cuda_method", source, "manual", "accelerator.device()", to="any")


def test_a_method_whose_arguments_are_hidden_is_left_to_a_person() -> None:
    check_says("any_cuda_method", "import torch\nx.cuda(*where)\n", "manual", "if this moves", to="any")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\n@torch.jit.script\ndef f(x):\n    return x.cuda()\n",
        "import torch\ndef f(x):\n    return x.cuda()\ng = torch.jit.script(f)\n",
        "import torch\nclass N(torch.nn.Module):\n    def forward(self, x):\n        return x.cuda()\n"
        "n = torch.jit.script(N())\n",
    ],
)
def test_what_is_compiled_to_torchscript_is_not_touched(source: str) -> None:
    check_says("any_cuda_method", source, "manual", "torch.jit.script", to="any")


# ---- numbers


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


# ---- questions


@pytest.mark.parametrize(
    "line",
    [
        "if 'cuda' in state:\n    pass",
        "if device.type == 'cpu':\n    pass",
        "class T:\n    def __init__(self):\n        self.is_cuda = False\nprint(T().is_cuda)",
    ],
)
def test_a_question_for_something_else_stays(line: str) -> None:
    check_noop("any_device_compare", f"import torch\n{line}\n", to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = device.type == 'cuda'", "a = device.type in accelerator.TYPES"),
        ("a = 'cuda' == device.type", "a = device.type in accelerator.TYPES"),
        ("a = x.device.type != 'cuda' and b", "a = x.device.type not in accelerator.TYPES and b"),
        ("a = args.device == 'cuda:0'", "a = args.device == accelerator.card(0)"),
        ("a = str(device) != f'cuda:{args.gpu}'", "a = str(device) != accelerator.card(args.gpu)"),
        ("a = str(device) in ('cuda', 'cuda:0')", "a = str(device) in (*accelerator.TYPES, accelerator.card(0))"),
        ("a = 'cuda:0' in str(device)", "a = accelerator.card(0) in str(device)"),
        ("a = device != torch.device('cuda')", "a = device != torch.device(accelerator.card())"),
        ("a = device == torch.device('cuda', 1)", "a = device == torch.device(accelerator.card(), 1)"),
        ("a = torch.device(f'cuda:{i}') == x.device", "a = torch.device(accelerator.card(i)) == x.device"),
        (
            "a = device in (torch.device('cuda:0'), torch.device('cpu'))",
            "a = device in (torch.device(accelerator.card(0)), torch.device('cpu'))",
        ),
        (
            "a = device == torch.device('cuda:0' if fast else 'cpu')",
            "a = device == torch.device(accelerator.card(0) if fast else 'cpu')",
        ),
        ("a = args.device.startswith('cuda')", "a = args.device.startswith(accelerator.TYPES)"),
        (
            "a = args.device.startswith('cuda:')",
            'a = args.device.startswith(tuple(kind + ":" for kind in accelerator.TYPES))',
        ),
        ("a = 'cuda' in str(device)", "a = any(kind in str(device) for kind in accelerator.TYPES)"),
        ("a = 'cuda' not in str(device)", "a = not any(kind in str(device) for kind in accelerator.TYPES)"),
        ("a = device.type in ('cuda', 'mps')", "a = device.type in (*accelerator.TYPES, 'mps')"),
        ("a = x.is_cuda", "a = x.device.type in accelerator.TYPES"),
        ("a = not x.is_cuda", "a = not x.device.type in accelerator.TYPES"),
        (
            "assert x.is_cuda == y.is_cuda",
            "assert (x.device.type in accelerator.TYPES) == (y.device.type in accelerator.TYPES)",
        ),
    ],
)
def test_a_question_for_cuda_is_one_for_any_card(before: str, after: str) -> None:
    check("any_device_compare", before, after)


def test_something_that_may_be_a_device_is_pointed_out() -> None:
    result = check_says(
        "any_device_compare", "import torch\nif kind == 'cuda':\n    pass\n", "manual", "not seen", to="any"
    )
    assert result.findings[0].risk == "low"


def test_a_text_that_is_taken_apart_is_left_to_a_person() -> None:
    source = "import torch\nn = str(device).replace('cuda:', '')\n"
    check_says("any_device_compare", source, "manual", "takes a device's text apart", to="any")


def test_a_case_is_left_to_a_person() -> None:
    source = "import torch\nmatch device.type:\n    case 'cuda':\n        pass\n"
    check_says("any_device_compare", source, "manual", 'case "cuda" | "npu"', to="any")


def test_both_halves_of_a_choice_go_together() -> None:
    source = "import torch\ndevice = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
    after = migrated(source, "", to="any").after.decode()
    assert "torch.device(accelerator.name(0) if accelerator.is_available() else 'cpu')" in after


@pytest.mark.parametrize(
    "source",
    [
        "if d.type == 'cuda':\n    a()\nelif d.type == 'npu':\n    b()\n",
        "if d.type == 'npu':\n    b()\nelif d.type == 'cuda':\n    a()\nelse:\n    c()\n",
        "k = 1 if d.type == 'cuda' else 2 if d.type == 'mlu' else 3\n",
        "if d.type == 'cpu':\n    c()\nelif d.type == 'xpu':\n    b()\nelif d.type == 'cuda':\n    a()\n",
    ],
)
def test_a_branch_beside_that_of_another_card_is_left_to_a_person(source: str) -> None:
    text = f"import torch\nd = torch.device(name)\n{source}"
    check_says("torch.any_device_compare", text, "manual", "its branch", to="any")
