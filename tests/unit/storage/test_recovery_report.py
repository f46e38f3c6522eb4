"""What a recovery reports that it removed."""

from __future__ import annotations

from log_support import LogMaker, append


def test_the_segments_after_damage_are_counted_too(logs: LogMaker) -> None:
    log = logs.open()
    while log.segment_count < 4:
        append(log, b"x" * 200)
    log.close(clean=False)
    paths = [logs.directory / name for name in logs.files(".log")]
    total = sum(path.stat().st_size for path in paths)
    data = bytearray(paths[1].read_bytes())
    data[-1] ^= 1
    paths[1].write_bytes(data)
    log = logs.open(recovery_point=0)
    left = sum((logs.directory / name).stat().st_size for name in logs.files(".log"))
    assert 0 < left < total
    assert (log.recovery.bytes_truncated, log.recovery.segments_removed) == (total - left, 2)
    log.close()
