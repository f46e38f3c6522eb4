"""Builds the record kernel and the threads for syncs. Both are optional: without a C compiler Python serves."""

from setuptools import Extension, setup

kernel = Extension(
    "penstock.wire._kernel",
    ["native/_kernel.pyx"],
    depends=["native/walk.pxi", "native/offset_map.pxi", "native/columns.pxi"],
    extra_compile_args=["-O3", "-g0"],
    optional=True,
)

syncs = Extension("penstock.storage._syncs", ["native/_syncs.pyx"], extra_compile_args=["-O2", "-g0"], optional=True)

setup(ext_modules=[kernel, syncs])
