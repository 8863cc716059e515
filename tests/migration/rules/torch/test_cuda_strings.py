"""Names of torch.cuda in quotes."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

RULE = "torch.cuda_strings"
HEAD = "import torch\n"
DONE = "import torch\nimport torch_npu\n"


@pytest.mark.parametrize(
    "line",
    [
        "print('torch.cuda.FloatTensor')",
        "raise RuntimeError('torch.cuda.is_available() is False')",
        "names = {'torch.cuda.FloatTensor': 1}",
        "logging.info('torch.cuda.Stream')",
        "x.type('torch.cuda.FloatTensor')",
        "x.type(torch.float32)",
        "if kind == 'torch.cuda.FloatTensor': pass",
        "mock.patch('torch.cuda.jiterator')",
    ],
)
def test_text_and_unknown_names_are_left_alone(line: str) -> None:
    check_noop(RULE, f"{HEAD}{line}\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(s: 'torch.cuda.Stream'): pass", "def f(s: 'torch.npu.Stream'): pass"),
        ("def f() -> 'torch.cuda.Event': pass", "def f() -> 'torch.npu.Event': pass"),
        (
            "@mock.patch('torch.cuda.is_available')\ndef f(): pass",
            "@mock.patch('torch.npu.is_available')\ndef f(): pass",
        ),
        ("m = importlib.import_module('torch.cuda')", "m = importlib.import_module('torch.npu')"),
    ],
)
def test_a_name_for_python_is_changed(before: str, after: str) -> None:
    check_rewrite(RULE, f"{HEAD}{before}\n", f"{DONE}{after}\n")


@pytest.mark.parametrize("given", ["torch.FloatTensor", "'torch.DoubleTensor'", "kind", ""])
def test_a_default_type_of_the_cpu_is_left_alone(given: str) -> None:
    check_noop("torch.default_tensor_type", f"{HEAD}torch.set_default_tensor_type({given})\n")


@pytest.mark.parametrize(
    "given",
    [
        "torch.cuda.HalfTensor",
        "'torch.cuda.HalfTensor'",
        "torch.cuda.HalfTensor if ready else torch.FloatTensor",
        "'torch.cuda.HalfTensor' if ready else 'torch.FloatTensor'",
    ],
)
@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_a_default_type_of_cudas_is_for_a_person(given: str, to: str) -> None:
    text = f"{HEAD}torch.set_default_tensor_type({given})\n"
    check_says("torch.default_tensor_type", text, "manual", "torch.set_default_dtype(torch.float16)", to=to)


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_a_default_type_of_cudas_is_left_by_all_rules(to: str) -> None:
    text = f"{HEAD}torch.set_default_tensor_type('torch.cuda.HalfTensor')\n"
    text += "torch.set_default_tensor_type(torch.cuda.FloatTensor)\n"
    result = migrated(text, to=to)
    assert result.after.decode() == text
    assert [one.risk for one in result.findings] == ["high", "high"]


def test_a_default_type_that_has_a_name_is_told_too() -> None:
    text = f"{HEAD}kind = torch.cuda.HalfTensor\ntorch.set_default_tensor_type(kind)\n"
    check_says("torch.default_tensor_type", text, "manual", "torch.set_default_dtype(torch.float16)")


def test_a_file_with_code_for_both_is_pointed_out() -> None:
    text = "import torch\nif torch.cuda.is_available(): a()\nelif torch.npu.is_available(): b()\n"
    found = [one for one in migrated(text).findings if one.rule == "torch.already"]
    assert [(one.line, one.status) for one in found] == [(2, "advice")]
    assert not migrated(text).changed
    assert not [one for one in migrated("import torch\ntorch.npu.init()\n").findings if one.rule == "torch.already"]
