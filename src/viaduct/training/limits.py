"""Explains errors of a full disk, lack of memory, and batches that are too small for a batch norm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from viaduct.atomic_files import NO_ROOM
from viaduct.errors import BadValue, DiskFull, OutOfMemory, is_out_of_memory
from viaduct.recipes import Recipe
from viaduct.training.recipe_code import ONE_VALUE_PER_CHANNEL
from viaduct.training.rundir import RunDir


@contextlib.contextmanager
def explain_limits(run: RunDir, recipe: Recipe) -> Iterator[None]:
    """Turn errors of a full disk, lack of memory, and a batch too small for batch norms into errors with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        retry = "Checkpoints written before are kept. Free some space and run the same command again."
        raise DiskFull(f"{str(run.path)!r} cannot be written: {error.strerror}.", retry) from None
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"the memory does not suffice for batches of {recipe.data.global_batch} images of {recipe.data.size} "
            f"pixels: {str(error).splitlines()[0] if str(error) else 'none is left'}",
            "Try --accumulate 2 (the same batch, computed in two parts), or a smaller --batch or data.size.",
        ) from error
    except ValueError as error:
        if ONE_VALUE_PER_CHANNEL not in str(error):
            raise
        batch, size = recipe.data.global_batch, recipe.data.size
        message = f"a batch norm gets a single value per channel with a batch of {batch} and images of {size} pixels."
        raise BadValue(message, "Use a larger --batch or data.size.") from error
