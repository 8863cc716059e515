"""Being here puts `tests/` on the path, so that any test may say `from reporting.browser import open_page`."""

import os

# As the command line does (cli.py): before torch is imported, so that a busy machine does not slow the suite tenfold.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
