"""Pictures: where they come from, in which order they are seen, and how they become batches.

source.py      what a recipe says about its data, and the arrays it loads       (no torch)
shapes.py      the built-in set, drawn from silhouettes.py                      (no torch)
cifar10.py     CIFAR-10 in its binary version                                   (no torch)
order.py       sample order and random draws, pure functions of the position   (no torch)
augment.py     crop, mirror, normalise, cut out, resize, on whole batches
storage.py     where the pictures of a split lie: on the device or in host memory
prefetch.py    threads that prepare batches ahead, in order
batches.py     batches of a split on the device: what the training loop iterates over
"""

from viaduct.data.cifar10 import Cifar10
from viaduct.data.shapes import Shapes
from viaduct.data.source import Arrays, Images, ImageSet, Split

__all__ = ["Arrays", "Cifar10", "ImageSet", "Images", "Shapes", "Split"]
