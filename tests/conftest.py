"""Being here puts `tests/` on the path, so that any test may say `from reporting.browser import open_page`."""

import os
import signal

# As the command line does (cli.py): before torch is imported, so that a busy machine does not slow the suite tenfold.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# `nohup make test &` starts the suite with these ignored, and every process that a test starts would inherit it. A
# handler that does nothing keeps the suite as deaf and is not inherited.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda number, frame: None)
