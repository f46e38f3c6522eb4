# The native kernel has its twin's functions, with the same types.
from penstock.wire._kernel_py import KERNEL_NAME as KERNEL_NAME
from penstock.wire._kernel_py import OffsetMap as OffsetMap
from penstock.wire._kernel_py import columns as columns
from penstock.wire._kernel_py import decode_records as decode_records
from penstock.wire._kernel_py import encode_records as encode_records
from penstock.wire._kernel_py import filter_records as filter_records
from penstock.wire._kernel_py import murmur2 as murmur2
from penstock.wire._kernel_py import scan_batches as scan_batches
from penstock.wire._kernel_py import validate_records as validate_records
from penstock.wire._kernel_py import walk_keys as walk_keys
