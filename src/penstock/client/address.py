"""Broker addresses: `host:port`, and lists of them."""

from __future__ import annotations

from typing import NamedTuple

PORT_DEFAULT = 9092


class Address(NamedTuple):
    """The address of a broker's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse `host:port,host:port`; duplicates are dropped.

    Ports may be omitted, IPv6 addresses are in brackets, a prefix such as `PLAINTEXT://` is ignored. Raises ValueError
    for anything else, and for an empty list.
    """
    addresses = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        bare = word.rpartition("://")[2]
        host, colon, port = bare.rpartition(":")
        if not colon or bare.endswith("]"):
            host, port = bare, str(PORT_DEFAULT)
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"{word!r} is not an address: write host:port, with a port from 1 to 65535")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("bootstrap.servers is empty: set it to the brokers' addresses, host:port,host:port")
    return tuple(dict.fromkeys(addresses))
