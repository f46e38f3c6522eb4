"""The record kernel that this process uses: the native one where it was built, else its twin in Python.

`PENSTOCK_PURE=1` in the environment picks the twin; `KERNEL_NAME` is the one in use. What the functions promise
is written in the twin.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("PENSTOCK_PURE") == "1":
    from penstock.wire import _kernel_py as _chosen
else:
    try:
        from penstock.wire import _kernel as _chosen
    except ImportError:
        from penstock.wire import _kernel_py as _chosen

KERNEL_NAME = _chosen.KERNEL_NAME
OffsetMap = _chosen.OffsetMap
columns = _chosen.columns
decode_records = _chosen.decode_records
encode_records = _chosen.encode_records
filter_records = _chosen.filter_records
murmur2 = _chosen.murmur2
scan_batches = _chosen.scan_batches
validate_records = _chosen.validate_records
walk_keys = _chosen.walk_keys
