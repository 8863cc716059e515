"""Being here puts `tests/` on the path, so that any test may say `from reporting.browser import open_page`."""
