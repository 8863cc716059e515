"""Device on which the content of torch.load and torch.jit.load is used."""

from __future__ import annotations

import pytest

from migration.checking import check_rewrite, migrate_source

HEAD = "import torch\n"


LOOKED_AT = {
    "saved again": "torch.save(LOAD, 'b.pt')\n",
    "printed": "print(LOAD['epoch'])\n",
    "compared": "best = LOAD['accuracy']\nif best > 0.5:\n    print('good')\n",
    "returned for that": "def read():\n    return LOAD['epoch']\nprint(read())\n",
}


@pytest.mark.parametrize("kind", LOOKED_AT)
def test_content_that_is_only_inspected_is_loaded_on_the_host(kind: str) -> None:
    """Its tensors were saved on CUDA all the same, and torch.load restores every one."""
    before = HEAD + LOOKED_AT[kind] + "model.cuda()\n"
    after = before.replace("LOAD", "torch.load('a.pt', map_location=\"cpu\")")
    check_rewrite("map_location", before.replace("LOAD", "torch.load('a.pt')"), after)


PROPERTIES = {
    "property": "@property",
    "cached": "@functools.cached_property",
    "own decorator": "@lazy_property",
}


@pytest.mark.parametrize("kind", PROPERTIES)
@pytest.mark.parametrize("apart", [False, True])
def test_content_that_a_property_loads_is_followed(kind: str, apart: bool) -> None:
    body = "    def weights(self):\n        return torch.load(self.path)['w']\n"
    made = f"import torch\nclass Store:\n    {PROPERTIES[kind]}\n{body}"
    used = "import torch\ndef main(store):\n    net = model.cuda()\n    net.load_state_dict(store.weights)\n"
    others = {"main.py": used} if apart else {}
    result = migrate_source(made if apart else made + used, "map_location", others=others)
    assert 'torch.load(self.path, map_location="cpu")' in result.after.decode()


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


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize("way", CARD)
def test_a_whole_network_is_loaded_on_the_card(way: str, to: str) -> None:
    after = migrate_source(HEAD + "x = torch.ones(1).cuda()\n" + CARD[way], "map_location", to=to).after.decode()
    assert f'load(path, map_location="{to}")' in after, after
    assert '"cpu"' not in after


@pytest.mark.parametrize("way", CARD)
def test_a_whole_network_is_loaded_on_the_available_card(way: str) -> None:
    after = migrate_source(HEAD + "x = torch.ones(1).cuda()\n" + CARD[way], "map_location", to="any").after.decode()
    assert "load(path, map_location=accelerator.device())" in after, after
