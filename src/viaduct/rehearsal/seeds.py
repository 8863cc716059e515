"""The same random numbers in every rehearsal with the same --seed: Python's, NumPy's and PyTorch's.

They are planted before the script's first line, and in every process that the script starts. A script that sets seeds
of its own has the last word. The TensorFlow stage plants its own, by graph.
"""

from __future__ import annotations

import random


def plant(seed: int | None) -> None:
    """Seed Python, NumPy and the framework."""
    if seed is None:
        return
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
