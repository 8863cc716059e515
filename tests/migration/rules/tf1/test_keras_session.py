"""The session for Keras, set before its first layer in the started script."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_noop, check_says, migrate_source

RULE = "keras_session"
HEAD = "import tensorflow as tf\n"
MODEL = "model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\nmodel.compile('sgd', 'mse')\n"


@pytest.mark.parametrize(
    "body",
    [
        MODEL,  # built, never run by Keras
        "from sklearn.svm import SVC\nmodel = SVC()\nmodel.fit(x, y)\n",
        "tf.keras.backend.set_session(tf.Session())\n" + MODEL + "model.fit(x, y)\n",
        "tf.enable_eager_execution()\n" + MODEL + "model.fit(x, y)\n",
        MODEL.replace("'mse'", "'mse', run_eagerly=True") + "model.fit(x, y)\n",
        MODEL + "e = tf.keras.estimator.model_to_estimator(model)\n",
        "from npu_bridge.npu_init import *\ns = set_keras_session_npu_config()\n" + MODEL + "model.fit(x, y)\n",
        "def model_fn(f):\n    net = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n    return net(f)\n",
    ],
)
def test_no_session_where_keras_needs_none(body: str) -> None:
    check_noop(RULE, HEAD + body)


def test_a_session_set_in_another_file_is_enough() -> None:
    other = "import tensorflow as tf\ndef setup():\n    tf.keras.backend.set_session(tf.Session())\n"
    check_noop(RULE, HEAD + "import setup\n" + MODEL + "model.fit(x, y)\n", others={"setup.py": other})


def test_a_session_of_another_program_does_not_count() -> None:
    other = "import tensorflow as tf\ntf.keras.backend.set_session(tf.Session())\n"
    after = migrate_source(HEAD + MODEL + "model.fit(x, y)\n", RULE, others={"other.py": other}).after
    assert b"tf.keras.backend.set_session(npu_keras_sess)" in after


def test_a_file_that_only_defines_is_no_script() -> None:
    body = "def train(x):\n    model = tf.keras.Sequential()\n    model.fit(x)\n"
    check_says(RULE, HEAD + body, "manual", "--entry")


def test_the_entry_script_gets_the_session_of_all() -> None:
    library = HEAD + "def train(x):\n    model = tf.keras.Sequential()\n    model.fit(x)\n"
    script = "import library\nimport tensorflow as tf\nif __name__ == '__main__':\n    library.train(3)\n"
    others = {"library.py": library}
    after = migrate_source(script, RULE, path="script.py", others=others, entry="script.py").after.decode()
    assert (
        "    tf.keras.backend.set_session(npu_keras_sess)\n    library.train(3)\n    npu_keras_sess.close()\n" in after
    )
    check_noop(RULE, library, path="library.py", others={"script.py": script}, entry="script.py")


def test_a_layer_at_module_level_puts_the_session_there_and_the_close_in_main() -> None:
    body = """
        import tensorflow as tf
        from absl import app
        base = tf.keras.applications.ResNet50(weights=None)
        def main(_):
            base.fit(x, y)
            return base.evaluate(x, y)
        if __name__ == '__main__':
            app.run(main)
        """
    after = migrate_source(dedent(body), RULE).after.decode()
    assert after.index("set_session(npu_keras_sess)") < after.index("base = ")
    assert "    result = base.evaluate(x, y)\n    npu_keras_sess.close()\n    return result\n" in after
    assert after.endswith("    app.run(main)\n")


def test_layers_in_functions_put_the_session_in_main() -> None:
    body = """
        import tensorflow as tf
        def build():
          return tf.keras.Sequential()
        def main():
          '''Train it.'''
          model = build()
          model.fit(x, y)
        main()
        """
    after = migrate_source(dedent(body), RULE).after.decode()
    assert "  '''Train it.'''\n  config = tf.ConfigProto()\n  custom_op = " in after
    assert "  model.fit(x, y)\n  npu_keras_sess.close()\nmain()\n" in after


def test_a_loop_at_module_level_is_not_entered() -> None:
    body = "for n in range(3):\n    model = tf.keras.Sequential()\n    model.fit(x, y)\n"
    after = migrate_source(HEAD + body, RULE).after.decode()
    assert after.count("NpuOptimizer") == 1
    assert after.endswith(f"set_session(npu_keras_sess)\n{body}npu_keras_sess.close()\n")


def test_a_module_that_exits_early_closes_by_atexit() -> None:
    body = "import sys\nmodel = tf.keras.Sequential()\nmodel.fit(x, y)\nsys.exit(0)\n"
    after = migrate_source(HEAD + body, RULE).after.decode()
    assert "atexit.register(lambda: npu_keras_sess.close())" in after
    assert after.endswith("sys.exit(0)\n")


def test_wrapper_style_calls_the_vendors_helper() -> None:
    after = migrate_source(HEAD + MODEL + "model.fit(x, y)\n", RULE, style="wrapper").after.decode()
    assert "\nnpu_keras_sess = set_keras_session_npu_config()\nmodel = " in after
    assert after.endswith("model.fit(x, y)\nclose_session(npu_keras_sess)\n")


def test_session_rules_find_nothing_to_add() -> None:
    result = migrate_source(HEAD + MODEL + "model.fit(x, y)\n")
    assert {finding.rule for finding in result.findings if finding.status != "advice"} == {"tf1.keras_session"}


def test_the_session_is_set_before_get_session() -> None:
    body = "from tensorflow.keras import backend as K\nsess = K.get_session()\nsess.run(a)\n"
    after = migrate_source(HEAD + body, RULE).after.decode()
    assert after.index("K.set_session(npu_keras_sess)") < after.index("sess = K.get_session()")


def test_compat_v1_is_preferred() -> None:
    head = "import tensorflow as tf2\nimport tensorflow.compat.v1 as tf\n"
    after = migrate_source(head + MODEL + "model.fit(x, y)\n", RULE).after.decode()
    assert "\nconfig = tf.ConfigProto()\n" in after


MODELS = "import tensorflow as tf\ndef build(n):\n    return tf.keras.Sequential([tf.keras.layers.Dense(n)])\n"
SCRIPT = "import tensorflow as tf\nfrom models import build\nm = build(3)\nm.compile(loss='mse')\nm.fit(x, y)\n"


def test_a_model_of_another_file_gets_its_session_before_it_is_made() -> None:
    text = migrate_source(SCRIPT, "keras_session", others={"models.py": MODELS}).after.decode()
    assert text.index("tf.keras.backend.set_session(npu_keras_sess)") < text.index("m = build(3)")


@pytest.mark.parametrize("style", ["explicit", "wrapper"])
def test_the_session_is_set_in_the_keras_that_the_other_file_uses(style: str) -> None:
    models = "from keras.models import Sequential\ndef build(n):\n    return Sequential([n])\n"
    text = migrate_source(SCRIPT, "keras_session", others={"models.py": models}, style=style).after.decode()
    assert "from keras.backend import set_session" in text
    assert text.index("\nset_session(npu_keras_sess)") < text.index("m = build(3)")


def test_an_object_used_like_a_keras_model_is_reported() -> None:
    check_says("keras_session", SCRIPT, "manual", "m is compiled and run like a Keras model")
    check_noop("keras_session", "import tensorflow as tf\nimport re\nre.compile('x')\nm.fit(x, y)\n")
