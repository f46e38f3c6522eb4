"""Formats the directories of a new cluster's nodes with one cluster id, without which they would reject each other."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from penstock.local.layout import NodePlace
from penstock.model.ids import format_uuid
from penstock.runtime.raft.metadata_files import write_bootstrap
from penstock.storage.files import OsFilesystem
from penstock.storage.metadata_files import MetaProperties, read_meta_properties, write_meta_properties
from penstock.wire.messages.metadata_records import UserScramCredentialRecord


def format_places(places: Sequence[NodePlace], users: Sequence[UserScramCredentialRecord] = ()) -> str:
    """Format the data directories that are not formatted, for the cluster of the others; returns its id.

    A new cluster knows `users` from the beginning.
    """
    filesystem = OsFilesystem()
    known = {place.node_id: read_meta_properties(filesystem, place.data) for place in places}
    cluster_id = next((found.cluster_id for found in known.values() if found is not None), None)
    if cluster_id is None:
        # Never one that begins with a dash, which tools would take for an option.
        cluster_id = format_uuid(bytes([secrets.randbelow(0xF8)]) + secrets.token_bytes(15))
    for place in places:
        if known[place.node_id] is None:
            place.data.mkdir(parents=True, exist_ok=True)
            if users:
                write_bootstrap(filesystem, place.data, users, time.time_ns() // 1_000_000)
            directory_id = secrets.token_bytes(16)
            write_meta_properties(filesystem, place.data, MetaProperties(cluster_id, place.node_id, directory_id))
    return cluster_id
