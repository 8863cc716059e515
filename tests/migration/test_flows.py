"""Flow of what torch.load returns, through names, functions and files."""

from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_source

HEAD = "import torch\n"


@pytest.mark.parametrize(
    "source",
    [
        "register(torch.load('x.pt'))\n",
        "def read():\n    return torch.load('x.pt')\n",
        "match torch.load('x.pt'):\n    case {'net': net}:\n        net(x)\n",
    ],
)
def test_a_value_that_is_lost_from_sight_is_unresolved(source: str) -> None:
    check_says("map_location", HEAD + source + "model.cuda()\n", "unresolved", "load_state_dict")


def test_a_name_that_gets_another_value_is_another_thing() -> None:
    """Networks that are run under the same name before and after are not the loaded value."""
    source = (
        "it = build().cuda()\nit(x)\nit = torch.load(path)\nmodel.load_state_dict(it)\nit = build().cuda()\nit(x)\n"
    )
    after = migrate_source(HEAD + source, "map_location").after.decode()
    assert 'it = torch.load(path, map_location="cpu")' in after


@pytest.mark.parametrize(
    "use", ["net = it['net']\nnet.eval()\n", "it()\n", "it[0].forward(x)\n", "for part in it:\n    part.eval()\n"]
)
def test_what_is_run_is_loaded_on_the_card(use: str) -> None:
    after = migrate_source(f"{HEAD}model.cuda()\nit = torch.load('a')\n{use}", "map_location").after.decode()
    assert "torch.load('a', map_location=\"npu\")" in after


def test_a_value_is_followed_through_many_names() -> None:
    names = "".join(f"a{number + 1} = a{number}\n" for number in range(60))
    source = f"{HEAD}model.cuda()\na0 = torch.load('a')\n{names}model.load_state_dict(a60)\n"
    assert "torch.load('a', map_location=\"cpu\")" in migrate_source(source, "map_location").after.decode()
