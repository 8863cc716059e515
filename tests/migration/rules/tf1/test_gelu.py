from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HEAD = "import tensorflow as tf\n"
GELU = [
    "return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))))",
    "return x * 0.5 * (1.0 + tf.math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))",
    "return tf.multiply(x, 0.5 * (1.0 + tf.tanh(0.7978845608 * (x + 0.044715 * x ** 3))))",
]


@pytest.mark.parametrize("line", GELU)
def test_gelu_is_recognised_by_its_formula(line: str) -> None:
    source = f"import math\nimport numpy as np\n{HEAD}\n\ndef activation(x):\n    {line}\n"
    text = migrate_source(source, "gelu").after.decode()
    assert "def activation(x):\n    return npu_unary_ops.gelu(x)\n" in text


@pytest.mark.parametrize(
    "function",
    [
        "def gelu(x):\n    return tf.tanh(x)\n",
        "def gelu(x, other):\n    y = 1 + tf.tanh(0.7978845608 * (x + 0.044715 * x ** 3))\n"
        "    if other:\n        y = tf.tanh(x)\n    return 0.5 * x * y\n",
        "def gelu(x):\n    y = 1 + tf.tanh(0.7978845608 * (x + 0.044715 * x ** 3))\n"
        "    y += 1\n    return 0.5 * x * y\n",
        "def gelu(x, a):\n    return a * 0.5 * x * (1 + tf.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))\n",
        "def gelu(x):\n    return 0.5 * x * (1 + mine.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))\n",
        "def gelu(x):\n    return 0.5 * x * (1 + tf.tanh(0.8 * (x + 0.044715 * x ** 3)))\n",
    ],
)
def test_other_formulas_are_left_alone(function: str) -> None:
    check_noop("gelu", HEAD + function)


def test_the_exact_gelu_gets_advice() -> None:
    source = HEAD + "class A:\n    def gelu(self, x):\n        return x * 0.5 * (1.0 + tf.erf(x / tf.sqrt(2.0)))\n"
    check_says("gelu", source, "advice", "erf")


def test_docstring_comments_and_shared_locals_of_gelu_stay() -> None:
    check_rewrite(
        "gelu",
        "import numpy as np\n"
        + HEAD
        + '''
def gelu(x):
    """Smooth."""
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))
    tf.summary.histogram("inner", inner)
    return 0.5 * x * (1 + tf.tanh(inner))  # paper
''',
        "import numpy as np\n"
        + HEAD
        + "from npu_bridge.estimator.npu_unary_ops import npu_unary_ops\n"
        + '''
def gelu(x):
    """Smooth."""
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))
    tf.summary.histogram("inner", inner)
    return npu_unary_ops.gelu(x)  # paper
''',
    )
