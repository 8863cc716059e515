"""Synthetic data for missing datasets (`--fake-data`).

`tf_files.py` replaces missing TFRecord files if the script declares their features; `keras_sets.py`,
`torchvision_sets.py` and TensorFlow 1's MNIST reader (`input_data.py`) replace datasets of a known image size.
"""

import sys


def print_note(text: str) -> None:
    print(f"viaduct rehearse: {text}", file=sys.stderr, flush=True)
