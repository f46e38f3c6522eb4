"""Formats the directories of a new cluster's nodes with one cluster id, without which they would reject each other."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from penstock.core.metadata.scram_credentials import PEPPER_BYTES, pepper_record
from penstock.local.layout import NodeLayout
from penstock.model.ids import format_uuid
from penstock.runtime.raft.metadata_files import write_bootstrap
from penstock.storage.files import OsFilesystem
from penstock.storage.metadata_files import MetaProperties, read_meta_properties, write_meta_properties
from penstock.wire.messages.metadata_records import UserScramCredentialRecord


def format_nodes(layouts: Sequence[NodeLayout], users: Sequence[UserScramCredentialRecord] = ()) -> str:
    """Format the data directories that are not formatted yet, with the cluster id of the others; returns that id.

    A new cluster's bootstrap records contain `users`.
    """
    filesystem = OsFilesystem()
    known = {layout.node_id: read_meta_properties(filesystem, layout.data) for layout in layouts}
    cluster_id = next((found.cluster_id for found in known.values() if found is not None), None)
    if cluster_id is None:
        # Never one with a leading dash, which tools would take for an option.
        cluster_id = format_uuid(bytes([secrets.randbelow(0xF8)]) + secrets.token_bytes(15))
    for layout in layouts:
        if known[layout.node_id] is None:
            layout.data.mkdir(parents=True, exist_ok=True)
            if users:
                pepper = pepper_record(secrets.token_bytes(PEPPER_BYTES))
                write_bootstrap(filesystem, layout.data, [*users, pepper], time.time_ns() // 1_000_000)
            directory_id = secrets.token_bytes(16)
            write_meta_properties(filesystem, layout.data, MetaProperties(cluster_id, layout.node_id, directory_id))
    return cluster_id
