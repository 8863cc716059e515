"""viaduct carries the training of image classifiers onto the accelerator you were given."""

__version__ = "0.1.0"
