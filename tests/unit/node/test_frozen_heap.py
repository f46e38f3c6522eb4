"""Full garbage collections that take long exempt what they found from later ones."""

from __future__ import annotations

import gc

from penstock.node.frozen_heap import COLLECTION_S_MAX, FrozenHeap


class World:
    """A heap with a clock that the test sets, and how often it was frozen."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.freezes = 0
        self.heap = FrozenHeap(lambda: self.now_s, self._freeze)

    def _freeze(self) -> None:
        self.freezes += 1

    def collect(self, generation: int, took_s: float) -> None:
        self.heap.collecting("start", {"generation": generation})
        self.now_s += took_s
        self.heap.collecting("stop", {"generation": generation})


def test_only_a_full_collection_that_takes_long_exempts_what_it_found() -> None:
    world = World()
    world.collect(2, COLLECTION_S_MAX / 2)
    world.collect(1, 2 * COLLECTION_S_MAX)
    assert world.freezes == 0
    world.collect(2, 2 * COLLECTION_S_MAX)
    assert world.freezes == 1
    world.collect(2, COLLECTION_S_MAX / 2)
    assert world.freezes == 1


def test_the_collector_looks_no_more_at_what_made_it_slow_until_the_heap_stops() -> None:
    times = iter(range(1000))
    heap = FrozenHeap(lambda: float(next(times)))
    heap.start()
    try:
        at_start = gc.get_freeze_count()
        assert at_start > 0
        kept = [[number] for number in range(10_000)]
        gc.collect()
        assert gc.get_freeze_count() >= at_start + len(kept)
    finally:
        heap.stop()
    assert gc.get_freeze_count() == 0
    assert heap.collecting not in gc.callbacks
