from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HELPER = "from accelerator_device import accelerator\n"
DIST = "import torch.distributed as dist\n"


HEAD = "import torch.distributed as dist\n"
DONE = "import torch.distributed as dist\nimport torch_npu\n"


@pytest.mark.parametrize(
    "source",
    [
        "from mylib import init_process_group\nimport torch\ninit_process_group('nccl')\n",
        HEAD + "dist.init_process_group('gloo')\n",
        HEAD + "dist.init_process_group()\n",
        HEAD + "print('nccl is fast')  # nccl\n",
        HEAD + "url = 'https://example.org/nccl'\nnames = {'nccl': 1}\n",
        HEAD + "import os\nos.environ['NCCL_DEBUG'] = 'INFO'\n",
        HEAD + "config = {'backend': 'nccl'}\nprint(config)\n",
        HEAD + "parser.add_argument('--backend', default='gloo', help='nccl or gloo')\n",
        HEAD + "group = dist.new_group([0, 1])\n",
    ],
)
def test_what_is_no_backend_is_left_alone(source: str) -> None:
    check_noop("backend", source)


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_a_script_that_was_migrated_is_left_alone(to: str) -> None:
    own = {"npu": "hccl", "mlu": "cncl"}[to]
    check_noop("backend", HEAD + f"dist.init_process_group('{own}')\nif dist.is_{own}_available(): pass\n", to=to)


def test_a_backend_of_unknown_origin_is_reported_and_stays() -> None:
    source = HEAD + "from settings import load\ndist.init_process_group(backend=load().backend)\n"
    result = check_says("backend", source, "manual", "load().backend")
    assert result.findings[0].risk == "high"
    check_says("backend", HEAD + "def start(name):\n    dist.init_process_group(name)\n", "manual", "name")


@pytest.mark.parametrize("value", ["os.environ.get('BACKEND')", "getattr(args, 'backend')"])
def test_a_backend_that_the_file_does_not_show_is_reported(value: str) -> None:
    check_says("backend", f"{HEAD}import os\ndist.init_process_group({value})\n", "manual", value)


def test_an_unknown_backend_beside_nccl_is_reported_too() -> None:
    result = migrate_source(HEAD + "dist.init_process_group('nccl' if fast else settings.backend)\n", "backend")
    assert b"'hccl' if fast else settings.backend" in result.after
    assert any(finding.status == "manual" and "settings.backend" in finding.message for finding in result.findings)


def test_a_positional_backend_of_subgroups_is_replaced() -> None:
    before, after = (f"dist.new_subgroups(2, None, None, '{backend}')\n" for backend in ("nccl", "hccl"))
    check_rewrite("backend", DONE + before, DONE + after)


def test_another_librarys_backend_is_reported_and_stays() -> None:
    source = "import torch\nimport ignite.distributed as idist\nidist.Parallel(backend='nccl')\n"
    check_says("backend", source, "manual", "hccl, if ignite.distributed.Parallel accepts that")


def test_aliases_keywords_quotes_and_comments_are_kept() -> None:
    check_rewrite(
        "backend",
        "from torch.distributed import init_process_group as init\ninit(backend='nccl', rank=0)  # keep nccl\n",
        "from torch.distributed import init_process_group as init\nimport torch_mlu\n"
        "init(backend='cncl', rank=0)  # keep nccl\n",
        to="mlu",
    )


def test_a_backend_for_each_device_is_edited() -> None:
    check_rewrite(
        "backend",
        HEAD + 'dist.init_process_group("cpu:gloo,cuda:nccl")\n',
        DONE + 'dist.init_process_group("cpu:gloo,npu:hccl")\n',
    )


def test_both_branches_and_the_third_argument_of_new_group_are_edited() -> None:
    check_rewrite(
        "backend",
        HEAD + "dist.init_process_group('nccl' if on else 'gloo')\ndist.new_group([0], None, 'nccl')\n",
        DONE + "dist.init_process_group('hccl' if on else 'gloo')\ndist.new_group([0], None, 'hccl')\n",
    )


def test_options_of_the_command_line_are_edited_but_not_their_help() -> None:
    before = """\
        import argparse
        import torch.distributed as dist
        parser = argparse.ArgumentParser()
        parser.add_argument("--dist-backend", default="nccl", choices=["nccl", "gloo"], help="nccl")
        args = parser.parse_args()
        dist.init_process_group(backend=args.dist_backend)
        """
    after = """\
        import argparse
        import torch.distributed as dist
        parser = argparse.ArgumentParser()
        parser.add_argument("--dist-backend", default="hccl", choices=["hccl", "gloo"], help="nccl")
        args = parser.parse_args()
        dist.init_process_group(backend=args.dist_backend)
        """
    result = migrate_source(dedent(before), "backend")
    assert result.after.decode().replace("import torch_npu\n", "") == dedent(after)
    assert {finding.status for finding in result.findings} == {"changed"}


