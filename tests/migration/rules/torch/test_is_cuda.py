"""x.is_cuda of tensors, and fields of the project with that name."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

RULE = "torch.is_cuda"


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nclass A:\n    def f(self):\n        self.is_cuda = True\n        return self.is_cuda\n",
        "import torch\nclass A:\n    is_cuda: bool = False\nprint(A().is_cuda)\n",
        "import torch\nclass A:\n    @property\n    def is_cuda(self): return 1\nprint(A().is_cuda)\n",
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--is_cuda')\nprint(p.parse_args().is_cuda)\n",
        "import torch\nprint('x.is_cuda')  # x.is_cuda\n",
    ],
)
def test_a_field_of_the_project_is_left_alone(text: str) -> None:
    check_noop(RULE, text)


FIELD = {"s.py": "import torch\nclass S:\n    is_cuda = 1\n"}


def test_a_field_of_another_file_is_left_alone() -> None:
    check_noop(RULE, "import torch\nfrom s import S\nprint(settings.is_cuda)\n", others=FIELD)


def test_what_may_be_a_field_or_a_tensors_is_unresolved() -> None:
    source = "import torch\nfrom s import S\ndef f(x):\n    return x.is_cuda\n"
    check_says(RULE, source, "unresolved", "is_npu", others=FIELD)


def test_a_field_of_another_program_does_not_count() -> None:
    before = "import torch\nimport torch_npu\ndef f(x):\n    return x.is_cuda\n"
    check_rewrite(RULE, before, before.replace("is_cuda", "is_npu"), others=FIELD)


@pytest.mark.parametrize("receiver", ["x", "next(model.parameters())", "self.weight", "batch['image']"])
def test_is_cuda_of_a_tensor_becomes_the_cards_attribute(receiver: str) -> None:
    before = f"import torch\nif {receiver}.is_cuda and y == 1: pass\n"
    check_rewrite(RULE, before, f"import torch\nimport torch_npu\nif {receiver}.is_npu and y == 1: pass\n")


def test_a_variable_or_parameter_called_is_cuda_is_no_field() -> None:
    before = "import torch\nis_cuda = x.is_cuda\ndef f(y, is_cuda=False):\n    return y.is_cuda\nf(x, is_cuda=True)\n"
    after = before.replace(".is_cuda", ".is_npu").replace("torch\n", "torch\nimport torch_npu\n", 1)
    check_rewrite(RULE, before, after)


def test_is_cuda_in_an_f_string_is_replaced() -> None:
    check_rewrite(
        RULE,
        "import torch\nprint(f'{x.is_cuda}')\n",
        "import torch\nimport torch_mlu\nprint(f'{x.is_mlu}')\n",
        to="mlu",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = x.is_cuda", "a = x.device.type in accelerator.TYPES"),
        ("a = not x.is_cuda", "a = not x.device.type in accelerator.TYPES"),
        (
            "assert x.is_cuda == y.is_cuda",
            "assert (x.device.type in accelerator.TYPES) == (y.device.type in accelerator.TYPES)",
        ),
    ],
)
def test_for_any_card_the_type_of_the_device_is_compared(before: str, after: str) -> None:
    helper = "from accelerator_device import accelerator\n"
    check_rewrite(RULE, f"import torch\n{before}\n", f"import torch\n{helper}{after}\n", to="any")


def test_a_field_is_left_alone_for_any_card() -> None:
    check_noop(
        RULE, "import torch\nclass T:\n    def __init__(self):\n        self.is_cuda = 0\nT().is_cuda\n", to="any"
    )


def test_is_cuda_in_an_f_string_is_replaced_for_any_card() -> None:
    after = "import torch\nfrom accelerator_device import accelerator\n"
    after += "print(f'{(x.device.type in accelerator.TYPES)}')\n"
    check_rewrite(RULE, "import torch\nprint(f'{x.is_cuda}')\n", after, to="any")


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "lookup", ["getattr(x, 'is_cuda')", "getattr(x, 'is_cuda', False)", "attrgetter('is_cuda')(x)"]
)
def test_a_lookup_by_name_needs_manual_review(lookup: str, to: str) -> None:
    check_says(RULE, f"import torch\nfrom operator import attrgetter\na = {lookup}\n", "manual", "by its name", to=to)


@pytest.mark.parametrize("lookup", ["hasattr(x, 'is_cuda')", "getattr(x, name, 'is_cuda')", "getattr(x, 'dtype')"])
def test_another_lookup_is_left_alone(lookup: str) -> None:
    check_noop(RULE, f"import torch\na = {lookup}\n")
