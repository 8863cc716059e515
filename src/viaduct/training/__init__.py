"""Training runs: the loop, precision, optimizers, schedules, checkpoints, logs, reports and the live page.

    from viaduct.training import Callback, learning_rate

A public name is imported when it is first used, because importing `Callback` imports torch, and `learning_rate` needs
no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viaduct.training.callbacks import Callback, LogRecord
    from viaduct.training.schedule import learning_rate

__all__ = ["Callback", "LogRecord", "learning_rate"]

MODULE_BY_NAME = {"Callback": "callbacks", "LogRecord": "callbacks", "learning_rate": "schedule"}


def __getattr__(name: str) -> Any:
    if name not in MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULE_BY_NAME[name]}"), name)
