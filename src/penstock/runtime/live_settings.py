"""The current settings: the configuration file, overridden by changes made while the cluster runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from penstock.config.broker import with_changes
from penstock.config.describe import BrokerProperties
from penstock.config.node import NodeSettings
from penstock.config.properties import ConfigError
from penstock.config.topic import TopicSettings, running_defaults
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.metadata.topic_policy import TopicPolicy
from penstock.wire.messages.metadata_records import ConfigRecord

# The broker resource without a name holds the defaults of all brokers.
ALL_BROKERS = ""

logger = logging.getLogger("penstock.settings")


class LiveSettings:
    """Broker properties by layer, and the settings and topic defaults derived from them."""

    def __init__(self, node: NodeSettings, image: Image) -> None:
        self.node = node
        self._image = image
        self._current: NodeSettings | None = None
        self._topic_defaults: TopicSettings | None = None
        self._topic_policy: TopicPolicy | None = None
        self._listeners: list[Callable[[NodeSettings], None]] = []

    def broker_properties(self) -> BrokerProperties:
        """This broker's properties, layer by layer."""
        return BrokerProperties(
            static=self.node.properties,
            dynamic_default=self._image.overrides(ResourceType.BROKER, ALL_BROKERS),
            dynamic=self._image.overrides(ResourceType.BROKER, str(self.node.node_id)),
        )

    def current(self) -> NodeSettings:
        """This node's current settings; those that cannot change at runtime are as in the file."""
        if self._current is None:
            properties = self.broker_properties()
            self._current = self._with_changes({**properties.dynamic_default, **properties.dynamic})
        return self._current

    def _with_changes(self, changes: Mapping[str, str]) -> NodeSettings:
        try:
            return with_changes(self.node, changes)
        except ConfigError as error:
            # Another implementation's controller may have accepted it.
            logger.error("invalid dynamic settings are ignored: %s", error.message)
            wrong = {finding.name for finding in error.findings}
            return self._with_changes({name: text for name, text in changes.items() if name not in wrong})

    def on_change(self, listener: Callable[[NodeSettings], None]) -> None:
        """Have `listener` called with the current settings, and whenever they change."""
        self._listeners.append(listener)
        listener(self.current())

    def topic_defaults(self) -> TopicSettings:
        """The settings that topics inherit."""
        if self._topic_defaults is None:
            self._topic_defaults = running_defaults(self.broker_properties().effective())
        return self._topic_defaults

    def topic_policy(self) -> TopicPolicy:
        """The rules about topics."""
        if self._topic_policy is None:
            self._topic_policy = TopicPolicy.of(self.current())
        return self._topic_policy

    def follow(self, records: Sequence[object]) -> None:
        """Apply committed changes of broker settings."""
        if any(isinstance(one, ConfigRecord) and one.resource_type == ResourceType.BROKER for one in records):
            self._current = self._topic_defaults = self._topic_policy = None
            for listener in self._listeners:
                listener(self.current())
