"""The parts that are compiled, where a compiler is at hand; without one the install goes on and wheels do the work.

_lerp     resizing; otherwise numpy
_region   decoding only what a crop needs; wants libjpeg-turbo's headers (Debian: libjpeg62-turbo-dev, Fedora:
          libjpeg-turbo-devel, Homebrew: jpeg-turbo); otherwise simplejpeg decodes the whole picture

With VIADUCT_EXTENSIONS=required an extension that cannot be compiled is an error: `make wheel` sets it.

Both use Python's stable ABI, so that one wheel serves Python 3.10 and later. The buffer protocol became part of it in
3.11; in 3.10 it has the same functions and the same Py_buffer, but the headers hide them. So 3.11 or later compiles an
extension that 3.10 loads, too (tests/test_wheel.py), and 3.10 itself compiles one for 3.10 alone.
"""

import os
import sys
import sysconfig

from setuptools import Extension, setup

# No contraction into fused multiply-adds: TensorFlow's results have none of them.
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
