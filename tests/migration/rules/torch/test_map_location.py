"""Checkpoints that were written on a GPU."""

from __future__ import annotations

import re

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HELPER = "from accelerator_device import accelerator\n"


HEAD = "import torch\n"


@pytest.mark.parametrize(
    "source",
    [
        "torch.load('x', map_location='cpu')\n",
        "torch.load('x', 'cpu')\n",
        "torch.load('x', map_location=device)\n",
        "torch.load('x', map_location=lambda s, l: s)\n",
        "json.load(file)\n",
        "torch.load('x', map_location={'cpu': 'cpu'})\n",
        "torch.hub.load('a', 'b')\n",
    ],
)
def test_a_given_map_location_stays(source: str) -> None:
    check_noop("map_location", HEAD + source)


@pytest.mark.parametrize(
    "source",
    [
        "print(torch.load('run.pt')['epoch'])\n",
        "features = torch.load('features.pt').numpy()\nx = x.cuda()\n",
        "import numpy as np\nnp.save('a.npy', torch.load('a.pt'))\nmodel.cuda()\n",
        "from torch.utils.data import TensorDataset\nTensorDataset(*torch.load('set.pt'))\nmodel.cuda()\n",
        "class Samples(torch.utils.data.Dataset):\n    def __init__(self):\n        self.items = torch.load('set.pt')\n"
        "    def __getitem__(self, at):\n        return self.items[at] * 2\nmodel.cuda()\n",
        "net = torch.load('net.pt')\nnet(torch.zeros(1))\n",  # no card in this script: the file was saved without
        "net = torch.jit.load('net.pt')\nnet(torch.zeros(1))\n",
    ],
)
def test_content_used_on_the_host_needs_no_map_location(source: str) -> None:
    check_noop("map_location", HEAD + source)


def test_hidden_arguments_need_manual_review() -> None:
    source = HEAD + "model.load_state_dict(torch.load('x', **options))\n"
    check_says("map_location", source, "unresolved", "map_location")


@pytest.mark.parametrize(
    "source",
    [
        "def read(path):\n    return torch.load(path)['model']\n",
        "def read(path):\n    state = torch.load(path)\n    return state\n",
        "class Store:\n    @property\n    def state(self):\n        return torch.load(self.path)\n",
        "STATE = torch.load('x.pt')\n",
    ],
)
def test_content_whose_use_is_unknown_is_unresolved(source: str) -> None:
    check_says("map_location", HEAD + source + "model.cuda()\n", "unresolved", "load_state_dict")


FEEDS = {
    "at once": "model.load_state_dict(torch.load(path))\n",
    "keyword": "model.load_state_dict(state_dict=torch.load(path), strict=False)\n",
    "with options": "model.load_state_dict(torch.load(path, weights_only=True))\n",
    "a method of what was read": "model.load_state_dict(torch.load(path).state_dict())\n",
    "a name": "weights = torch.load(path)\nmodel.load_state_dict(weights)\n",
    "an entry": "saved = torch.load(path)\nepoch = saved['epoch'] + 1\nopt.load_state_dict(saved['opt'])\n",
    "get": "saved = torch.load(path)\nsaved = saved.get('model', saved)\nmodel.load_state_dict(saved)\n",
    "pop": "saved = torch.load(path)\nnet = saved.pop('net')\nmodel.module.load_state_dict(net)\n",
    "one of two": "saved = torch.load(path)\nmodel.load_state_dict(saved['ema'] if ema else saved['net'])\n",
    "rebuilt": "old = torch.load(path)\nnew = {k[7:]: v for k, v in old.items()}\nmodel.load_state_dict(new)\n",
    "rebuilt in a loop": (
        "from collections import OrderedDict\nold, new = torch.load(path)['state_dict'], OrderedDict()\n"
        "for key, value in old.items():\n    new[key.replace('module.', '')] = value\nmodel.load_state_dict(new)\n"
    ),
    "merged": (
        "own = model.state_dict()\npretrained = torch.load(path)\n"
        "pretrained = {k: v for k, v in pretrained.items() if k in own}\nown.update(pretrained)\n"
        "model.load_state_dict(own)\n"
    ),
    "copied": "for name, value in torch.load(path).items():\n    own[name].copy_(value)\n",
    "a function": (
        "def read(path):\n    saved = torch.load(path)\n    return saved['model'], saved['epoch']\n"
        "weights, epoch = read('a.pt')\nmodel.load_state_dict(weights)\n"
    ),
    "a function that gets it": (
        "def fill(net, weights):\n    net.load_state_dict(weights)\nfill(model, torch.load(path))\n"
        "fill(model, weights=torch.load(path, map_location=None))\n"
    ),
    "a method": (
        "class Runner:\n    def _read(self, path):\n        return torch.load(path)\n"
        "    def resume(self):\n        saved = self._read('a')\n        self.net.load_state_dict(saved['net'])\n"
    ),
    "an attribute": (
        "class Runner:\n    def __init__(self, path):\n        self.saved = torch.load(path)\n"
        "    def resume(self):\n        self.net.load_state_dict(self.saved['net'])\n"
    ),
    "a nested function": (
        "def main():\n    saved = torch.load(path)\n    def fill():\n        model.load_state_dict(saved)\n    fill()\n"
    ),
    "moved afterwards": (
        "saved = torch.load(path)\nmodel.load_state_dict(saved['net'])\nbest = saved['best'].to(args.gpu)\n"
    ),
    "random state": "saved = torch.load(path)\ntorch.set_rng_state(saved['rng'])\n",
    "another's function": "from lib import load_checkpoint_weights\nload_checkpoint_weights(model, torch.load(path))\n",
    "scripted": "model.load_state_dict(torch.jit.load(path).state_dict())\n",
}


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize("way", FEEDS)
def test_weights_for_load_state_dict_are_loaded_on_the_host(way: str, to: str) -> None:
    after = migrate_source(HEAD + "model.cuda()\n" + FEEDS[way], "map_location", to=to).after.decode()
    assert after.count("load(") == after.count('map_location="cpu"') + count_other_loads(after), after


