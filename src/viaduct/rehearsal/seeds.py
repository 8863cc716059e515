"""Seeds of Python, NumPy and PyTorch, so that rehearsals with the same --seed draw the same random numbers.

They are set before the script's first line, and in processes that the script starts when these import torch. Seeds that
the script sets itself replace them. The TensorFlow stage seeds its graphs itself (`tf1_stage/seeding.py`).
"""

from __future__ import annotations

import random


def plant(seed: int | None) -> None:
    """Seed Python, NumPy and torch; without a seed do nothing."""
    if seed is None:
        return
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
