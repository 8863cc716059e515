"""Training runs: the loop, precision, optimizers, schedules, checkpoints and what people watch.

from viaduct.training import Callback, learning_rate

What is public is imported when first asked for: `learning_rate` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viaduct.training.callbacks import Callback, LogRecord
    from viaduct.training.schedule import learning_rate

__all__ = ["Callback", "LogRecord", "learning_rate"]

PLACES = {"Callback": "callbacks", "LogRecord": "callbacks", "learning_rate": "schedule"}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
