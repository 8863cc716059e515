"""Worker process: measures pairs from a connection and answers each with measures or a refusal.

measuring.py starts it with the connection's descriptor as its first argument. It imports NumPy and no more, so it is
ready in a fifth of a second, and ends when the other side closes the connection.
"""

from __future__ import annotations

import sys
import traceback
from multiprocessing.connection import Connection

from viaduct.comparison.measuring import Bug, Job, measure_pair


def serve(connection: Connection) -> None:
    """Answer jobs until the connection closes."""
    while True:
        try:
            jobs: list[Job] = connection.recv()
        except EOFError:
            return
        for job in jobs:
            try:
                connection.send((job.number, measure_pair(job.pair, job.options)))
            except BrokenPipeError:
                return
            except Exception:
                connection.send((job.number, Bug(traceback.format_exc())))


def main() -> None:
    serve(Connection(int(sys.argv[1])))
