"""Queues and caches in which a flood by one owner costs that owner."""

from __future__ import annotations

from random import Random

import pytest

from penstock.core.fairness import FairCache, FairQueue


def test_owners_take_turns_and_each_ones_items_keep_their_order() -> None:
    queue: FairQueue[str, int] = FairQueue()
    for number in range(5):
        queue.put("flood", number)
    queue.put("other", 100)
    queue.put("other", 101)
    assert [queue.take()[1] for _ in range(len(queue))] == [0, 100, 1, 101, 2, 3, 4]
    with pytest.raises(IndexError):
        queue.take()


def test_items_can_be_removed_before_their_turn() -> None:
    queue: FairQueue[str, int] = FairQueue()
    queue.put("a", 1)
    queue.put("b", 2)
    assert queue.remove("a", 1)
    assert not queue.remove("a", 1)
    assert (len(queue), queue.length("a"), queue.length("b")) == (1, 0, 1)
    assert queue.take() == ("b", 2)


def test_a_flood_evicts_only_its_own_entries() -> None:
    cache: FairCache[str, str, int] = FairCache(10)
    for number in range(4):
        assert cache.put("alice", f"a{number}", number) == []
    for number in range(1_000):
        cache.put("mallory", f"m{number}", number)
    assert cache.of("alice") == [0, 1, 2, 3]
    assert cache.of("mallory") == list(range(994, 1_000))


def test_two_floods_share_the_room() -> None:
    cache: FairCache[str, int, int] = FairCache(10)
    for number in range(100):
        cache.put("one", number, number)
    for number in range(100, 200):
        cache.put("two", number, number)
    assert (len(cache.of("one")), len(cache.of("two"))) == (5, 5)


def test_large_entries_count_by_their_size() -> None:
    cache: FairCache[str, str, str] = FairCache(1_000, 100)
    cache.put("alice", "a", "kept", 10)
    assert cache.put("mallory", "m", "first", 80) == []
    assert cache.put("mallory", "n", "second", 80) == ["first"]
    assert cache.put("mallory", "o", "huge", 1_000) == ["huge"]
    assert (cache.get("a"), cache.get("n"), cache.get("o"), cache.size) == ("kept", "second", None, 90)


def test_the_newest_entry_is_kept_even_if_its_owner_has_the_most() -> None:
    cache: FairCache[str, str, str] = FairCache(1_000, 100)
    for number in range(9):
        cache.put(f"owner-{number}", f"k{number}", "small", 10)
    assert cache.put("mallory", "m", "large", 60) == ["small"] * 5
    assert cache.peek("m") == "large"


def test_the_least_recently_used_entry_goes_first() -> None:
    cache: FairCache[str, str, str] = FairCache(2)
    cache.put("alice", "a", "A")
    cache.put("alice", "b", "B")
    assert cache.get("a") == "A"
    assert cache.put("alice", "c", "C") == ["B"]
    assert cache.peek("a") == "A"


@pytest.mark.parametrize("seed", range(20))
def test_its_accounts_agree_with_its_contents(seed: int) -> None:
    random = Random(seed)
    cache: FairCache[int, int, tuple[int, int]] = FairCache(30, 200)
    for _ in range(2_000):
        key, owner, size = random.randrange(60), random.randrange(6), random.randrange(1, 40)
        match random.randrange(4):
            case 0:
                cache.pop(key)
            case 1:
                cache.get(key)
            case _:
                cache.put(owner, key, (key, size), size)
        values = list(cache.values())
        assert len(cache) == len(values) <= 30
        assert cache.size == sum(size for _, size in values) <= 200
        assert sorted(values) == sorted(value for owner in range(6) for value in cache.of(owner))


def test_an_entry_as_large_as_all_may_be_is_kept_alone() -> None:
    cache = FairCache[str, int, str](10, 100)
    assert cache.put("a", 1, "one", 40) == []
    assert cache.put("b", 2, "two", 100) == ["one"]
    assert (list(cache), cache.size) == ([2], 100)
    assert cache.put("b", 3, "three", 101) == ["three"]
    assert list(cache) == [2]


def test_many_changes_keep_the_largest_owner_known() -> None:
    cache = FairCache[int, int, int](50, 10_000)
    for number in range(1_000):
        cache.put(number % 3, number % 40, number, 1 + number % 7)
        assert len(cache._counts._heap) <= 2 * 3 + 101
    for key in range(41, 60):
        cache.put(9, key, key, 1)
    # The newcomer has fewer entries than the others, until it has as many.
    assert len(cache.of(9)) >= 10
    assert cache.size == sum(entry.size for entry in cache._entries.values())


def test_an_empty_queue_has_nothing_to_take() -> None:
    queue = FairQueue[str, int]()
    with pytest.raises(IndexError):
        queue.take()
    queue.put("a", 1)
    assert not queue.remove("a", 2)
    assert not queue.remove("b", 1)
    assert (len(queue), queue.length("a"), queue.length("b")) == (1, 1, 0)
    assert queue.remove("a", 1)
    assert (len(queue), queue.length("a")) == (0, 0)
