"""Start and end of communication in the started script."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, migrate_source

RULE = "lifecycle_init"
RANKS = "import tensorflow as tf\nfrom hccl.manage.api import get_rank_size\n"
MAIN = """
import tensorflow as tf
from data import input_fn

def main(_):
  '''Run.'''
  train(input_fn)
  return 0

if __name__ == '__main__':
  tf.app.run()
"""
DATA = """
import tensorflow as tf
def input_fn(context):
    data = tf.data.TFRecordDataset(f)
    return data.shard(context.num_input_pipelines, context.input_pipeline_id)
"""


@pytest.mark.parametrize(
    "body",
    [
        "print(1)\nif __name__ == '__main__':\n    main()\n",
        "from npu_bridge.npu_init import *\ns, e = init_resource()\nprint(get_rank_size())\n",
        "from npu_bridge.estimator.npu import npu_plugin\nnpu_plugin.npu_resource_init()\nprint(get_rank_size())\n",
        "def data():\n    return get_rank_size()\n",  # no script
    ],
)
def test_scripts_that_start_communication_or_ask_for_no_rank_stay(body: str) -> None:
    check_noop(RULE, RANKS + body, distributed=True)


def test_without_distributed_or_with_rank_env_nothing_is_started() -> None:
    for options in ({}, {"distributed": True, "rank": "env"}):
        after = migrate_source(RANKS + "print(get_rank_size())\n", **options).after.decode()  # type: ignore[arg-type]
        assert "initialize_system" not in after


def test_the_file_with_main_starts_for_the_file_with_the_data() -> None:
    after = migrate_source(MAIN, RULE, path="main.py", others={"data.py": DATA}, distributed=True).after.decode()
    start = (
        "  init_sess, npu_init = init_npu()\n  npu_shutdown = npu_ops.shutdown_system()\n  init_sess.run(npu_init)\n"
    )
    assert f"  '''Run.'''\n{start}  train(input_fn)\n" in after
    assert "  init_sess.run(npu_shutdown)\n  init_sess.close()\n  return 0\n" in after
    assert after.index("def init_npu") < after.index("def main")


def test_relative_and_package_imports_are_followed() -> None:
    main = MAIN.replace("from data import", "from official.vision import data\nfrom official.vision.data import")
    others = {"data.py": DATA, "unused.py": "import tensorflow\n"}
    assert b"init_npu" in migrate_source(main, RULE, path="main.py", others=others, distributed=True).after
    package = {"net/data.py": DATA}
    relative = MAIN.replace("from data", "from .data")
    assert b"init_npu" in migrate_source(relative, RULE, path="net/main.py", others=package, distributed=True).after


def test_only_a_start_in_the_same_program_counts() -> None:
    start = "from npu_bridge.npu_init import *\nsess, end = init_resource()\nprint(get_rank_id())\n"
    script = RANKS + "def main():\n    print(get_rank_size())\nmain()\n"
    other_script = migrate_source(script, RULE, path="b.py", others={"a.py": start}, distributed=True)
    assert b"init_sess.run(npu_init)" in other_script.after
    imported = migrate_source("import a\n" + script, RULE, path="b.py", others={"a.py": start}, distributed=True)
    assert not imported.changed
