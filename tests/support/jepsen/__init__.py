"""Jepsen's public Kafka workload, played against real brokers: histories in its form, and a checker of its anomalies.

`operations` is the form of a history, `recorder` writes one, `analysis` and `cycles` name the anomalies in it, and
`workload` is the load itself. Nothing here shares code with `support.history`, so that one slip does not blind both.
"""
