from __future__ import annotations

from migration.checking import check_rewrite, migrate_source

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


def test_start_and_end_are_taken_out() -> None:
    before = HEAD + "def main():\n    hvd.init()  # why\n    run()\n    hvd.shutdown()\n"
    check_rewrite("horovod_lifecycle", before, HEAD + "def main():\n    # why\n    run()\n", distributed=True)


def test_a_block_that_would_be_empty_keeps_a_pass() -> None:
    check_rewrite("horovod_lifecycle", HEAD + "if use: hvd.init()\n", HEAD + "if use: pass\n", distributed=True)


def test_a_script_for_several_devices_says_so_when_it_is_migrated_for_one() -> None:
    result = migrate_source(HEAD + "hvd.init()\nx = 1\n", "horovod_lifecycle")
    assert any(finding.status == "manual" and "--distributed" in finding.message for finding in result.findings)
