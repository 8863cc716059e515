"""Training runs: the loop, precision, optimizers, schedules, checkpoints and what people watch.

from viaduct.training import Callback, learning_rate
"""

from viaduct.training.callbacks import Callback, LogRecord
from viaduct.training.schedule import learning_rate

__all__ = ["Callback", "LogRecord", "learning_rate"]
