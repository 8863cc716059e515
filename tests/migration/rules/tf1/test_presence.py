"""Questions whether Horovod is there."""

from __future__ import annotations

import pytest

from migration.checking import migrate_source

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


def test_a_bare_use_keeps_the_import() -> None:
    source = HEAD + "if hvd is not None:\n    run(hvd)\n"
    result = migrate_source(source, distributed=True)
    assert result.after.decode() == source
    assert any("itself is passed on" in finding.message for finding in result.findings)


GUARDED = "import tensorflow as tf\ntry:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    hvd = None\n"


@pytest.mark.parametrize(
    "fallback", ["hvd = Alone()", "import fake as hvd"], ids=["an object of its own", "another module"]
)
def test_a_stand_in_of_the_script_is_not_taken_for_horovod(fallback: str) -> None:
    source = GUARDED.replace("hvd = None", fallback) + "if hvd is not None:\n    hvd.init()\n"
    assert migrate_source(source, distributed=True).after.decode() == source
