"""The one part that is compiled, where a compiler is at hand; without one the install goes on and numpy does the work."""

from setuptools import Extension, setup

lerp = Extension(
    "viaduct.data._lerp",
    ["src/viaduct/data/_lerp.c"],
    # No contraction into fused multiply-adds: TensorFlow's results have none of them.
    extra_compile_args=["-O3", "-ffp-contract=off"],
    optional=True,
)
setup(ext_modules=[lerp])
