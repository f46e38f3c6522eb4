"""The logs on this broker's disks: directories, open files, syncs, retention, compaction."""
