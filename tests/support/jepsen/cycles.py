"""Cycles in what depends on what: operations that can have happened in no order.

Edges lead from an operation to one that must come after it: `ww` to the writer of the next value in a log, `wr` to
those that polled its value, `process` to the next operation of its process, `realtime` to those that started after it
was done. The last kind runs over moments, nodes of their own, so that there are no more edges than operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .analysis import Analysis
from .graph import Graph, components, cycle_through
from .operations import DATA, Operation

# Name, edges, and the kind of edge of which a cycle must have one. A cycle is named after the first that has it.
PLAIN, PROCESS, REALTIME = (), ("process",), ("process", "realtime")
ORDERS = (("", PLAIN), ("-process", PROCESS), ("-realtime", REALTIME))
Found = tuple[str, str, tuple[int, ...]]


def cyclic_anomalies(analysis: Analysis, *, write_order: bool, isolated_writes: bool) -> Iterator[Found]:
    """The kind of each, a description, and the indexes of its operations: one for each knot of operations."""
    effective = [one for one in analysis.data if analysis.took_effect(one)]
    single = [one for one in effective if isolated_writes or sum(map(len, one.writes().values())) < 2]
    yield from _family(analysis, dependencies(analysis, single), "G0", ("ww",), "ww")
    graph = dependencies(analysis, effective)
    yield from _family(analysis, graph, "G1c", ("ww", "wr") if write_order else ("wr",), "wr")


def dependencies(analysis: Analysis, effective: Sequence[Operation]) -> Graph:
    """What these operations depend on. Nodes are indexes of completions; moments are negative."""
    graph = Graph()
    included = {one.index for one in effective}
    _write_order(analysis, included, graph)
    for sent, readers in analysis.readers.items():
        writer = analysis.writer.get(sent)
        if writer is not None and writer.index in included:
            for reader in readers:
                if reader.type == "ok" and reader.index in included:
                    graph.add(writer.index, reader.index, "wr")
    _process_order(effective, graph)
    _realtime_order(analysis, effective, graph)
    return graph


def _write_order(analysis: Analysis, included: set[int], graph: Graph) -> None:
    for key, log in analysis.logs.items():
        previous: list[int] = []
        for position, found in enumerate(log.values):
            # A value that is there again has no second place: that is an anomaly of its own, not a cycle.
            writers = [analysis.writer.get((key, value)) for value in sorted(found) if log.first[value] == position]
            present = [one.index for one in writers if one is not None and one.index in included]
            for earlier in previous:
                for later in present:
                    graph.add(earlier, later, "ww")
            previous = present or previous


def _process_order(effective: Sequence[Operation], graph: Graph) -> None:
    last: dict[int | str, int] = {}
    for one in effective:
        if one.process in last:
            graph.add(last[one.process], one.index, "process")
        last[one.process] = one.index


def _realtime_order(analysis: Analysis, effective: Sequence[Operation], graph: Graph) -> None:
    events: list[tuple[int, bool, int]] = []
    for one in effective:
        events.append((analysis.started[one.index], True, one.index))
        # One whose outcome is unknown may take effect long after it was given up.
        if one.type == "ok":
            events.append((one.index, False, one.index))
    moment = 0
    for _, starts, index in sorted(events):
        if starts and moment:
            graph.add(moment, index, "realtime")
        elif not starts:
            if moment:
                graph.add(moment, moment - 1, "realtime")
            moment -= 1
            graph.add(index, moment, "realtime")


def _family(analysis: Analysis, graph: Graph, name: str, kinds: tuple[str, ...], must: str) -> Iterator[Found]:
    explained: set[tuple[int, int]] = set()
    for suffix, orders in ORDERS:
        neighbours = graph.of_kinds({*kinds, *orders})
        component_of: dict[int, int] = {}
        knots = components(neighbours)
        for number, knot in enumerate(knots):
            component_of.update(dict.fromkeys(knot, number))
        reported: set[int] = set()
        for edge in graph.edges_of(must):
            number = component_of.get(edge[0], -1)
            if number < 0 or component_of.get(edge[1]) != number or edge in explained:
                continue
            explained.add(edge)
            if number not in reported:
                reported.add(number)
                cycle = cycle_through(edge, neighbours, knots[number])
                yield name + suffix, _describe(analysis, graph, cycle, (*kinds, *orders)), _operations(cycle)


def _operations(cycle: Sequence[int]) -> tuple[int, ...]:
    return tuple(node for node in cycle if node >= 0)


def _describe(analysis: Analysis, graph: Graph, cycle: Sequence[int], kinds: tuple[str, ...]) -> str:
    parts: list[str] = []
    for node, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        if node >= 0:
            one = analysis.by_index[node]
            assert one.f in DATA
            parts.append(f"{one.f} {node} of process {one.process}")
        kind = next(kind for kind in kinds if kind in graph.kinds(node, following))
        if kind != "realtime" or node >= 0:
            parts.append(f"-{kind}->")
    return " ".join([*parts, f"{cycle[0]}"])
