"""ResNet-101 v1 on ImageNet-1k with the recipe of ResNet-50 (TensorFlow's official models, r1).

Source: `--resnet_size=101` of the official script. Ninety epochs of SGD, learning rate 0.128 for a batch of 256. No
accuracy is published for this network with this recipe.

    viaduct train resnet101_imagenet --data records/
"""

from viaduct.recipes import replace
from viaduct.recipes.resnet50_imagenet import recipe as resnet50

recipe = replace(resnet50, model="resnet101_v1", expects=None)
