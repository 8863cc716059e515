from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_text

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


@pytest.mark.parametrize(
    ("horovod", "hccl"),
    [
        ("rank", "get_rank_id"),
        ("size", "get_rank_size"),
        ("local_rank", "get_local_rank_id"),
        ("local_size", "get_local_rank_size"),
    ],
)
def test_ranks_come_from_hccl(horovod: str, hccl: str) -> None:
    text = migrate_text(HEAD + f"def f():\n    return hvd.{horovod}()  # kept\n", "horovod_ranks", distributed=True)
    assert f"    return {hccl}()  # kept\n" in text
    assert f"from hccl.manage.api import {hccl}\n" in text


def test_without_a_distributed_run_ranks_come_from_the_environment() -> None:
    text = migrate_text(HEAD + "def f():\n    return 0.1 * hvd.size(), hvd.rank(), hvd.local_rank()\n", "horovod_ranks")
    assert (
        'return 0.1 * int(os.getenv("RANK_SIZE", "1")), int(os.getenv("RANK_ID", "0")), int(os.getenv("DEVICE_ID"'
        in text
    )
    assert "import os\n" in text


def test_without_hccl_local_size_needs_manual_review() -> None:
    check_says("horovod_ranks", HEAD + "def f():\n    return hvd.local_size()\n", "manual", "environment variable")


def test_code_before_main_reads_the_environment() -> None:
    source = HEAD + "SIZE = hvd.size()\ndef main(_, n=hvd.size()):\n    print(hvd.size())\ntf.app.run(main)\n"
    text = migrate_text(source, "horovod_ranks", distributed=True)
    assert 'SIZE = int(os.getenv("RANK_SIZE", "1"))' in text
    assert 'def main(_, n=int(os.getenv("RANK_SIZE", "1"))):' in text
    assert "    print(get_rank_size())" in text


def test_a_script_without_main_calls_hccl_after_the_start() -> None:
    assert "rate = get_rank_size()" in migrate_text(HEAD + "rate = hvd.size()\n", "horovod_ranks", distributed=True)


def test_style_and_rank_choose_helpers_or_the_environment() -> None:
    source = HEAD + "def f():\n    return hvd.rank()\n"
    assert "return get_npu_rank_id()" in migrate_text(source, "horovod_ranks", distributed=True, style="wrapper")
    assert 'return int(os.getenv("RANK_ID", "0"))' in migrate_text(
        source, "horovod_ranks", distributed=True, rank="env"
    )


def test_a_function_that_is_passed_on_is_renamed() -> None:
    text = migrate_text(HEAD + "def f():\n    return make(rank=hvd.rank)\n", "horovod_ranks", distributed=True)
    assert "return make(rank=get_rank_id)" in text
