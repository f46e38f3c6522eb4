"""What clients do with a cluster besides producing and consuming, without I/O.

An operation is a generator function whose first argument is what is known of the cluster. It yields steps (`routing`),
is sent their responses, and returns a typed result; refusals by brokers are `Refused`, raised where an operation is
about one thing, and part of the result where it is about many. `ClusterClient.run` performs operations for commands and
other blocking code.
"""
