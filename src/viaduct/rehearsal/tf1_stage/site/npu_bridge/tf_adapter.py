"""Loader of the adapter's library; here empty."""
