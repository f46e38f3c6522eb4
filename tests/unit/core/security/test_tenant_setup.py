"""The requests that make up a tenant."""

from __future__ import annotations

import pytest

from penstock.core.security import tenant_setup as setup
from penstock.core.security.scram import MECHANISMS, salted_password
from penstock.model.access import Operation, PatternType, Permission, ResourceType


def test_a_tenant_may_do_everything_with_what_its_name_begins() -> None:
    entries = setup.grant("shop").creations
    assert [entry.resource_type for entry in entries] == [
        ResourceType.TOPIC,
        ResourceType.GROUP,
        ResourceType.TRANSACTIONAL_ID,
    ]
    for entry in entries:
        assert (entry.resource_name, entry.resource_pattern_type) == ("shop.", PatternType.PREFIXED)
        assert (entry.principal, entry.host) == ("User:shop", "*")
        assert (entry.operation, entry.permission_type) == (Operation.ALL, Permission.ALLOW)


def test_all_entries_of_its_user_go_with_it() -> None:
    (entry,) = setup.revoke("shop").filters
    assert (entry.resource_type_filter, entry.pattern_type_filter) == (ResourceType.ANY, PatternType.ANY)
    assert (entry.resource_name_filter, entry.host_filter, entry.principal_filter) == (None, None, "User:shop")
    assert (entry.operation, entry.permission_type) == (Operation.ANY, Permission.ANY)


def test_its_password_is_set_for_every_mechanism_with_a_salt_of_its_own() -> None:
    salts = [bytes([number]) * setup.SALT_BYTES for number in range(len(MECHANISMS))]
    request = setup.sign_in_with("shop", "secret", salts)
    assert request.deletions == []
    for row, mechanism, salt in zip(request.upsertions, MECHANISMS.values(), salts, strict=True):
        assert (row.name, row.mechanism, row.iterations, row.salt) == ("shop", mechanism.code, 8192, salt)
        assert row.salted_password == salted_password(mechanism, "secret", salt, 8192)
    with pytest.raises(ValueError, match="shorter"):
        setup.sign_in_with("shop", "secret", salts[:1])


def test_its_password_is_removed_by_mechanism() -> None:
    request = setup.forget_password("shop", [1, 2])
    assert [(row.name, row.mechanism) for row in request.deletions] == [("shop", 1), ("shop", 2)]
    assert request.upsertions == []


def test_limits_are_set_and_removed_for_its_user() -> None:
    request = setup.limit("shop", {"producer_byte_rate": 5.0, "consumer_byte_rate": None})
    (entry,) = request.entries
    assert [(one.entity_type, one.entity_name) for one in entry.entity] == [("user", "shop")]
    assert [tuple(one) for one in entry.ops] == [("producer_byte_rate", 5.0, False), ("consumer_byte_rate", 0.0, True)]
    assert not request.validate_only
