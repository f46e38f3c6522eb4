"""Assembles tiered storage from a node's settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from penstock.config.node import NodeSettings
from penstock.node.failures import CannotStart
from penstock.runtime.brokers import Brokers
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.env import Env
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.tier.cache import DiskCache
from penstock.runtime.tier.counters import TierCounters
from penstock.runtime.tier.metadata import MetadataTopicSettings, RemoteLogMetadata
from penstock.runtime.tier.reader import TierReader
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.storage.files import Filesystem
from penstock.storage.tier.object_store import ObjectStore, StoreError
from penstock.storage.tier.sealing import Seals

CACHE_DIRECTORY = "tier-cache"
OUTGOING = "outgoing"

StoreT = TypeVar("StoreT", bound=ObjectStore)


async def open_tier(
    env: Env,
    raft: RaftDriver,
    live: LiveSettings,
    partitions: Partitions,
    creator: TopicCreator,
    brokers: Brokers,
    cluster_id: str,
) -> RemoteLogs | None:
    """The tier of a broker, not started yet; None if it has none. Raises CannotStart."""
    settings = live.node
    if not settings.remote_log_storage_system_enable:
        return None
    try:
        store = open_store(settings, env.open_store)
        seals = open_seals(settings, env.random.randbytes, env.filesystem)
    except StoreError as error:
        raise CannotStart(error.message) from error
    directory = Path(settings.penstock_tier_cache_dir or Path(settings.metadata_log_dir) / CACHE_DIRECTORY)
    counters = TierCounters()
    parts = DiskCache(
        env,
        directory / "segments",
        lambda: settings.penstock_tier_cache_bytes,
        lambda: settings.penstock_tier_memory_bytes,
    )
    indexes = DiskCache(env, directory / "indexes", lambda: live.current().remote_log_index_file_cache_total_size_bytes)
    outgoing = DiskCache(env, directory / OUTGOING, int)
    for cache in (parts, indexes, outgoing):
        # What a crash left behind goes.
        await env.run_blocking(cache.open)
    topic = MetadataTopicSettings(
        settings.rlmm_config_remote_log_metadata_topic_num_partitions,
        settings.rlmm_config_remote_log_metadata_topic_replication_factor,
        settings.rlmm_config_remote_log_metadata_topic_retention_ms,
    )
    metadata = RemoteLogMetadata(env, raft.image, creator, brokers, topic)
    reader = TierReader(env, store, parts, indexes, live.current, counters, seals)
    tier = RemoteLogs(
        env,
        cluster_id,
        settings.node_id,
        raft.image,
        partitions,
        metadata,
        store,
        reader,
        live.current,
        counters,
        seals,
        directory / OUTGOING,
    )
    raft.on_commit(tier.follow)
    return tier


def open_seals(
    settings: NodeSettings,
    randbytes: Callable[[int], bytes] = os.urandom,
    filesystem: Filesystem | None = None,
) -> Seals:
    """How the settings have segments compressed and encrypted; raises StoreError."""
    keys_file = settings.penstock_tier_encryption_keys_file
    return Seals(settings.penstock_tier_compression, keys_file, randbytes, filesystem)


def open_store(settings: NodeSettings, open_at: Callable[[str, Mapping[str, str], int], StoreT]) -> StoreT:
    """The object store that the settings name, which `open_at` opens; raises StoreError."""
    options = {}
    for item in filter(None, (settings.penstock_tier_options or "").split(",")):
        name, _, value = item.partition("=")
        options[name.strip()] = value.strip()
    return open_at(settings.penstock_tier_url or "", options, settings.penstock_tier_request_timeout_ms)
