"""Penstock's own client of brokers: what its commands, its gateway, its Spark format and its nodes reach them with.

`settings` says where and how to connect, `protocol` holds the conversation without a connection, `connection` and
`peer` put it on a socket (blocking, and for event loops), `cluster` and `peers` ask a whole cluster.
"""