@pytest.mark.parametrize(("to", "own"), [("npu", "hccl"), ("mlu", "cncl")])
def test_constants_and_availability_tests_are_replaced(to: str, own: str) -> None:
    result = migrate_source(HEAD + "if dist.is_nccl_available():\n    name = dist.Backend.NCCL\n", "backend", to=to)
    assert f"if dist.is_{own}_available():\n    name = dist.Backend.{own.upper()}\n" in result.after.decode()


def test_options_of_nccls_process_group_are_handled_by_target() -> None:
    source = "import torch.distributed as dist\noptions = dist.ProcessGroupNCCL.Options()\n"
    check_says("backend", source, "manual", "hccl_config")
    assert "dist.ProcessGroupCNCL.Options()" in migrate_source(source, "backend", to="mlu").after.decode()


@pytest.mark.parametrize(
    "line",
    [
        "dist.init_process_group('gloo')",
        f"{HELPER}dist.init_process_group(accelerator.backend())",
        f"{HELPER}dist.init_process_group(cfg.get('backend', accelerator.backend()))",
        f"{HELPER}p.add_argument('--backend', default=accelerator.backend())\ndist.init_process_group(args.backend)",
        "dist.new_group([0], backend=dist.get_backend())",
        "print('over nccl')",
        "os.environ['NCCL_DEBUG'] = 'INFO'",
        "if 'nccl' in os.environ:\n    pass",
        "parser.add_argument('--dist-backend', default='gloo', help='nccl')",
        "setup('nccl')",
    ],
)
def test_what_names_no_backend_stays(line: str) -> None:
    check_noop("backend", f"import os\n{DIST}{line}\n", to="any")


@pytest.mark.parametrize("given", ["backend", "cfg['backend']", "backend=choose()"])
def test_a_backend_that_is_decided_at_run_time_needs_manual_review(given: str) -> None:
    check_says("backend", f"{DIST}dist.init_process_group({given})\n", "manual", "decided at run time", to="any")


def test_a_backend_for_each_kind_of_device_needs_manual_review() -> None:
    check_says(
        "backend", f"{DIST}dist.init_process_group('cpu:gloo,cuda:nccl')\n", "manual", "accelerator.backend()", to="any"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dist.init_process_group('nccl')", "dist.init_process_group(accelerator.backend())"),
        (
            "dist.init_process_group(backend='nccl', rank=r)",
            "dist.init_process_group(backend=accelerator.backend(), rank=r)",
        ),
        (
            "b = 'nccl' if torch_ok else 'gloo'\ndist.init_process_group(b)",
            "b = accelerator.backend() if torch_ok else 'gloo'\ndist.init_process_group(b)",
        ),
        ("dist.new_group([0], backend='nccl')", "dist.new_group([0], backend=accelerator.backend())"),
        (
            "parser.add_argument('--backend', default='nccl', choices=['nccl', 'gloo'], help='nccl')",
            "parser.add_argument('--backend', default=accelerator.backend(), "
            "choices=[accelerator.backend(), 'gloo'], help='nccl')",
        ),
        ("a = dist.is_nccl_available()", "a = dist.is_backend_available(accelerator.backend())"),
        (
            "dist.init_process_group('nccl', device_id=device)",
            "dist.init_process_group(accelerator.backend(), device_id=accelerator.unless_cpu(device))",
        ),
    ],
)
def test_the_backend_follows_the_available_card(before: str, after: str) -> None:
    check_rewrite("backend", f"{HEAD}{before}\n", f"{HEAD}{HELPER}{after}\n", to="any")


@pytest.mark.parametrize(
    "option",
    [
        "flags.DEFINE_string('backend', {}, 'nccl or gloo')",
        "def main(backend: str = typer.Option({})):\n    pass",
        "@click.option('--backend', type=click.Choice([{}, 'gloo']))\ndef main(backend):\n    pass",
    ],
)
@pytest.mark.parametrize(("to", "backend"), [("npu", "'hccl'"), ("any", "accelerator.backend()")])
def test_options_of_other_parsers_are_edited(option: str, to: str, backend: str) -> None:
    source = "import click\nimport torch\nimport typer\nfrom absl import flags\n" + option
    assert option.format(backend) in migrate_source(source.format("'nccl'") + "\n", "backend", to=to).after.decode()


@pytest.mark.parametrize("to", ["any", "npu"])
def test_every_value_of_a_backend_must_suit_the_target(to: str) -> None:
    suited = "dist.get_default_backend_for_device(d)"
    source = f"{DIST}dist.init_process_group({suited} if automatic else args.name)\n"
    check_says("backend", source, "manual", "decided at run time (args.name)", to=to)


@pytest.mark.parametrize("given", ["*arguments", "**settings"])
def test_a_backend_among_unpacked_arguments_needs_manual_review(given: str) -> None:
    source = f"{DIST}dist.init_process_group({given})\n"
    check_says("backend", source, "manual", f"decided at run time ({given})", to="npu")
    check_noop("backend", f"{DIST}settings = {{'rank': 0}}\ndist.init_process_group(**settings)\n", to="npu")
