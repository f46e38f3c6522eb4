"""How much room the settings of groups and of subscriptions may take in the metadata of a cluster."""

from __future__ import annotations

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata.configs import (
    RESOURCE_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
    GroupShare,
    change_configs,
    check_room,
)
from penstock.core.metadata.image import Image, ResourceType
from penstock.model.errors import ApiError, ErrorCode

GROUP, SUBSCRIPTION = ResourceType.GROUP, ResourceType.CLIENT_METRICS
SETTING = {"consumer.session.timeout.ms": "45000"}


class World(ClusterWorld):
    def alter(self, name: str, after: dict[str, str], share: GroupShare | None = None, kind: int = GROUP) -> bool:
        """Whether the change is accepted."""
        try:
            check_room(self.image, ResourceType(kind), name, after, share)
        except ApiError as error:
            return error.code is not ErrorCode.POLICY_VIOLATION
        self.apply(change_configs(self.image, ResourceType(kind), name, after))
        return True


def test_one_right_gives_settings_to_so_many_groups_whether_they_exist_or_not() -> None:
    world, own = World(0), GroupShare("own-", 3)
    for name in ("own-2", "own-1", "own-3"):
        assert world.alter(name, SETTING, own)
    assert not world.alter("own-4", SETTING, own)
    # Others are not concerned, nor are those that have settings, and room can be made.
    assert world.alter("owm", SETTING, GroupShare("owm", 3))
    assert world.alter("own.1", SETTING, GroupShare("own.", 3))
    assert world.alter("own-2", {**SETTING, "share.session.timeout.ms": "50000"}, own)
    assert not world.alter("anything", SETTING, GroupShare("", 5))
    assert world.alter("own-1", {}, own)
    assert world.alter("own-4", SETTING, own)
    assert world.alter("own-5", SETTING)


def test_groups_with_settings_are_counted_after_a_snapshot_too() -> None:
    world = World(0)
    for name in ("b", "ab", "a", "abc"):
        world.alter(name, SETTING)
    world.alter("a", {})
    loaded = Image()
    for record in world.image.snapshot():
        loaded.replay(record)
    for image in (world.image, loaded):
        assert image.configured_groups == ["ab", "abc", "b"]
        assert [image.count_configured_groups(prefix) for prefix in ("", "a", "ab", "abc", "abcd", "b", "c")] == [
            *(3, 2, 2, 1, 0, 1, 0)
        ]


@pytest.mark.parametrize("kind", [GROUP, SUBSCRIPTION])
def test_settings_that_are_too_large_are_refused_with_their_names(kind: ResourceType) -> None:
    world, room = World(0), RESOURCE_BYTES_MAX[kind]
    assert world.alter("g" * (room - 2), {"a": "b"}, kind=kind)
    assert not world.alter("g" * (room - 1), {"a": "b"}, kind=kind)
    assert not world.alter("g", {"a": "ü" * (room // 2)}, kind=kind)


def test_there_are_only_so_many_subscriptions() -> None:
    world = World(0)
    for number in range(SUBSCRIPTIONS_MAX):
        assert world.alter(f"s{number}", {"interval.ms": "1000"}, kind=SUBSCRIPTION)
    assert not world.alter("one more", {"interval.ms": "1000"}, kind=SUBSCRIPTION)
    assert world.alter("s1", {"interval.ms": "2000"}, kind=SUBSCRIPTION)
    assert world.alter("g", SETTING)
