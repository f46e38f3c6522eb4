"""Builds the record kernel. It is optional: without a C compiler the pure-Python twin serves."""

from setuptools import Extension, setup

kernel = Extension(
    "penstock.wire._kernel",
    ["native/_kernel.pyx"],
    depends=["native/walk.pxi", "native/offset_map.pxi", "native/columns.pxi"],
    extra_compile_args=["-O3", "-g0"],
    optional=True,
)

setup(ext_modules=[kernel])
