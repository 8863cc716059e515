#!/usr/bin/env bash
# From a folder of images to a trained network: build, check, index and show the records, train, evaluate. It makes the
# images itself. Needs the extras train and dev.
#
#     examples/imagenet_from_folder.sh [FOLDER] [COUNT]
set -euo pipefail
work=${1:-imagenet_from_folder}
count=${2:-2000} # number of images
here=$(cd "$(dirname "$0")" && pwd)

python "$here/crops_of_photographs.py" "$work/photos" "$count"
viaduct data build "$work/photos" --out "$work/records"
viaduct data check "$work/records" --deep
viaduct data index "$work/records" --dali
viaduct data show "$work/records" --preprocess resnext --out "$work/sheet.png"
viaduct train resnet18_imagenet --data "$work/records" --steps 20 --batch 32 --log-every 5 --run "$work/run"
viaduct evaluate "$work/run"
