"""The record kernel that this process uses: the native one where it was built, else its twin in Python.

`PENSTOCK_PURE=1` in the environment picks the twin; `KERNEL_NAME` says which one it is.
"""

from __future__ import annotations

from penstock.wire._kernel_py import (
    KERNEL_NAME,
    decode_records,
    encode_records,
)

__all__ = ["KERNEL_NAME", "decode_records", "encode_records"]
