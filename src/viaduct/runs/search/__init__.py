"""Hyper-parameter search over a recipe: every trial is an ordinary run, the study is a folder with an SQLite file."""
