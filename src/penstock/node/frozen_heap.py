"""Keeps full garbage collections short, however much a node keeps for good.

A full collection looks at every object that there is, with thousands of topics for hundreds of milliseconds, and
nothing else runs meanwhile. What a node has loaded, and what its image of the cluster holds, is kept anyway. So when a
full collection has taken too long, what it found alive is exempted from all later ones. It is still freed when nothing
refers to it any more; only reference cycles in it are kept for good. Later collections look at what was made since, so
there is one such exemption for each growth by so many objects as take that long, and none while a node does not grow.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time
from typing import Any

# About 100,000 objects.
COLLECTION_S_MAX = 0.01
OLDEST_GENERATION = 2
# Full collections come after fewer collections of younger objects than usual (10), before there is much to look at.
THRESHOLDS = (700, 10, 4)


class FrozenHeap:
    """Exempts from garbage collection what made it slow, from `start` to `stop`."""

    def __init__(self, clock: Callable[[], float] = thread_time, freeze: Callable[[], None] = gc.freeze) -> None:
        self._clock = clock
        self._freeze = freeze
        self._began_s = 0.0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Exempt all that has been loaded so far, and look at every full collection from now on."""
        self._freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self.collecting)

    def stop(self) -> None:
        """Leave the garbage collector as it is without this."""
        gc.callbacks.remove(self.collecting)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def collecting(self, phase: str, info: dict[str, Any]) -> None:
        """A collection starts or stops."""
        if info["generation"] < OLDEST_GENERATION:
            return
        if phase == "start":
            self._began_s = self._clock()
        elif self._clock() - self._began_s > COLLECTION_S_MAX:
            self._freeze()
