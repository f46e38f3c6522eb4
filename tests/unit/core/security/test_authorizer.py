"""Access lists: which entries cover a resource, what they imply, and that a denial wins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.security.authorizer import ANSWERS_BYTES_MAX, DENIALS_BYTES_MAX, AccessEntry, Authorizer, _Answers
from penstock.model.access import Operation, PatternType, Permission, ResourceType

TOPIC = ResourceType.TOPIC
ALICE, BOB = "User:alice", "User:bob"
HERE = "10.0.0.1"


def entry(
    name: str = "orders",
    operation: Operation = Operation.READ,
    *,
    principal: str = ALICE,
    host: str = "*",
    deny: bool = False,
    prefixed: bool = False,
    kind: ResourceType = TOPIC,
) -> AccessEntry:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AccessEntry(kind, name, pattern, principal, host, operation, Permission.DENY if deny else Permission.ALLOW)


def authorizer(*entries: AccessEntry, super_users: tuple[str, ...] = (), allow_if_no_entry: bool = False) -> Authorizer:
    made = Authorizer(super_users, allow_if_no_entry)
    made.replace_all((bytes([number] * 16), each) for number, each in enumerate(entries))
    return made


def allows(lists: Authorizer, operation: Operation, name: str = "orders", principal: str = ALICE) -> bool:
    return lists.allows(principal, HERE, operation, TOPIC, name)


def test_nothing_is_allowed_without_an_entry() -> None:
    assert not allows(authorizer(), Operation.READ)


def test_every_user_may_where_that_is_set_and_no_entry_covers_the_resource() -> None:
    lists = authorizer(entry("orders", principal=BOB), allow_if_no_entry=True)
    assert allows(lists, Operation.READ, "other")
    # One entry for anybody closes the resource to all others.
    assert not allows(lists, Operation.READ, "orders")


def test_a_super_user_may_even_what_is_denied() -> None:
    lists = authorizer(entry(deny=True), super_users=(ALICE,))
    assert allows(lists, Operation.READ)
    assert not allows(authorizer(entry(deny=True)), Operation.READ)


def test_the_widest_prefix_is_that_of_all_names_that_one_entry_gives() -> None:
    lists = authorizer(
        entry("a-", prefixed=True),
        entry("a-b-", Operation.ALL, prefixed=True),
        entry("c", deny=True, prefixed=True),
        entry("d-", Operation.WRITE, prefixed=True),
        entry("d-1"),
        entry("*", principal=BOB),
        super_users=("User:admin",),
    )

    def widest(name: str, principal: str = ALICE, operation: Operation = Operation.READ) -> str | None:
        return lists.widest_prefix(principal, HERE, operation, TOPIC, name)

    assert widest("a-b-1") == "a-"
    assert widest("a-b-1", operation=Operation.WRITE) == "a-b-"
    assert widest("a-b-1", operation=Operation.DESCRIBE) == "a-"
    # The name alone is given.
    assert widest("d-1") is None
    assert widest("d-1", operation=Operation.WRITE) == "d-"
    assert widest("a-b-1", BOB) == ""
    assert widest("a-b-1", "User:admin") is None
    assert authorizer(allow_if_no_entry=True).widest_prefix(ALICE, HERE, Operation.READ, TOPIC, "a") == ""


@pytest.mark.parametrize("granted", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_a_user_who_may_use_a_topic_may_describe_it(granted: Operation) -> None:
    lists = authorizer(entry(operation=granted))
    assert allows(lists, Operation.DESCRIBE)
    assert not allows(lists, Operation.DESCRIBE_CONFIGS)
    assert not allows(lists, Operation.CREATE)


def test_a_user_who_may_change_settings_may_describe_them() -> None:
    lists = authorizer(entry(operation=Operation.ALTER_CONFIGS))
    assert allows(lists, Operation.DESCRIBE_CONFIGS)
    assert not allows(lists, Operation.DESCRIBE)


def test_all_stands_for_every_operation() -> None:
    lists = authorizer(entry(operation=Operation.ALL))
    assert all(allows(lists, operation) for operation in Operation if operation > Operation.ALL)
    denied = authorizer(entry(operation=Operation.ALL), entry(operation=Operation.ALL, deny=True))
    assert not any(allows(denied, operation) for operation in Operation if operation > Operation.ALL)


def test_a_denial_wins_and_is_about_what_it_names() -> None:
    lists = authorizer(entry(operation=Operation.ALL), entry(operation=Operation.READ, deny=True))
    assert not allows(lists, Operation.READ)
    assert allows(lists, Operation.WRITE)
    # A denied READ does not deny DESCRIBE, which ALL grants.
    assert allows(lists, Operation.DESCRIBE)


def test_patterns_cover_literal_names_wildcards_and_prefixes() -> None:
    lists = authorizer(entry("*", Operation.DESCRIBE), entry("ord", Operation.READ, prefixed=True), entry("a"))
    assert allows(lists, Operation.READ, "orders")
    assert allows(lists, Operation.READ, "ord")
    assert not allows(lists, Operation.READ, "or")
    assert not allows(lists, Operation.READ, "Orders")
    assert allows(lists, Operation.READ, "a")
    assert not allows(lists, Operation.READ, "ab")
    assert allows(lists, Operation.DESCRIBE, "anything")
    # A prefixed `*` is the name of no topic, not a wildcard.
    assert not allows(authorizer(entry("*", prefixed=True)), Operation.READ)


def test_entries_are_for_principals_and_addresses() -> None:
    lists = authorizer(entry(host=HERE), entry("open", principal="User:*"))
    assert lists.allows(ALICE, HERE, Operation.READ, TOPIC, "orders")
    assert not lists.allows(ALICE, "10.0.0.2", Operation.READ, TOPIC, "orders")
    assert not allows(lists, Operation.READ, principal=BOB)
    assert allows(lists, Operation.READ, "open", principal=BOB)
    assert not lists.allows(ALICE, HERE, Operation.READ, ResourceType.GROUP, "orders")


def test_a_revoked_right_is_gone_at_once() -> None:
    lists = authorizer(entry(), entry("ord", prefixed=True))
    assert allows(lists, Operation.READ)
    lists.remove(bytes(16))
    assert allows(lists, Operation.READ)
    lists.remove(bytes([1] * 16))
    assert not allows(lists, Operation.READ)
    lists.add(bytes(16), entry())
    assert allows(lists, Operation.READ)
    lists.add(bytes(16), entry("other"))
    assert not allows(lists, Operation.READ)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], False),
        ([entry(operation=Operation.WRITE)], True),
        ([entry(operation=Operation.READ)], False),
        ([entry(operation=Operation.WRITE), entry("*", Operation.WRITE, deny=True)], False),
        ([entry(operation=Operation.WRITE), entry("orders", Operation.WRITE, deny=True)], False),
        ([entry(operation=Operation.WRITE), entry("ord", Operation.ALL, deny=True, prefixed=True)], False),
        ([entry("*", Operation.WRITE), entry("ord", Operation.WRITE, deny=True, prefixed=True)], True),
        ([entry("ord", Operation.WRITE, prefixed=True), entry("orders", Operation.WRITE, deny=True)], True),
        (
            [entry("orders", Operation.WRITE, prefixed=True), entry("ord", Operation.WRITE, deny=True, prefixed=True)],
            False,
        ),
    ],
)
def test_whether_any_topic_may_be_written_to(entries: list[AccessEntry], expected: bool) -> None:
    assert authorizer(*entries).allows_some(ALICE, HERE, Operation.WRITE, TOPIC) is expected


entries_drawn = st.builds(
    entry,
    st.sampled_from(["a", "ab", "abc", "b", "*"]),
    st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL]),
    principal=st.sampled_from([ALICE, BOB, "User:*"]),
    host=st.sampled_from([HERE, "*", "10.0.0.2"]),
    deny=st.booleans(),
    prefixed=st.booleans(),
)


@given(
    entries=st.lists(entries_drawn, max_size=8),
    drop=st.sets(st.integers(0, 7)),
    operation=st.sampled_from(list(Operation)[3:9]),
)
def test_answers_are_those_of_looking_through_all_entries(
    entries: list[AccessEntry], drop: set[int], operation: Operation
) -> None:
    lists = authorizer(*entries)
    for name in ("a", "ab", "abc", "b", "c"):
        allows(lists, operation, name)
    for number in drop:
        lists.remove(bytes([number] * 16))
    left = [each for number, each in enumerate(entries) if number not in drop]
    for name in ("a", "ab", "abc", "b", "c"):
        assert allows(lists, operation, name) is plainly(left, operation, name)


def plainly(entries: list[AccessEntry], operation: Operation, name: str) -> bool:
    """The rules once more, by the book."""
    implying = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    allowed = False
    for each in entries:
        literal = each.pattern_type is PatternType.LITERAL
        covers = each.resource_name in (name, "*") if literal else name.startswith(each.resource_name)
        if not covers or each.principal not in (ALICE, "User:*") or each.host not in (HERE, "*"):
            continue
        same = each.operation in (operation, Operation.ALL)
        if each.permission is Permission.DENY and same:
            return False
        if each.permission is Permission.ALLOW:
            allowed |= same or (operation is Operation.DESCRIBE and each.operation in implying)
    return allowed


def test_what_is_denied_is_remembered_within_a_bound_and_displaces_no_permission() -> None:
    lists = authorizer(entry(operation=Operation.WRITE))
    assert allows(lists, Operation.WRITE)
    remembered = lists.remembered_bytes
    for number in range(2_000):
        assert not allows(lists, Operation.WRITE, f"{number}" + "x" * 30_000)
        assert lists.remembered_bytes <= remembered + DENIALS_BYTES_MAX
    assert len(lists._allowed.questions) == 1
    # Nor is a name remembered that alone has more than the bound.
    assert not allows(lists, Operation.WRITE, "x" * 2 * DENIALS_BYTES_MAX)
    assert lists.remembered_bytes <= remembered + DENIALS_BYTES_MAX


def test_permissions_are_remembered_within_a_bound() -> None:
    lists = authorizer(allow_if_no_entry=True)
    for number in range(2_000):
        assert allows(lists, Operation.WRITE, f"{number}" + "x" * 30_000)
        assert lists.remembered_bytes <= ANSWERS_BYTES_MAX


def test_answers_are_remembered_up_to_their_bound() -> None:
    questions = [("u", "h", 1, 1, name) for name in "abc"]
    measured = _Answers(1 << 20)
    measured.add(questions[0])
    size = measured.size_bytes
    answers = _Answers(2 * size)
    for question, remembered in zip(questions, [questions[:1], questions[:2], questions[2:]], strict=True):
        answers.add(question)
        assert answers.questions == {*remembered}
        assert answers.size_bytes == len(remembered) * size
    exact, small = _Answers(size), _Answers(size - 1)
    for one in (exact, small):
        one.add(questions[0])
    assert (len(exact.questions), len(small.questions)) == (1, 0)


def test_lengths_of_prefixes_are_forgotten_with_their_last_entry() -> None:
    entries = [entry("ord", prefixed=True), entry("abc", prefixed=True), entry("orders-", prefixed=True)]
    lists = authorizer(*entries)
    assert lists._prefix_lengths == {TOPIC: {3: 2, 7: 1}}
    for number in (0, 2):
        lists.remove(bytes([number] * 16))
    assert lists._prefix_lengths == {TOPIC: {3: 1}}
