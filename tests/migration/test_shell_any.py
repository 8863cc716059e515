"""Shell scripts of a project that is to run on every card."""

from __future__ import annotations

from pathlib import Path

import pytest

from migration.test_helper_location import migrate_to_any, project
from migration.test_shell import OLD, after, list_messages
from viaduct.migration.writing import write_out

MORE = "ASCEND_RT_VISIBLE_DEVICES{0} MLU_VISIBLE_DEVICES{0}"


@pytest.mark.parametrize(
    "text",
    [
        f"# {OLD}=0 python a.py\n",
        f"echo {OLD}=0 ${OLD}\n",
        f"N=$(echo ${OLD} | wc -w)\n",
        f"cat <<'E'\nexport {OLD}=0\nE\n",
        f"MY_{OLD}=0 python a.py\n",
        f"{OLD}=0 ASCEND_RT_VISIBLE_DEVICES=1 python a.py\n",
        "python a.py --device cpu --dist-backend gloo\n",
    ],
)
def test_what_is_no_setting_stays_without_a_message(text: str) -> None:
    assert after(text, to="any") == text
    assert not [*list_messages(text, "manual", to="any"), *list_messages(text, "advice", to="any")]


@pytest.mark.parametrize("value", ["1,0", "GPU-1234"])
def test_a_list_that_an_npu_does_not_take_moves_nothing(value: str) -> None:
    text = f"export {OLD}=0\n{OLD}={value} python a.py\n"
    assert after(text, to="any") == text
    assert "strictly ascending" in list_messages(text, "manual", to="any")[0]


@pytest.mark.parametrize(
    "text", [f"docker run -e {OLD}=0 image\n", f"{OLD}=$(free_cards) python a.py\n", f"srun --export=A {OLD}=0 a\n"]
)
def test_where_no_second_word_can_follow_it_is_reported(text: str) -> None:
    assert after(text, to="any") == text
    assert "ASCEND_RT_VISIBLE_DEVICES and MLU_VISIBLE_DEVICES" in list_messages(text, "advice", to="any")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("export {}=0,1{}\n", "=0,1"),
        ('A=1 {}="0"{} python a.py  # keep\n', '="0"'),
        ("env {}=0{} python a.py\n", "=0"),
        ("{}=${{1:-0}}{} \\\r\n  python a.py\r\n", "=${1:-0}"),
        ("for i in 0 1; do {}=$i{} python a.py & done\n", "=$i"),
        ("export {}{}\n", ""),
        ("unset {}{}\n", ""),
    ],
)
def test_the_variable_is_set_for_every_card(text: str, value: str) -> None:
    assert after(text.format(OLD, ""), to="any") == text.format(OLD, " " + MORE.format(value))


def test_values_for_cuda_alone_are_pointed_out() -> None:
    text = "python a.py --device cuda --dist-backend=nccl\n"
    assert after(text, to="any") == text
    assert [line.partition(" names")[0] for line in list_messages(text, "manual", to="any")] == [
        "--device cuda",
        "--dist-backend nccl",
    ]
    assert "names CUDA" in list_messages("python a.py --kernel cuda\n", "advice", to="any")[0]


def test_what_other_cards_have_is_reported() -> None:
    (line,) = list_messages("export NCCL_DEBUG=INFO\n", "advice", to="any")
    assert "stays for CUDA" in line
    assert "HCCL_CONNECT_TIMEOUT" in line
    assert "CNCL_BLOCKING_WAIT" in line
    assert len(list_messages("export CUDA_LAUNCH_BLOCKING=1\n", "advice", to="any")) == 2
    assert "npu-smi info` and `cnmon" in list_messages("nvidia-smi\n", "advice", to="any")[0]
    assert "accelerator.set_device(LOCAL_RANK)" in list_messages("torchrun a.py\n", "advice", to="any")[0]
    assert "not migrated" in list_messages("python -c 'import torch; torch.cuda.init()'\n", "manual", to="any")[0]


def test_rules_that_are_not_wanted_are_silent() -> None:
    text = f"export {OLD}=0\nexport NCCL_DEBUG=INFO\n"
    assert after(text, to="any", skip=("visible_devices",)) == text
    assert not list_messages(text, "advice", to="any", skip=("nccl_variables",))


def test_it_is_written_with_the_project(tmp_path: Path) -> None:
    files = {"train.py": "import torch\ntorch.cuda.init()\n", "run.sh": f"{OLD}=0 python train.py\n"}
    write_out(migrate_to_any(project(tmp_path / "project", files)), tmp_path / "out", {})
    assert (tmp_path / "out/run.sh").read_text() == f"{OLD}=0 {MORE.format('=0')} python train.py\n"
    assert not migrate_to_any(tmp_path / "out").files_to_write
