"""Choices of a gradient compression."""

from __future__ import annotations

from migration.checking import migrate_source, migrate_text

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


def test_an_unread_compression_is_removed_and_a_read_one_stays() -> None:
    choice = "c = hvd.Compression.fp16 if fp16 else hvd.Compression.none\n"
    source = HEAD + choice + "opt = hvd.DistributedOptimizer(opt, compression=c)\n"
    assert migrate_text(source, distributed=True) == (
        "import tensorflow as tf\n"
        "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"
        "opt = NPUDistributedOptimizer(opt)\n"
    )
    result = migrate_source(HEAD + choice + "print(c)\n", distributed=True)
    assert result.after.decode() == HEAD + choice + "print(c)\n"
    assert any("Compression" in finding.message and finding.status == "manual" for finding in result.findings)
