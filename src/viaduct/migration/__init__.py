"""Migrate a training script to another accelerator by rewriting its text.

Nothing of the user's project is imported or run, and neither torch nor TensorFlow is imported.
"""
