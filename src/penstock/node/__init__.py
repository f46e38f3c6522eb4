"""The composition root of one process: the only room that wires the others together.

`Node` is one process of a cluster, a broker, a controller, or both. `serve` runs one until a signal stops it.
"""

from penstock.node.failures import CannotStart
from penstock.node.node import Node
from penstock.node.serve import serve

__all__ = ["CannotStart", "Node", "serve"]
