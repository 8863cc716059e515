"""ResNet-18 v1 on ImageNet-1k with the recipe of ResNet-50: the small one to try a machine with.

No accuracy is published for this network with this recipe.

    viaduct train resnet18_imagenet --data records/
"""

from viaduct.recipes import replace
from viaduct.recipes.resnet50_imagenet import recipe as resnet50

recipe = replace(resnet50, model="resnet18_v1", expects=None)
