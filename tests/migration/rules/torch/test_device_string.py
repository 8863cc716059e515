"""Strings that are devices, and strings that only look like one."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import torch\nimport torch_npu\n"
HELPER = "from accelerator_device import accelerator\n"


@pytest.mark.parametrize(
    "source",
    [
        "print('cuda')\nraise ValueError('cuda')\n",
        "log.info('cuda:0')\n",
        "x = {'cuda': 1}\n",
        "open('cuda/weights')\npath = 'a/cuda:0'\n",
        "url = 'http://developer.nvidia.com/cuda'\n",
        "register('cuda')\n",
        "device = 'cudnn'\n",
        '"""cuda"""\n',
        "# device = 'cuda'\n",
        "torch.library.impl('a::b', 'cuda')\n",
        "from torch.utils.cpp_extension import load\nload('cuda')\n",
        "import xgboost\nxgboost.XGBClassifier(device='cuda')\n",
        "class Foo:\n    def to(self, unit):\n        return unit\nFoo().to('cuda')\n",
        "device = 'cpu'\n",
        "device = 'npu:0'\n",
        "parser.add_argument('--x', help='cuda')\n",
        "getattr(torch, 'cuda')\n",
        "backend = BACKENDS['cuda' if torch.npu.is_available() else 'cpu']\n",
        "backend = BACKENDS.get('cuda' if torch.npu.is_available() else 'cpu')\n",
    ],
)
def test_what_is_no_device_stays(source: str) -> None:
    check_noop("device_string", HEAD + source)


def test_a_project_of_tensorflow_is_not_touched() -> None:
    check_noop("device_string", "import tensorflow as tf\ndevice = 'cuda'\n")


@pytest.mark.parametrize(
    "source", ["kernel = 'cuda'\n", "options = {'device': 'cuda'}\n", "def f(kernel='cuda'):\n    pass\n"]
)
def test_a_string_without_a_known_use_stays_and_is_reported(source: str) -> None:
    check_says("device_string", HEAD + source, "manual", "not found to be used as a device")


@pytest.mark.parametrize(
    "line",
    [
        "x.to('cuda')",
        'x.to("cuda:1", non_blocking=True)',
        "x.to(device='cuda')",
        "x.to(f'cuda:{rank}')",
        "x.to('cuda:%d' % rank)",
        "x.to('cuda:{}'.format(rank))",
        "x.to('cuda:' + str(rank))",
        "x.to(R'cuda')",
        "torch.device('cuda', 0)",
        "torch.device(type='cuda', index=0)",
        "torch.zeros(3, device='cuda')",
        "x.new_zeros(3, device='cuda')",
        "torch.set_default_device('cuda')",
        "torch.Generator('cuda')",
        "torch.load('x', 'cuda')",
        "torch.load('x', map_location='cuda:0')",
        "torch.load('x', map_location=f'cuda:{rank}' if ready else 'cpu')",
        "torch.npu.synchronize('cuda:0')",
        "build(device='cuda')",
        "with torch.device('cuda'):\n    pass",
        "device = 'cuda'",
        "device: str = 'cuda'",
        "self.device = args.device = 'cuda'",
        "DEVICE = 'cuda' if torch.npu.is_available() else 'cpu'",
        "where = 'cuda' if torch.npu.is_available() else 'cpu'",
        "where = 'cpu'\nif torch.npu.is_available():\n    where = 'cuda'",
        "where = 'cuda'\nx.to(where)",
        "where = 'cuda'\ndef f(x):\n    return x.to(where)",
        "device = args.device or 'cuda'",
        "device = os.environ.get('DEVICE', 'cuda')",
        "device = getattr(args, 'device', 'cuda')",
        "device = config.get('device', 'cuda')",
        "device = torch.device('cuda')",
        "x.npu('cuda:0')",
        "from typing import Literal\ndevice: Literal['cuda', 'cpu'] = 'cuda'",
        "from typing import Literal\ndef f(device: Literal['cuda', 'cpu'] | None = None):\n    pass",
        "import pytest\n@pytest.mark.parametrize('device', ['cpu', 'cuda'])\ndef test_it(device):\n    pass",
        "for device in ('cpu', 'cuda'):\n    pass",
        "devices = ['cuda:0', 'cuda:1']",
        "def f(x, device='cuda'):\n    pass",
        "def f(x, *, device='cuda'):\n    pass",
        "def f(x, where='cuda'):\n    return x.to(where)",
        "def f(x, where):\n    return x.to(where)\nf(x, 'cuda')",
        "def f(x, device):\n    pass\nf(x, 'cuda')",
        "class A:\n    def __init__(self, device):\n        pass\nA('cuda')",
        "class A:\n    def run(self, device):\n        pass\nA().run('cuda')",
        "class A:\n    where = None\n    def f(self, x):\n        self.where = 'cuda'\n        return x.to(self.where)",
        "def get_device():\n    return 'cuda'",
        "def pick():\n    return 'cuda'\nx.to(pick())",
        "config = {'device': 'cuda', 'cuda': True}\nx.to(config['device'])",
        "config = dict(place='cuda')\nx.to(config['place'])",
        "config = Config(**dict(place='cuda'))\nx.to(getattr(config, 'place'))",
        "config = {}\nconfig['place'] = 'cuda'\nx.to(config['place'])",
        "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    device: str = field(default='cuda')",
        "class A:\n    def to(self, device):\n        pass\n    def cuda(self):\n        return self.to('cuda')",
        "x.to(['cpu', 'cuda'][ready])",
        "devices = [f'cuda:{i}' for i in range(4)]",
        "places = [f'cuda:{i}' for i in range(4)]\nx.to(places[2])",
        "places = {i: f'cuda:{i}' for i in range(4)}\nx.to(places[2])",
        "places = dict(a='cuda:0', b='cuda:1')\nx.to(places['a'])",
        "class A:\n    def f(self, x):\n        self.t = {'a': 'cuda:0', 'b': 'cuda:1'}\n        x.to(self.t['a'])",
        "device = ['cpu', 'cuda'][torch.npu.is_available()]",
        "x.to({True: 'cuda', False: 'cpu'}[ready])",
        "places = ['cuda:0', 'cuda:1']\nx.to(places[0])",
        "places = {'encoder': 'cuda:0', 'decoder': 'cuda:1'}\nx.to(places['encoder'])",
        "places = {'encoder': 'cuda:0', 'decoder': 'cuda:1' if many else 'cpu'}\nx.to(places[part])",
        "load_model(device_map={'': 'cuda:0', 'head': 'cpu'})",
    ],
)
def test_a_device_becomes_the_cards(line: str) -> None:
    after = line.replace("'cuda'", "'npu'").replace("cuda:", "npu:").replace("'npu': True", "'cuda': True")
    check_rewrite("device_string", HEAD + line + "\n", HEAD + after + "\n")


def test_a_table_of_other_things_is_not_taken_for_devices() -> None:
    check_noop("device_string", HEAD + "kernels = {'fast': 'cuda', 'slow': 'cpu'}\nbuild(kernels['fast'])\n")
    check_noop("device_string", HEAD + "names = ('cuda', 'model.pt')\nx.load(names[1])\n")


def test_other_entries_of_a_table_with_devices_are_reported() -> None:
    source = HEAD + "places = {'encoder': 'cuda:0', 'decoder': 'cuda:1', 'title': 'x'}\nx.to(places['encoder'])\n"
    result = check_rewrite("device_string", source, source.replace("cuda:0", "npu:0"))
    assert [finding.status for finding in result.findings if "'cuda:1'" in finding.message] == ["manual"]


def test_the_mlu_has_its_own_device_name() -> None:
    head = "import torch\nimport torch_mlu\n"
    check_rewrite("device_string", head + "x.to('cuda:0')\n", head + "x.to('mlu:0')\n", to="mlu")


def test_a_parameter_of_another_files_function_shows_a_device() -> None:
    head = HEAD + "from lib import run\n"
    others = {"lib.py": "import torch\ndef run(model, device):\n    return model.to(device)\n"}
    check_rewrite("device_string", head + "run(1, 'cuda')\n", head + "run(1, 'npu')\n", others=others)


def test_a_file_of_settings_without_torch_follows_its_project() -> None:
    result = migrate_source(
        "DEVICE = 'cuda'\n", "device_string", path="settings.py", others={"train.py": "import torch\n"}
    )
    assert result.after.decode() == "DEVICE = 'npu'\n"


def test_a_string_of_several_literals_needs_manual_review() -> None:
    check_says("device_string", HEAD + "print('cuda')\nx.to('cu' 'da')\n", "manual", "cannot be edited")


def test_a_device_within_an_f_string_needs_manual_review() -> None:
    check_says("device_string", HEAD + "print(f'{x.to(\"cuda\")}')\n", "manual", "cannot be edited")


@pytest.mark.parametrize(("to", "expected"), [("npu", "torch.device(f'npu')"), ("any", "accelerator.device()")])
def test_an_f_string_without_fields_is_a_device(to: str, expected: str) -> None:
    assert expected in migrate_source("import torch\nd = torch.device(f'cuda')\n", to=to).after.decode()


DEVICES_ELSEWHERE = {
    "partial": "from functools import partial\nmake = partial(torch.device, {})\n",
    "partial by keyword": "import functools\nmake = functools.partial(torch.device, type={})\n",
    "hub": "net = torch.hub.load('a/b', 'net', device={})\n",
}


@pytest.mark.parametrize(("to", "text"), [("npu", "'npu'"), ("mlu", "'mlu'"), ("any", "accelerator.name()")])
@pytest.mark.parametrize("kind", DEVICES_ELSEWHERE)
def test_a_device_that_is_passed_on_becomes_the_cards(kind: str, to: str, text: str) -> None:
    source = "import torch\n" + DEVICES_ELSEWHERE[kind]
    assert source.format(text).splitlines()[-1] in migrate_source(source.format("'cuda'"), to=to).after.decode()


def test_a_repository_of_torch_hub_called_cuda_is_no_device() -> None:
    check_noop("device_string", "import torch\nnet = torch.hub.load('cuda', 'cuda')\n")


def test_a_walrus_around_a_device_is_compared_as_one() -> None:
    source = "import torch\nif (d := torch.device('cuda')).type == 'cuda':\n    pass\n"
    assert "cuda" not in migrate_source(source).after.decode()


def test_a_literal_annotation_names_every_card() -> None:
    source = "import torch\nfrom typing import Literal\ndef run(device: Literal['cuda', 'cpu'] = 'cuda'):\n    pass\n"
    after = migrate_source(source, to="any").after.decode()
    assert "device: Literal['cuda', 'npu', 'mlu', 'cpu'] = accelerator.name()" in after
    source = source.replace("Literal['cuda', 'cpu']", "Literal['cuda:0']")
    assert "Literal['cuda:0']" in migrate_source(source, to="any").after.decode()


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
        "import xgboost\nxgboost.XGBClassifier(device='cuda')",
    ],
)
def test_a_string_that_is_no_device_stays(line: str) -> None:
    check_noop("device_string", f"import os\nimport torch\n{line}\n", to="any")


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
        ("def f(device='cuda'):\n    pass", "def f(device=accelerator.name()):\n    pass"),
    ],
)
def test_a_text_becomes_a_text_and_a_device_a_device(before: str, after: str) -> None:
    check_rewrite("device_string", f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


def test_a_value_that_may_be_no_device_is_reported() -> None:
    source = "import torch\nsettings = {'device': 'cuda:0', 'lr': 1}\n"
    check_says("device_string", source, "manual", "accelerator.name(0)", to="any")
    check_says("device_string", source, "manual", "if it is one, write npu:0")


def test_a_text_composed_in_another_way_needs_manual_review() -> None:
    source = "import torch\nx.to(f'cuda:{i}{j}')\n"
    check_says("device_string", source, "manual", "accelerator.name(NUMBER)", to="any")


def test_both_branches_are_replaced() -> None:
    source = "import torch\ndevice = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
    after = migrate_source(source, "", to="any").after.decode()
    assert "torch.device(accelerator.name(0) if accelerator.is_available() else 'cpu')" in after
