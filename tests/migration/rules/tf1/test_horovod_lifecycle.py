from __future__ import annotations

from migration.checking import check_rewrite, migrate_source

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


def test_init_and_shutdown_are_removed() -> None:
    before = HEAD + "def main():\n    hvd.init()  # why\n    run()\n    hvd.shutdown()\n"
    check_rewrite("horovod_lifecycle", before, HEAD + "def main():\n    # why\n    run()\n", distributed=True)


def test_a_block_that_would_be_empty_keeps_a_pass() -> None:
    check_rewrite("horovod_lifecycle", HEAD + "if use: hvd.init()\n", HEAD + "if use: pass\n", distributed=True)


def test_without_distributed_the_removal_of_init_needs_review() -> None:
    result = migrate_source(HEAD + "hvd.init()\nx = 1\n", "horovod_lifecycle")
    assert any(finding.status == "manual" and "--distributed" in finding.message for finding in result.findings)
