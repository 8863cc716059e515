"""CUDA_VISIBLE_DEVICES in Python."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import os\nimport subprocess\nimport torch\n"
OLD, NEW = "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"


def test_a_tensorflow_script_has_its_own_rules() -> None:
    check_noop("visible_devices", f"import os\nimport tensorflow as tf\nos.environ['{OLD}'] = '0'\n")


@pytest.mark.parametrize("value", ["1,0", "0,0", "GPU-8932f937", "0,1,MIG-1"])
def test_a_device_list_that_the_npu_refuses_stays(value: str) -> None:
    check_says("visible_devices", HEAD + f"os.environ['{OLD}'] = '{value}'\n", "manual", "strictly ascending")
    check_says("visible_devices", HEAD + f"os.system('{OLD}={value} python a.py')\n", "manual", "strictly ascending")


def test_the_mlu_accepts_a_device_list_in_any_order() -> None:
    source = HEAD + "os.environ['{}'] = '1,0'\n"
    check_rewrite("visible_devices", source.format(OLD), source.format("MLU_VISIBLE_DEVICES"), to="mlu")


def test_a_device_list_composed_at_run_time_gets_advice() -> None:
    source = HEAD + "os.environ['{}'] = args.gpus\n"
    result = check_rewrite("visible_devices", source.format(OLD), source.format(NEW))
    assert any(
        finding.status == "advice" and "check the order of the devices" in finding.message
        for finding in result.findings
    )


def test_on_the_mlu_this_rule_renames_the_variable_in_pytorch_scripts() -> None:
    text = "import os\nimport torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"
    assert {finding.rule for finding in migrate_source(text, to="mlu").findings} == {"torch.visible_devices"}


def test_the_variables_of_all_cards_are_set() -> None:
    after = migrate_source(
        "import os, torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '0,1'  # two\n", "visible_devices", to="any"
    )
    line = "os.environ['ASCEND_RT_VISIBLE_DEVICES'] = os.environ['MLU_VISIBLE_DEVICES'] = '0,1'  # two\n"
    assert after.after.decode().endswith(f"os.environ['CUDA_VISIBLE_DEVICES'] = {line}")


def test_a_device_list_that_an_npu_refuses_needs_manual_review() -> None:
    source = "import os, torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '1,0'\n"
    check_says("visible_devices", source, "manual", "ascending", to="any")


def test_a_read_of_the_variable_gets_advice() -> None:
    source = "import os, torch\nn = os.environ.get('CUDA_VISIBLE_DEVICES', '').count(',')\n"
    check_says("visible_devices", source, "advice", "ASCEND_RT_VISIBLE_DEVICES", to="any")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nprint('set CUDA_VISIBLE_DEVICES')\n",
        "import torch\n'CUDA_VISIBLE_DEVICES'\n",
    ],
)
def test_what_needs_nothing_for_the_available_card_stays(source: str) -> None:
    check_noop("visible_devices", source, to="any")


@pytest.mark.parametrize(
    "line",
    [
        "env = dict(os.environ)\nenv['CUDA_VISIBLE_DEVICES'] = '0'",
        "env = dict(os.environ, CUDA_VISIBLE_DEVICES='0')",
        "os.environ.update(CUDA_VISIBLE_DEVICES='0')",
    ],
)
def test_the_environment_of_a_child_process_gets_advice(line: str) -> None:
    source = f"import os, torch\n{line}\n"
    check_says("visible_devices", source, "advice", "ASCEND_RT_VISIBLE_DEVICES", to="any")


@pytest.mark.parametrize(
    "line",
    [
        "os.environ |= {'CUDA_VISIBLE_DEVICES': '0'}\n",
        "env = os.environ | {'CUDA_VISIBLE_DEVICES': '0'}\n",
        "child = dict(os.environ)\nchild.update({'CUDA_VISIBLE_DEVICES': '0'})\n",
        "child = os.environ.copy()\nchild.update(CUDA_VISIBLE_DEVICES='0')\n",
    ],
)
def test_an_environment_that_is_merged_or_updated_has_the_cards_variable(line: str) -> None:
    check_rewrite("visible_devices", HEAD + line, HEAD + line.replace(OLD, NEW))


def test_a_dict_that_is_no_environment_stays() -> None:
    check_noop(
        "visible_devices", HEAD + "table |= {'CUDA_VISIBLE_DEVICES': '0'}\nseen.update(CUDA_VISIBLE_DEVICES=1)\n"
    )
