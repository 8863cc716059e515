"""Rules of the migration: one folder per framework, one file per rule; a file in a folder is registered by that."""
