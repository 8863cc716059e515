"""Settings for speed, before the NPU is used."""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from migration.checking import check_noop, check_rewrite, migrate_source
from viaduct.verbs.migrate import main

RULE = "torch.start_up"
TWO = "torch.npu.set_compile_mode(jit_compile=False)", "torch.npu.config.allow_internal_format = False"
HEAD = "import torch\nimport torch_npu\n"


def test_a_library_file_is_left_alone() -> None:
    check_noop(RULE, HEAD + "def move(x):\n    return x.npu()\n", start_up=True)


def test_a_script_without_device_code_is_left_alone() -> None:
    check_noop(RULE, "import torch\nif __name__ == '__main__':\n    print('npus')\n", start_up=True)


def test_settings_that_the_script_has_are_kept() -> None:
    check_noop(RULE, f"{HEAD}{TWO[0]}\nif __name__ == '__main__':\n    torch.npu.init()\n", start_up=True)


def test_the_mlu_gets_no_such_settings() -> None:
    text = "import torch\nimport torch_mlu\nif __name__ == '__main__':\n    torch.mlu.init()\n"
    assert not migrate_source(text, to="mlu", start_up=True).changed


def test_without_start_up_the_settings_are_advised() -> None:
    result = migrate_source(HEAD + "if __name__ == '__main__':\n    torch.npu.init()\n")
    assert not result.changed
    assert [(finding.line, finding.rule, finding.status) for finding in result.findings] == [(4, RULE, "advice")]


def test_with_spawn_the_settings_go_into_the_worker() -> None:
    before = (
        "import torch\nimport torch.multiprocessing as mp\ndef work(rank):\n    '''One rank.'''\n"
        "    torch.cuda.set_device(rank)\nif __name__ == '__main__':\n    mp.spawn(work, nprocs=2)\n"
    )
    after = migrate_source(before, start_up=True).after.decode()
    assert f"    '''One rank.'''\n    {TWO[0]}\n    {TWO[1]}\n    torch.npu.set_device(rank)\n" in after
    assert after.endswith("if __name__ == '__main__':\n    mp.spawn(work, nprocs=2)\n")


def test_a_worker_whose_device_is_only_a_number_gets_the_settings_too() -> None:
    text = "import torch\nimport torch.multiprocessing as mp\ndef work(rank, x):\n    x.to(rank)\nmp.spawn(work)\n"
    after = migrate_source(text, start_up=True).after.decode()
    assert f"def work(rank, x):\n    {TWO[0]}\n    {TWO[1]}\n    x.to(rank)\n" in after


def test_settings_in_a_comment_do_not_count() -> None:
    before = f"{HEAD}# {TWO[0]}\nif __name__ == '__main__':\n    torch.npu.init()\n"
    assert (
        f"    {TWO[0]}\n    {TWO[1]}\n    torch.npu.init()\n"
        in migrate_source(before, RULE, start_up=True).after.decode()
    )


def test_the_files_name_of_torch_is_used() -> None:
    before = "import torch as t\nimport torch_npu\nif __name__ == '__main__':\n\tt.npu.init()  # go\n"
    after = before.replace(
        "\tt.npu.init", f"\t{TWO[0].replace('torch', 't')}\n\t{TWO[1].replace('torch', 't')}\n\tt.npu.init"
    )
    check_rewrite(RULE, before, after, start_up=True)


def test_the_flag_start_up_writes_the_settings(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nif __name__ == '__main__':\n    torch.cuda.set_device(0)\n")
    app = typer.Typer(add_completion=False)
    app.command()(main)
    done = CliRunner().invoke(app, [str(script), "--to", "npu", "--start-up", "--in-place", "--force"])
    assert done.exit_code == 0, done.output
    assert [line.strip() for line in script.read_text().splitlines()[3:5]] == [*TWO]
