"""What tenants may have, as people write and read it, next to what they have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.security.rates import BY_KEY, parse_rate, show_rate
from penstock.model.tenants import TENANT_LIMITS, TENANT_PARTITIONS, TENANT_TOPICS

if TYPE_CHECKING:
    from penstock.wire.messages.describe_tenants import DescribedTenant

UNLIMITED = "unlimited"
DEFAULTS: dict[str, float] = {TENANT_TOPICS: 100, TENANT_PARTITIONS: 1000}
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
PER_BROKER = (PRODUCE, CONSUME, "request_percentage")
RATES = (*PER_BROKER, "controller_mutation_rate")

Values = dict[str, float | None]


def limit_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that set limits; the command receives those given as `values`, None for `unlimited`."""

    @click.option("--topics", metavar="NUMBER", help="Topics in the cluster.")
    @click.option("--partitions", metavar="NUMBER", help="Partitions in the cluster, replicas not counted.")
    @click.option("--storage", metavar="SIZE", help="Bytes in the cluster, replicas not counted: 50GB.")
    @click.option("--produce", metavar="RATE", help="Bytes a second written to each broker: 20MB/s.")
    @click.option("--consume", metavar="RATE", help="Bytes a second read from each broker: 60MB/s.")
    @click.option("--requests", metavar="PERCENT", help="Time of each broker's threads: 50%.")
    @click.option("--mutations", metavar="RATE", help="Partitions created and deleted a second: 10/s.")
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        values: Values = {}
        for key in (*TENANT_LIMITS, *RATES):
            text = kwargs.pop(BY_KEY[key].option)
            if text is not None:
                values[key] = None if text.strip().lower() == UNLIMITED else parse_rate(BY_KEY[key], text)
        function(*args, values=values, **kwargs)

    return wrapped


def check_limited(name: str, values: Mapping[str, float | None]) -> None:
    """Raises CommandFailure if no limit is left that makes a tenant of a user."""
    if all(values.get(key) is None for key in TENANT_LIMITS):
        raise CommandFailure(
            f"tenant {name} needs a limit",
            "without --topics, --partitions and --storage it is a user like others",
            "limit one of them, or use `penstock security user` and `acl`",
        )


def limits_of(tenant: DescribedTenant) -> dict[str, float]:
    """What a tenant may have, by key."""
    return {row.key: row.value for row in tenant.limits}


def amounts_of(tenant: DescribedTenant) -> dict[str, int]:
    """What a tenant has, by the key of its limit."""
    amounts = tenant.topics, tenant.partitions, tenant.storage_bytes
    return dict(zip(TENANT_LIMITS, amounts, strict=True))


def json_of(tenant: DescribedTenant) -> dict[str, object]:
    """A tenant for programs."""
    limits = limits_of(tenant)
    shown: dict[str, object] = {"tenant": tenant.name, "prefix": f"{tenant.name}."}
    for key, amount in amounts_of(tenant).items():
        limit = limits.get(key)
        shown[key.removeprefix("tenant_")] = {"used": amount, "limit": None if limit is None else int(limit)}
    shown["produce"] = {"rate": tenant.produce_rate, "limit_per_broker": limits.get(PRODUCE)}
    shown["consume"] = {"rate": tenant.consume_rate, "limit_per_broker": limits.get(CONSUME)}
    shown["refused_batches"] = tenant.refused_batches
    shown["limits"] = limits
    return shown


def used_of(tenant: DescribedTenant, key: str) -> str:
    """`3 of 100`, with the share if it is large; sizes and rates with their units."""
    used, limit = amounts_of(tenant)[key], limits_of(tenant).get(key)
    if limit is None:
        return show_rate(key, used)
    share = f" ({100 * used / limit:.0f}%)" if limit and used / limit >= 0.5 else ""
    return f"{show_rate(key, used)} of {show_rate(key, limit)}{share}"


def shown_limit(key: str, value: float | None, brokers: int) -> str:
    """A limit; of a rate also what it means on several brokers."""
    if value is None:
        return UNLIMITED
    shown = show_rate(key, value)
    if brokers < 2 or key not in PER_BROKER:
        return shown
    together = f", {show_rate(key, value * brokers)} on all {brokers}" if key in (PRODUCE, CONSUME) else ""
    return f"{shown} on each broker{together}"
