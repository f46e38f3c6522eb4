"""Directed graphs whose edges have a kind: strongly connected components, and a short cycle through an edge."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

Edge = tuple[int, int]


@dataclass(slots=True)
class Graph:
    """Nodes are numbers; two nodes may have edges of several kinds between them."""

    edges: dict[int, dict[int, set[str]]] = field(default_factory=dict)

    def add(self, source: int, target: int, kind: str) -> None:
        if source != target:
            self.edges.setdefault(source, {}).setdefault(target, set()).add(kind)

    def of_kinds(self, kinds: Collection[str]) -> dict[int, list[int]]:
        """Each node with its neighbours over edges of these kinds."""
        wanted = set(kinds)
        return {
            source: [target for target, found in targets.items() if found & wanted]
            for source, targets in self.edges.items()
        }

    def kinds(self, source: int, target: int) -> set[str]:
        return self.edges.get(source, {}).get(target, set())

    def edges_of(self, kind: str) -> Iterator[Edge]:
        for source, targets in self.edges.items():
            for target, kinds in targets.items():
                if kind in kinds:
                    yield source, target


def components(neighbours: dict[int, list[int]]) -> list[list[int]]:
    """The strongly connected components of more than one node, by Tarjan's algorithm without recursion."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in neighbours:
        if root in number:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(neighbours.get(root, ())))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, remaining = work[-1]
            for target in remaining:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(neighbours.get(target, ()))))
                    break
                if target in on_stack:
                    lowest[node] = min(lowest[node], number[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == number[node]:
                    at = _last_index(stack, node)
                    component = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        found.append(component)
    return found


def _last_index(stack: list[int], node: int) -> int:
    at = len(stack) - 1
    while stack[at] != node:
        at -= 1
    return at


def cycle_through(edge: Edge, neighbours: dict[int, list[int]], within: Iterable[int]) -> list[int]:
    """The nodes of a shortest cycle that contains an edge, beginning with its source, inside a component."""
    source, target = edge
    allowed = set(within)
    came_from = {target: target}
    queue = deque([target])
    while queue:
        node = queue.popleft()
        if node == source:
            break
        for following in neighbours.get(node, ()):
            if following in allowed and following not in came_from:
                came_from[following] = node
                queue.append(following)
    path = [source]
    while path[-1] != target:
        path.append(came_from[path[-1]])
    return [source, *reversed(path[1:])]
