"""What `penstock doctor` reports about the brokers' data directories."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cli.doctor.command import NOTE, OK, WRONG, Finding
from penstock.cli.options import Connection
from penstock.client.disks import DiskView, duration

FULL_PERCENT = 90
HOURS_MS = 12 * 3_600_000


def check_disks(connection: Connection) -> list[Finding]:
    """Findings about the disks of all brokers that answer; none if the client cannot ask them."""
    from penstock.cli.cluster.disks import read_disks
    from penstock.cli.cluster.view import read_brokers
    from penstock.cli.failures import CommandFailure
    from penstock.cli.wire_client import direct_client

    with direct_client(connection) as client:
        if client is None:
            return []
        try:
            brokers = read_brokers(client)[2].values()
        except CommandFailure:
            return []
        return judge_disks(read_disks(client, [broker for broker in brokers if not broker.fenced]))


def judge_disks(disks: Iterable[DiskView]) -> list[Finding]:
    """What is wrong with these disks, or that nothing is."""
    findings: list[Finding] = []
    count = 0
    for disk in disks:
        count += 1
        name = f"{disk.path} of broker {disk.broker}"
        used = disk.used_percent or 0
        if not disk.is_online:
            why = "its replicas are offline there, and their partitions have fewer copies"
            findings.append(Finding(WRONG, f"{name} failed", why, "mend the disk, and start the broker again"))
        elif used > FULL_PERCENT:
            why = f"{used:.0f} % are used; brokers refuse writes above penstock.disk.full.percent"
            advice = "lower retention, delete topics, or move replicas with `penstock cluster drain-disk`"
            findings.append(Finding(WRONG, f"{name} is nearly full", why, advice))
        elif disk.is_full_soon:
            assert disk.full_in_ms is not None
            level = WRONG if disk.full_in_ms < HOURS_MS else NOTE
            what = f"{name} is full in {duration(disk.full_in_ms)} at this rate"
            advice = "lower retention, add a disk or a broker, or keep old segments in object storage"
            findings.append(Finding(level, what, "brokers refuse writes on a full disk", advice))
    if not findings and count:
        findings.append(Finding(OK, f"{count} data director{'y' if count == 1 else 'ies'} with space for more"))
    return findings
