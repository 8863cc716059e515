"""Uses that other files make of what torch.load returns."""

from __future__ import annotations

from migration.checking import check_says, migrate_source

HEAD = "import torch\n"


def test_arguments_that_a_mapping_passes_to_another_file_are_unresolved() -> None:
    others = {"lib.py": HEAD + "def resume(model, saved):\n    model.load_state_dict(saved)\n"}
    source = HEAD + "from lib import resume\nresume(model.cuda(), **torch.load('a'))\n"
    check_says("map_location", source, "unresolved", "load_state_dict", others=others)


def test_what_a_function_of_another_file_reads_is_followed() -> None:
    reader = HEAD + "def read(path):\n    return torch.load(path)\n"
    user = HEAD + "from lib.io import read\nx = x.cuda()\n"
    feeds = {"train.py": user + "saved = read('a')\nmodel.load_state_dict(saved['net'])\n"}
    runs = {"train.py": user + "net = read('a')\nnet.eval()\nnet(x)\n"}
    after = migrate_source(reader, "map_location", path="lib/io.py", others=feeds).after.decode()
    assert 'torch.load(path, map_location="cpu")' in after
    after = migrate_source(reader, "map_location", path="lib/io.py", others=runs).after.decode()
    assert 'torch.load(path, map_location="npu")' in after


def test_what_is_given_to_a_function_of_another_file_is_followed() -> None:
    taker = HEAD + "def resume(model, saved, strict=True):\n    model.load_state_dict(saved['net'], strict)\n"
    source = HEAD + "from lib import resume\nresume(model.cuda(), torch.load('a'))\n"
    after = migrate_source(source, "map_location", others={"lib.py": taker}).after.decode()
    assert "torch.load('a', map_location=\"cpu\")" in after


def test_a_method_of_another_file_is_followed_by_its_name() -> None:
    keeper = HEAD + "class Keeper:\n    def read_saved(self, path):\n        return torch.load(path)\n"
    user = HEAD + "from lib import Keeper\nkeeper = Keeper()\nmodel.cuda().load_state_dict(keeper.read_saved('a'))\n"
    after = migrate_source(keeper, "map_location", path="lib.py", others={"train.py": user}).after.decode()
    assert 'torch.load(path, map_location="cpu")' in after


def test_a_value_is_followed_through_several_files() -> None:
    others = {
        "lib/io.py": HEAD + "from lib.disk import read\ndef weights(path):\n    return read(path)['net']\n",
        "lib/net.py": HEAD + "from lib.io import weights\ndef build(path):\n    return fill(make(), weights(path))\n"
        "def fill(net, state):\n    net.load_state_dict(state)\n    return net.cuda()\n",
    }
    reader = HEAD + "def read(path):\n    return torch.load(path)\n"
    after = migrate_source(reader, "map_location", path="lib/disk.py", others=others).after.decode()
    assert 'torch.load(path, map_location="cpu")' in after