def count_other_loads(text: str) -> int:
    """Return the number of `load(` that are not torch's."""
    return len(re.findall(r"(?<!torch\.)(?<!jit\.)load\(", text))


CARD = {
    "called": "net = torch.load(path)\nnet(x)\n",
    "eval": "net = torch.load(path)\nnet.eval()\nevaluate(net)\n",
    "an entry is the network": "net = torch.load(path)['model'].float()\nnet.eval()\n",
    "its optimizer's state beside it": (
        "saved = torch.load(path)\nnet = saved['net']\nnet.train()\nopt.load_state_dict(saved['opt'])\n"
    ),
    "moved": "net = torch.load(path).to(where)\n",
    "given on": "def run(net):\n    return net(x)\nrun(torch.load(path))\n",
    "kept": (
        "class A:\n    def __init__(self):\n        self.net = torch.load(path)\n"
        "    def go(self, x):\n        return self.net(x)\n"
    ),
    "scripted": "net = torch.jit.load(path)\nnet(x)\n",
    "scripted and handed on": "register(torch.jit.load(path))\n",
}


def test_a_known_device_variable_of_the_script_is_used() -> None:
    source = (
        "import torch\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "net = torch.load(path)\nnet(x.to(device))\n"
    )
    assert "torch.load(path, map_location=device)" in migrate_source(source).after.decode()
    late = "import torch\nnet = torch.load(path)\ndevice = torch.device('cuda')\nnet(x.to(device))\n"
    assert 'torch.load(path, map_location="npu")' in migrate_source(late).after.decode()


@pytest.mark.parametrize(
    "chosen",
    [
        "if accel:\n    device = torch.accelerator.current_accelerator()\nelse:\n    device = torch.device('cpu')\n",
        "device = torch.accelerator.current_accelerator() or torch.device('cpu')\n",
        "device = torch.accelerator.current_accelerator() if accel else 'cpu'\n",
        "device = torch.get_default_device()\n",
    ],
)
def test_a_network_is_loaded_on_a_device_chosen_at_run_time(chosen: str) -> None:
    source = f"import torch\n{chosen}net = torch.load(path)\nnet(x.to(device))\n"
    assert b"torch.load(path, map_location=device)" in migrate_source(source, "map_location", to="npu").after


def test_a_dict_serves_checkpoints_from_cuda_and_from_the_card() -> None:
    head = "import torch\nimport torch_npu\n"
    check_rewrite(
        "map_location",
        head + "torch.load('x', map_location={'cuda:0': 'cuda:%d' % rank})\n",
        head + "torch.load('x', map_location={'cuda:0': 'npu:%d' % rank, 'npu:0': 'npu:%d' % rank})\n",
    )


def test_the_finding_about_a_new_entry_names_its_location() -> None:
    source = "import torch\nimport torch_npu\ntorch.load('x', map_location={'cuda:0': 'cpu'})\n"
    (finding,) = migrate_source(source, "map_location").findings
    assert finding.message.endswith("are loaded on 'cpu'")


def test_other_rules_edit_a_lambda_and_a_string() -> None:
    source = "torch.load('x', map_location=lambda s, l: s.cuda(0))\ntorch.load('x', map_location='cuda:0')\n"
    after = migrate_source(HEAD + source, to="mlu").after.decode()
    assert "s.mlu(0)" in after
    assert "map_location='mlu:0'" in after


@pytest.mark.parametrize("given", ["None", "map_location=None"])
def test_a_map_location_of_none_is_the_default_too(given: str) -> None:
    output = given.replace("None", "accelerator.map_location()")
    use = "m.load_state_dict(a)\n"
    before = f"import torch\na = torch.load(f, {given})\n{use}"
    after = f"import torch\n{HELPER}a = torch.load(f, {output})\n{use}"
    check_rewrite("map_location", before, after, to="any")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(f, map_location='cpu')\ntorch.load(f, device)\n",
        "import json\njson.load(f)\n",
    ],
)
def test_what_needs_nothing_for_the_available_card_stays(source: str) -> None:
    check_noop("map_location", source, to="any")


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        (
            "import torch",
            "m.load_state_dict(torch.load(f)['x'])",
            "m.load_state_dict(torch.load(f, map_location=accelerator.map_location())['x'])",
        ),
    ],
)
def test_it_follows_the_available_card(head: str, before: str, after: str) -> None:
    check_rewrite("map_location", f"{head}\n{before}\n", f"{head}\n{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ("import torch\nm.load_state_dict(torch.load(f, **more))\n", "unresolved", "map_location"),
    ],
)
def test_what_needs_review_for_the_available_card_is_reported(source: str, status: str, word: str) -> None:
    check_says("map_location", source, status, word, to="any")


@pytest.mark.parametrize(
    ("table", "after"),
    [
        ("{'cuda:0': 'cuda:1'}", "{'cuda:0': accelerator.name(1), accelerator.name(0): accelerator.name(1)}"),
        ("{'cuda:%d' % i: 'cpu'}", "{'cuda:%d' % i: 'cpu', accelerator.name(i): 'cpu'}"),
    ],
)
def test_a_dict_gets_an_entry_for_the_available_card(table: str, after: str) -> None:
    before = f"import torch\ntorch.load(f, map_location={table})\n"
    check_rewrite("map_location", before, f"import torch\n{HELPER}torch.load(f, map_location={after})\n", to="any")
