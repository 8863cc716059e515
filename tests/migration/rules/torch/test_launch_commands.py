"""Commands for NVIDIA's cards in Python code."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "import os\nimport subprocess\nimport torch\n"


@pytest.mark.parametrize("source", ["print('nvidia-smi')\n", "# nvidia-smi\n", "text = 'see nvidia-smi'\n"])
def test_a_mere_mention_of_nvidia_smi_is_no_command(source: str) -> None:
    check_noop("launch_commands", HEAD + source)


@pytest.mark.parametrize(
    "source",
    [
        "os.system('nvidia-smi -L')\n",
        "subprocess.run(['nvidia-smi'])\n",
        "os.popen(f'nvidia-smi -i {x}')\n",
        "command = 'nvidia-smi -L | wc -l' if posix else 'nvidia-smi -L'\nsubprocess.run(command, shell=True)\n",
    ],
)
def test_a_command_with_nvidia_smi_gets_advice(source: str) -> None:
    check_says("launch_commands", HEAD + source, "advice", "npu-smi info")
    check_says("launch_commands", HEAD + source, "advice", "cnmon", to="mlu")
