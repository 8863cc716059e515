"""horovod.keras, the same functions as horovod.tensorflow.keras."""

from ..tensorflow.keras import *  # noqa: F403
from . import callbacks  # noqa: F401
