"""The parts that are compiled, where a compiler is at hand; without one the install goes on and wheels do the work.

_lerp     resizing; otherwise numpy
_region   decoding only what a crop needs; wants libjpeg-turbo's headers (Debian: libjpeg62-turbo-dev, Fedora:
          libjpeg-turbo-devel, Homebrew: jpeg-turbo); otherwise simplejpeg decodes the whole picture
"""

from setuptools import Extension, setup

# No contraction into fused multiply-adds: TensorFlow's results have none of them.
FLAGS = ["-O3", "-ffp-contract=off"]
FOLDER = "src/viaduct/data"


def extension(name: str, *libraries: str) -> Extension:
    return Extension(
        f"viaduct.data.{name}",
        [f"{FOLDER}/{name}.c"],
        depends=[f"{FOLDER}/{header}.h" for header in ("_sample", "_colour", "_crop", "_record", "_recolour")],
        extra_compile_args=FLAGS,
        libraries=list(libraries),
        optional=True,
    )


setup(ext_modules=[extension("_lerp"), extension("_region", "jpeg")])
