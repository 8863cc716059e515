from dataclasses import dataclass


@dataclass
class Options:
    epochs: int = 2
    batch: int = 10
    width: int = 8
    classes: int = 4
    rate: float = 0.01
    smoothing: float = 0.1
    accumulate: int = 2
