"""Options of a command line: those that choose a device, and all others."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite

HEAD = "import argparse\nimport click\nimport torch\nimport torch_npu\nfrom absl import flags\n"
HEAD += "parser = argparse.ArgumentParser()\n"


@pytest.mark.parametrize(
    "source",
    [
        "parser.add_argument('--kernel', default='cuda', choices=['cuda', 'cpu'])\n",
        "parser.add_argument('--device', default='cpu', help='cuda or cpu')\n",
        "parser.add_argument('--cuda', action='store_true')\n",
        "parser.add_argument('--device', choices=['cpu', 'cuda', 'npu'])\n",
        "flags.DEFINE_string('device', 'cpu', 'cuda')\n",
    ],
)
def test_options_without_a_cuda_device_stay(source: str) -> None:
    check_noop("device_argparse", HEAD + source)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "parser.add_argument('--device', default='cuda:0', help='cuda:0')",
            "parser.add_argument('--device', default='npu:0', help='cuda:0')",
        ),
        (
            "parser.add_argument('-d', '--train-device', choices=('cpu', 'cuda'), default='cpu')",
            "parser.add_argument('-d', '--train-device', choices=('cpu', 'npu'), default='cpu')",
        ),
        (
            "parser.add_argument('--device', nargs='?', const='cuda', default='cuda' if ready else 'cpu')",
            "parser.add_argument('--device', nargs='?', const='npu', default='npu' if ready else 'cpu')",
        ),
        (
            "parser.add_argument('--where', default='cuda')\nargs = parser.parse_args()\nx.to(args.where)",
            "parser.add_argument('--where', default='npu')\nargs = parser.parse_args()\nx.to(args.where)",
        ),
        (
            "@click.option('--device', default='cuda', type=click.Choice(['cuda', 'cpu']))\ndef main():\n    pass",
            "@click.option('--device', default='npu', type=click.Choice(['npu', 'cpu']))\ndef main():\n    pass",
        ),
        ("flags.DEFINE_string('device', 'cuda', 'cuda')", "flags.DEFINE_string('device', 'npu', 'cuda')"),
        (
            "flags.DEFINE_enum('device', 'cuda', ['cuda', 'cpu'], 'cuda')",
            "flags.DEFINE_enum('device', 'npu', ['npu', 'cpu'], 'cuda')",
        ),
    ],
)
def test_default_and_choices_are_edited(before: str, after: str) -> None:
    check_rewrite("device_argparse", HEAD + before + "\n", HEAD + after + "\n")


@pytest.mark.parametrize(
    "source",
    [
        "parser.add_argument('--kernel', default='cuda', choices=['cuda', 'triton'])\n",
        "parser.add_argument('--device', default='cpu', help='cuda')\n",
        "parser.add_argument('--device', choices=['cuda', 'npu', 'mlu'])\n",
    ],
)
def test_options_without_a_cuda_device_stay_for_any_card(source: str) -> None:
    check_noop("device_argparse", HEAD.replace("import torch_npu\n", "") + source, to="any")


def test_default_and_choices_are_the_available_card() -> None:
    before = "parser.add_argument('--device', default='cuda', choices=['cuda', 'cpu'], help='cuda')\n"
    after = "from accelerator_device import accelerator\n" + before.replace("'cuda',", "accelerator.name(),", 2)
    check_rewrite("device_argparse", f"import torch\n{before}", f"import torch\n{after}", to="any")
