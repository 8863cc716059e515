"""Random state of the device."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HEAD = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    "source",
    [
        "torch.random.fork_rng(device_type='npu')\n",
        "torch.random.fork_rng(**{'device_type': 'npu'})\n",
        "torch.get_rng_state()\ntorch.set_rng_state(x)\n",
        "torch.npu.get_rng_state()\n",
    ],
)
def test_fork_rng_with_a_device_type_stays(source: str) -> None:
    check_noop("rng_state", HEAD + source)


def test_fork_rng_gets_the_cards_device_type() -> None:
    check_rewrite(
        "rng_state",
        HEAD + "with torch.random.fork_rng(devices=[0]):\n    pass\n",
        HEAD + 'with torch.random.fork_rng(devices=[0], device_type="npu"):\n    pass\n',
    )


@pytest.mark.parametrize("given", ["**options", "*options"])
def test_a_device_type_among_unpacked_arguments_needs_manual_review(given: str) -> None:
    check_says("rng_state", HEAD + f"torch.random.fork_rng({given})\n", "manual", "device_type is npu")


def test_setting_a_state_gets_advice() -> None:
    check_says("rng_state", HEAD + "torch.npu.set_rng_state(state)\n", "advice", "cannot restore")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nwith torch.random.fork_rng(device_type='cpu'):\n    pass\n",
    ],
)
def test_what_needs_nothing_for_the_available_card_stays(source: str) -> None:
    check_noop("rng_state", source, to="any")


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ("import torch\nwith torch.random.fork_rng():\n    pass\n", "advice", "device_type"),
        ("import torch\ntorch.cuda.set_rng_state_all(s)\n", "advice", "kind of card"),
    ],
)
def test_what_needs_review_for_the_available_card_is_reported(source: str, status: str, word: str) -> None:
    check_says("rng_state", source, status, word, to="any")
