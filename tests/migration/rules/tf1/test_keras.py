"""Names and models of Keras in a file."""

from __future__ import annotations

from migration.checking import migrate_source

RULE = "keras_session"


HEAD = "import tensorflow as tf\n"


def test_a_subclass_of_model_counts() -> None:
    body = "class Net(tf.keras.Model):\n    pass\nnet = Net()\nnet.fit(x, y)\n"
    assert "set_session" in migrate_source(HEAD + body, RULE).after.decode()


def test_standalone_keras_and_no_tensorflow() -> None:
    body = "from keras.models import Sequential\nfrom keras import backend as K\nm = Sequential()\nm.fit(x, y)\n"
    after = migrate_source(body, RULE).after.decode()
    assert "import tensorflow as tf\n" in after
    assert "\nK.set_session(npu_keras_sess)\nm = Sequential()\n" in after
    plain = migrate_source(body.replace("from keras import backend as K\n", ""), RULE).after.decode()
    assert "from keras.backend import set_session\n" in plain
    assert "\nset_session(npu_keras_sess)\n" in plain


BUILT_BY_METHOD = """import tensorflow as tf

class Net:
    def __init__(self):
        self.model = self.build()

    def build(self):
        m = tf.keras.Sequential([tf.keras.layers.Dense(2)])
        return m

    def train(self, x, y):
        self.model.fit(x, y)

def main():
    net = Net()
    net.train(1, 2)

if __name__ == "__main__":
    main()
"""


def test_a_model_that_a_method_builds_counts() -> None:
    text = migrate_source(BUILT_BY_METHOD, "keras_session").after.decode()
    assert text.index("set_session(npu_keras_sess)") < text.index("net = Net()")
