#!/usr/bin/env bash
# From a folder of images to a trained network, with every step a user would take. Needs the dev extra.
#
#     examples/imagenet_from_folder.sh [FOLDER] [PICTURES]
set -euo pipefail
work=${1:-imagenet_from_folder}
images=${2:-2000}
here=$(cd "$(dirname "$0")" && pwd)

python "$here/crops_of_photographs.py" "$work/photos" "$images"
viaduct data build "$work/photos" --out "$work/records"
viaduct data check "$work/records" --deep
viaduct data index "$work/records" --dali
viaduct data show "$work/records" --preprocess resnext --out "$work/sheet.png"
viaduct train resnet18_imagenet --data "$work/records" --steps 20 --batch 32 --log-every 5 --run "$work/run"
viaduct evaluate "$work/run"
