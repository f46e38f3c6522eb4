"""Applications: functions for topics, with retries, dead letters, exactly once, and everything around them.

    import penstock

    app = penstock.App("billing")

    @app.subscribe("orders", retries=5, publish="invoices")
    def bill(order: Order) -> Invoice:
        return Invoice(order.id, total(order))

`penstock app run module:app --workers 4` runs it. See docs/app.md.
"""

from __future__ import annotations

from penstock.app.application import App
from penstock.app.context import Context, Depends, Message

__all__ = ["App", "Context", "Depends", "Message"]
