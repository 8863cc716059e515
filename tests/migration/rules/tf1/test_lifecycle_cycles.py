"""Restarts of communication after the calls of an Estimator."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, migrate_source

RULE = "lifecycle_cycles"
HEAD = "import tensorflow as tf\nfrom hccl.manage.api import get_rank_id\n"
ESTIMATOR = "    est = tf.estimator.Estimator(model_fn)\n"
AGAIN = """\
{0}init_sess, npu_init = init_npu()
{0}npu_shutdown = npu_ops.shutdown_system()
{0}init_sess.run(npu_shutdown)
"""


@pytest.mark.parametrize(
    "body",
    [
        f"def f():\n{ESTIMATOR}    est.train(input_fn, steps=get_rank_id())\n",  # once: nothing follows
        "def f(trainer):\n    for i in range(3):\n        trainer.train(get_rank_id())\n",
        "def f():\n    tf.estimator.train_and_evaluate(e, t, v)\n    get_rank_id()\n",
    ],
)
def test_a_single_call_or_another_object_is_left_alone(body: str) -> None:
    check_noop(RULE, HEAD + body, distributed=True)


def test_a_project_that_asks_for_no_ranks_is_left_alone() -> None:
    text = f"import tensorflow as tf\ndef f():\n{ESTIMATOR}    for i in x:\n        est.train(g)\n"
    check_noop(RULE, text, distributed=True)


def test_communication_restarts_after_each_call_of_a_loop_and_ends() -> None:
    body = f"""\
def f():
{ESTIMATOR}    for i in range(get_rank_id()):
        if i:
            est.train(input_fn)  # round
        result = est.evaluate(input_fn)
        if result > 3:
            break
    return result
"""
    after = migrate_source(HEAD + body, RULE, distributed=True).after.decode()
    assert f"            est.train(input_fn)  # round\n{AGAIN.format(' ' * 12)}" in after
    assert f"{AGAIN.format(' ' * 8)}        init_sess.run(npu_init)\n        if result > 3:\n" in after
    assert f"            break\n{AGAIN.format('    ')}    init_sess.close()\n    return result\n" in after
    assert after.count("def init_npu") == 1


def test_consecutive_calls_restart_communication_between_them() -> None:
    body = f"def f():\n{ESTIMATOR}    est.train(a, steps=get_rank_id())\n    print(est.evaluate(a))\n"
    after = migrate_source(HEAD + body, RULE, distributed=True).after.decode()
    assert after.count("init_sess.run(npu_init)") == 1


def test_a_call_inside_an_expression_needs_manual_review() -> None:
    body = f"def f():\n{ESTIMATOR}    while est.evaluate(a)['x'] < get_rank_id():\n        pass\n"
    result = migrate_source(HEAD + body, RULE, distributed=True)
    assert any(finding.status == "manual" and "again" in finding.message for finding in result.findings)


def test_the_loop_may_be_in_another_file_than_main() -> None:
    loop = f"import tensorflow as tf\ndef run(n):\n{ESTIMATOR}    for i in range(n):\n        est.train(input_fn)\n"
    main = (
        HEAD + "import loop\ndef main(_):\n    loop.run(get_rank_id())\nif __name__ == '__main__':\n    tf.app.run()\n"
    )
    there = migrate_source(loop, path="loop.py", others={"main.py": main}, distributed=True).after.decode()
    assert "def init_npu():" in there
    assert "        init_sess.run(npu_init)\n" in there
    here = migrate_source(main, path="main.py", others={"loop.py": loop}, distributed=True).after.decode()
    assert "    init_sess.run(npu_init)\n    loop.run(get_rank_id())\n    init_sess.close()\n" in here


def test_resources_plugin_and_style_wrapper_write_other_calls() -> None:
    body = f"def f():\n{ESTIMATOR}    for i in range(get_rank_id()):\n        est.train(g)\n"
    plugin = migrate_source(HEAD + body, RULE, distributed=True, resources="plugin").after.decode()
    assert plugin.endswith("        npu_plugin.npu_resource_shutdown()\n        npu_plugin.npu_resource_init()\n")
    helper = migrate_source(HEAD + body, RULE, distributed=True, style="wrapper").after.decode()
    assert helper.endswith("        est.train(g)\n        npu_sess, npu_shutdown = init_resource()\n")
