"""Enough of the adapter's surface to run a migrated script on a CPU with one rank; nothing here is the adapter's."""
