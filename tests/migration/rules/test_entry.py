"""The main guard and the main function of a script."""

from __future__ import annotations

from migration.checking import migrate_source

RULE = "lifecycle_init"


RANKS = "import tensorflow as tf\nfrom hccl.manage.api import get_rank_size\n"


def test_without_functions_communication_starts_before_the_first_use() -> None:
    after = migrate_source(
        RANKS + "batch = 8\nprint(batch // get_rank_size())\n", RULE, distributed=True
    ).after.decode()
    assert after.index("batch = 8") < after.index("init_sess.run(npu_init)") < after.index("print(")
    assert after.endswith("init_sess.run(npu_shutdown)\ninit_sess.close()\n")


def test_a_guard_without_a_main_function_is_the_entry() -> None:
    body = "def go():\n    get_rank_size()\n\nif __name__ == '__main__':\n    go()\n"
    after = migrate_source(RANKS + body, RULE, distributed=True).after.decode()
    assert "    init_sess.run(npu_init)\n    go()\n    init_sess.run(npu_shutdown)\n    init_sess.close()\n" in after


def test_the_argument_of_any_run_is_the_main_function() -> None:
    text = (
        RANKS + "from mylib import app\ndef go(_):\n    get_rank_size()\nif __name__ == '__main__':\n    app.run(go)\n"
    )
    after = migrate_source(text, RULE, distributed=True).after.decode()
    assert "def go(_):\n    init_sess, npu_init = init_npu()\n" in after
    assert after.endswith("    app.run(go)\n")
