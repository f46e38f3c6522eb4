"""The settings in force now: the configuration file, overlaid by what was changed while the cluster runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.config.describe import BrokerProperties
from penstock.config.node import NodeSettings
from penstock.config.topic import TopicSettings, broker_defaults
from penstock.core.metadata.image import Image, ResourceType
from penstock.wire.messages.metadata_records import ConfigRecord

# The broker resource without a name holds the defaults of all brokers.
ALL_BROKERS = ""


class LiveSettings:
    """Broker properties by layer, and the topic defaults that follow from them."""

    def __init__(self, node: NodeSettings, image: Image) -> None:
        self.node = node
        self._image = image
        self._topic_defaults: TopicSettings | None = None

    def broker_properties(self) -> BrokerProperties:
        """This broker's properties, layer by layer."""
        return BrokerProperties(
            static=self.node.properties,
            dynamic_default=self._image.overrides(ResourceType.BROKER, ALL_BROKERS),
            dynamic=self._image.overrides(ResourceType.BROKER, str(self.node.node_id)),
        )

    def topic_defaults(self) -> TopicSettings:
        """What topics get that don't say otherwise."""
        if self._topic_defaults is None:
            self._topic_defaults = broker_defaults(self.broker_properties().effective())
        return self._topic_defaults

    def follow(self, records: Sequence[Any]) -> None:
        """Notice committed changes of broker settings."""
        for record in records:
            if isinstance(record, ConfigRecord) and record.resource_type == ResourceType.BROKER:
                self._topic_defaults = None
