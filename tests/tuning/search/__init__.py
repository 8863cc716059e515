"""Search methods."""
