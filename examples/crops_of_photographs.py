"""Class folders of JPEG crops out of the photographs that scikit-image brings along: a small ImageNet to try with.

    python examples/crops_of_photographs.py OUT_FOLDER [COUNT]

One class per photograph. The same call makes the same bytes.
"""

import sys
from pathlib import Path

import numpy as np
import simplejpeg
from skimage import data

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket", "retina", "hubble_deep_field", "motorcycle")


def photographs() -> dict[str, np.ndarray]:
    """Those that this release of scikit-image carries in its wheel; none is downloaded."""
    folder = Path(data.__file__).parent
    there = {path.stem for path in folder.iterdir()}
    return {name: np.ascontiguousarray(getattr(data, name)()[..., :3]) for name in PHOTOGRAPHS if name in there}


def crop(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    height, width = image.shape[:2]
    side = int(generator.integers(min(height, width) // 2, min(height, width)))
    tall = min(height, int(side * generator.uniform(0.75, 1.25)))
    y, x = generator.integers(0, height - tall + 1), generator.integers(0, width - side + 1)
    return np.ascontiguousarray(image[y : y + tall, x : x + side])


def main(out: Path, count: int) -> None:
    sources = photographs()
    generator = np.random.default_rng(0)
    for number in range(count):
        name, image = list(sources.items())[number % len(sources)]
        path = out / name / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(simplejpeg.encode_jpeg(crop(image, generator), quality=90, colorspace="RGB"))
    print(f"{out}: {count} images of {len(sources)} classes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000)
