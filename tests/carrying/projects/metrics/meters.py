from collections import deque

import torch


class Meter:
    """A mean over all values, or over the last few."""

    def __init__(self, window=0):
        self.sum, self.count = 0.0, 0
        self.last = deque(maxlen=window) if window else None

    def update(self, value, count=1):
        self.sum += value * count
        self.count += count
        if self.last is not None:
            self.last.append(value)

    @property
    def mean(self):
        if self.last is not None:
            return sum(self.last) / len(self.last)
        return self.sum / max(1, self.count)


class Confusion:
    def __init__(self, classes):
        self.matrix = torch.zeros(classes, classes, dtype=torch.int64)

    def update(self, guessed, true):
        for a, b in zip(true.tolist(), guessed.tolist()):
            self.matrix[a, b] += 1

    def recall(self):
        rows = self.matrix.sum(1).clamp(min=1)
        return (self.matrix.diagonal() / rows).tolist()
