"""Every crash, error and stall at every operation on the disk, in small scripted scenarios; see docs/enumeration.md."""
