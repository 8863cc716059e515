"""Names of torch.cuda in quotes."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite

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
def test_a_string_used_as_a_name_is_changed(before: str, after: str) -> None:
    check_rewrite(RULE, f"{HEAD}{before}\n", f"{DONE}{after}\n")
