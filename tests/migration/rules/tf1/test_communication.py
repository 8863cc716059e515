"""Start and end of collective communication."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_noop, migrate_source

RULE = "lifecycle_init"


RANKS = "import tensorflow as tf\nfrom hccl.manage.api import get_rank_size\n"


DATA = """
import tensorflow as tf
def input_fn(context):
    data = tf.data.TFRecordDataset(f)
    return data.shard(context.num_input_pipelines, context.input_pipeline_id)
"""


def test_a_script_that_asks_for_no_ranks_is_left_alone() -> None:
    other = "import tensorflow as tf\ndef main():\n    convert()\nif __name__ == '__main__':\n    main()\n"
    check_noop(RULE, other, path="convert.py", others={"data.py": DATA}, distributed=True)


def test_style_wrapper_and_resources_plugin_write_other_calls() -> None:
    text = RANKS + "def main():\n    get_rank_size()\nmain()\n"
    after = migrate_source(text, RULE, distributed=True, style="wrapper").after.decode()
    assert "    npu_sess, npu_shutdown = init_resource()\n    get_rank_size()\n" in after
    assert "    shutdown_resource(npu_sess, npu_shutdown)\n    close_session(npu_sess)\n" in after
    after = migrate_source(text, RULE, distributed=True, resources="plugin").after.decode()
    assert "    npu_plugin.npu_resource_init()\n    get_rank_size()\n    npu_plugin.npu_resource_shutdown()\n" in after


def test_the_session_that_starts_is_not_reported_again() -> None:
    once = migrate_source(RANKS + "def main():\n    get_rank_size()\nmain()\n", distributed=True).after.decode()
    again = migrate_source(dedent(once), distributed=True)
    assert not [finding for finding in again.findings if finding.status != "advice"]


@pytest.mark.parametrize("initialiser", ["global_variables_initializer", "initializers.global_variables"])
def test_a_file_with_an_initialiser_counts_as_asking_for_ranks(initialiser: str) -> None:
    model = f"""
import tensorflow as tf
def train(loss):
    step = tf.train.AdamOptimizer().minimize(loss)
    sess = tf.Session()
    sess.run(tf.{initialiser}())
    sess.run(step)
"""
    main = "from model import train\ndef main():\n    train(1)\nif __name__ == '__main__':\n    main()\n"
    after = migrate_source(main, RULE, path="main.py", others={"model.py": model}, distributed=True).after.decode()
    assert "init_npu()" in after
