"""Penstock's own Kafka client, used by its commands, gateway, Spark data source and nodes.

`settings` says where and how to connect, `protocol` is the sans-IO protocol, `connection` and `peer` run it on a socket
(blocking, and for event loops), `cluster` and `peers` talk to a whole cluster.
"""
