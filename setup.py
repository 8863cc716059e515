"""C extensions, compiled if a compiler is present; the installation continues without them.

_lerp     resizing; without it numpy is used
_region   decoding only the region of a crop; needs libjpeg-turbo's headers (Debian: libjpeg62-turbo-dev, Fedora:
          libjpeg-turbo-devel, Homebrew: jpeg-turbo); without it simplejpeg decodes the whole image

With VIADUCT_EXTENSIONS=required, which `make wheel` sets, an extension that cannot be compiled is an error.

Both use Python's stable ABI, so that one wheel serves Python 3.10 and later. The buffer protocol became part of the
stable ABI in 3.11; 3.10 has the same functions and the same Py_buffer, but its headers hide them. An extension compiled
with 3.11 or later also loads in 3.10 (tests/test_wheel.py); one compiled with 3.10 is for 3.10 only.
"""

import os
import sys
import sysconfig

from setuptools import Extension, setup

# No fused multiply-adds, because TensorFlow's results are computed without them.
FLAGS = ["-O3", "-ffp-contract=off"]
FOLDER = "src/viaduct/data"
STABLE_ABI = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")


def extension(name: str, *libraries: str) -> Extension:
    return Extension(
        f"viaduct.data.{name}",
        [f"{FOLDER}/{name}.c"],
        depends=[f"{FOLDER}/{header}.h" for header in ("_sample", "_colour", "_crop", "_record", "_recolour")],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else [],
        py_limited_api=STABLE_ABI,
        extra_compile_args=FLAGS,
        libraries=list(libraries),
        optional=os.environ.get("VIADUCT_EXTENSIONS") != "required",
    )


setup(
    ext_modules=[extension("_lerp"), extension("_region", "jpeg")],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if STABLE_ABI else {},
)
