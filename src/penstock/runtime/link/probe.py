"""Looks at a source before a link to it is recorded: whether it can be reached, which cluster it is, what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.client.failures import AuthenticationFailed, NoAnswer
from penstock.config.link import SOURCE
from penstock.core.metadata.links import MirrorState
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.link.source import Source
from penstock.wire.messages.describe_links import DescribedLink, DescribeLinksRequest, DescribeLinksResponse

PROBE_S = 15.0
# Whether the source has links itself is only known of Penstock. Apache Kafka closes the connection.
ORIGINS_MS = 3_000
ORIGINS_LANE = "origins"
BROKERS_ASKED_MAX = 3


class Probed(NamedTuple):
    """What was found. `origins` are the clusters whose topics the source mirrors, as far as it reports them."""

    cluster_id: str
    origins: list[str]
    topics: list[str]


async def probe(env: Env, configs: Mapping[str, str]) -> Probed:
    """Connect to a source; raises ApiError with what to do if that fails."""
    at = configs.get(SOURCE, "")
    try:
        source = Source(env, configs)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    try:
        async with asyncio.timeout(PROBE_S):
            await source.open()
            await source.refresh()
            origins = await _origins(source)
    except AuthenticationFailed as error:
        raise ApiError(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"the source does not accept the link's sign-in: {error}. Check sasl.mechanism, sasl.username and "
            "sasl.password, and the certificates",
        ) from None
    except NoAnswer as error:
        raise ApiError(
            ErrorCode.NETWORK_EXCEPTION,
            f"no broker of the source answers at {at}: {error}. Check the address, security.protocol, and that this "
            "cluster's brokers may connect there",
        ) from None
    except TimeoutError:
        raise ApiError(
            ErrorCode.NETWORK_EXCEPTION, f"the source at {at} did not answer within {PROBE_S:.0f} s: check the address"
        ) from None
    finally:
        source.close()
    return Probed(source.cluster_id, origins, [name for name, topic in source.topics.items() if not topic.is_internal])


async def _origins(source: Source) -> list[str]:
    found: dict[str, None] = {}
    for link in await _links(source):
        if not link.mirrors or any(mirror.state != MirrorState.STOPPED for mirror in link.mirrors):
            found |= dict.fromkeys((link.source_cluster_id, *link.origins))
    return list(found)


async def _links(source: Source) -> Sequence[DescribedLink]:
    for address in [*source.brokers.values()][:BROKERS_ASKED_MAX]:
        with suppress(NoAnswer):
            response: DescribeLinksResponse = await source.ask_at(
                address, DescribeLinksRequest(None), ORIGINS_MS, ORIGINS_LANE
            )
            return response.links
    return ()
