"""Iterator whose items are prepared ahead by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")


def prepare_ahead(
    prepare: Callable[[Item], Prepared], items: Iterable[Item], *, workers: int, ahead: int
) -> Generator[Prepared, None, None]:
    """Yield `map(prepare, items)`; threads prepare up to `ahead` results in advance, at least one for each of them.

    Without threads (`workers` is 0) each result is prepared when it is requested. The threads end with the iterator.
    """
    if workers == 0:
        yield from map(prepare, items)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="viaduct-data")
    pending: deque[Future[Prepared]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(prepare, item))
            if len(pending) > max(ahead, workers):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
