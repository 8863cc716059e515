from __future__ import annotations

from migration.checking import check_noop

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"


def test_a_search_for_other_packages_is_not_reported() -> None:
    check_noop("horovod_leftovers", HEAD + "import importlib.util\nHAS = importlib.util.find_spec('numpy')\n")
    check_noop("horovod_leftovers", "import importlib.util\nHAS = importlib.util.find_spec('horovod')\n")
