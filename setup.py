"""Builds the record kernel. It is optional: without a C compiler the pure-Python twin serves."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("penstock.wire._kernel", ["native/_kernel.pyx"], optional=True, extra_compile_args=["-O3"])])
