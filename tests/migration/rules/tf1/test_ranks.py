"""Rank and number of ranks in a migrated script."""

from __future__ import annotations

from migration.checking import migrate_source

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


def test_an_imported_module_reads_the_environment_and_starts_nothing() -> None:
    others = {"train.py": "import tensorflow as tf\nfrom script import RANK\ndef main():\n    print(RANK)\nmain()\n"}
    result = migrate_source(HEAD + "hvd.init()\nRANK = hvd.rank()\n", others=others, distributed=True)
    assert result.after.decode().endswith('RANK = int(os.getenv("RANK_ID", "0"))\n')
