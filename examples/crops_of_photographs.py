"""Write class folders of JPEGs, like a small ImageNet: crops of the photographs in scikit-image, one class for each.

    python examples/crops_of_photographs.py OUT_FOLDER [COUNT]

The same command writes the same bytes.
"""

import sys
from pathlib import Path

import numpy as np
import simplejpeg
from skimage import data

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket", "retina", "hubble_deep_field", "motorcycle")


def load_photographs() -> dict[str, np.ndarray]:
    """Return the photographs that this release of scikit-image has in its wheel; none is downloaded."""
    folder = Path(data.__file__).parent
    included = {path.stem for path in folder.iterdir()}
    return {name: np.ascontiguousarray(getattr(data, name)()[..., :3]) for name in PHOTOGRAPHS if name in included}


def crop(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a random crop: at least half as wide as the shorter side of the image, with a random aspect ratio."""
    height, width = image.shape[:2]
    crop_width = int(generator.integers(min(height, width) // 2, min(height, width)))
    crop_height = min(height, int(crop_width * generator.uniform(0.75, 1.25)))
    y, x = generator.integers(0, height - crop_height + 1), generator.integers(0, width - crop_width + 1)
    return np.ascontiguousarray(image[y : y + crop_height, x : x + crop_width])


def main(out: Path, count: int) -> None:
    sources = load_photographs()
    generator = np.random.default_rng(0)
    for number in range(count):
        name, image = list(sources.items())[number % len(sources)]
        path = out / name / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(simplejpeg.encode_jpeg(crop(image, generator), quality=90, colorspace="RGB"))
    print(f"{out}: {count} images of {len(sources)} classes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000)
