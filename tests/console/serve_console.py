"""`penstock gateway` with the console in it, whether or not the gateway brings it along itself."""

from __future__ import annotations

import sys

from penstock.cli.main import main
from penstock.gateway.console.static import console_pages
from penstock.gateway.rest import application
from penstock.gateway.rest.console_operations import console_operations
from penstock.gateway.rest.console_wire import BrokerWire
from penstock.gateway.web.operations import Operation

plain_operations = application.rest_operations


def operations_with_console(services: application.RestServices) -> list[Operation]:
    more = console_operations(
        services.admin,
        services.groups,
        services.readers,
        services.tails,
        services.publisher,
        services.registry,
        services.cluster_id,
        BrokerWire(services.settings),
    )
    return [*plain_operations(services), *more, *console_pages()]


if __name__ == "__main__":
    if not hasattr(application, "console_operations"):
        application.rest_operations = operations_with_console
    sys.argv[1:1] = ["gateway"]
    main()
