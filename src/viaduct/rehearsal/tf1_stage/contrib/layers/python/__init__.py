"""Internal paths that scripts import from."""
