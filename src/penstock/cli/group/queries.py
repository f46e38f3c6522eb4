"""Groups as commands need them. What coordinators refuse raises CommandFailure, with advice about groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from penstock.cli.failures import CommandFailure
from penstock.cli.render import plural
from penstock.cli.topic_queries import list_topics
from penstock.cli.wire_client import WireClient, refusal
from penstock.client.operations import groups, offsets
from penstock.client.operations.groups import Committed, CommittedOffset, Group
from penstock.client.operations.offsets import LATEST
from penstock.client.operations.routing import Refused
from penstock.model.ids import TopicPartition

# How many groups one request to a coordinator is about.
GROUPS_PER_REQUEST = 500

STOP_MEMBERS = "stop its members (`penstock group describe {group}` shows them) and run this again"
ADVICE = {
    "GROUP_ID_NOT_FOUND": "`penstock group list` shows the groups",
    **dict.fromkeys(("NON_EMPTY_GROUP", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"), STOP_MEMBERS),
    **dict.fromkeys(("REBALANCE_IN_PROGRESS", "GROUP_SUBSCRIBED_TO_TOPIC"), STOP_MEMBERS),
    "GROUP_AUTHORIZATION_FAILED": "authenticate with -X sasl.username=… or ask for access to the group",
    "COORDINATOR_LOAD_IN_PROGRESS": "its coordinator is loading the offsets; try again in a moment",
    "COORDINATOR_NOT_AVAILABLE": "`penstock cluster info` shows partitions without a leader",
}


def list_groups(client: WireClient) -> list[Group]:
    """The groups of all kinds by name, without members."""
    return client.attempt("cannot list the groups of every broker", groups.list_groups)


def describe_groups(client: WireClient, names: Sequence[str]) -> dict[str, Group]:
    """Groups with their members; groups that do not exist are left out."""
    found: dict[str, Group] = {}
    for some in _portions(names):
        what = f"cannot describe group {some[0]}"
        for name, group in client.attempt(what, groups.describe_groups, some).items():
            if isinstance(group, Refused):
                raise group_refusal(group, f"cannot describe group {name}", name)
            found[name] = group
    return found


def describe_group(client: WireClient, name: str) -> Group:
    """One group with its members; raises CommandFailure if it does not exist."""
    group = describe_groups(client, [name]).get(name)
    if group is None:
        raise CommandFailure(f"there is no group {name}", advice=ADVICE["GROUP_ID_NOT_FOUND"])
    return group


def committed_offsets(client: WireClient, names: Sequence[str]) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """The committed offsets of groups, ordered by topic and partition."""
    found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for some in _portions(names):
        what = f"cannot read the offsets of group {some[0]}"
        for name, committed in client.attempt(what, groups.committed_offsets, some).items():
            if isinstance(committed, Refused):
                raise group_refusal(committed, f"cannot read the offsets of group {name}", name)
            found[name] = committed
    return found


def commit_offsets(client: WireClient, name: str, places: Committed) -> None:
    """Set the committed offsets of a group without members; creates the group if it does not exist."""
    what = f"cannot set the offsets of group {name}"
    with _advising(name):
        results = client.attempt(what, groups.commit_offsets, name, places)
    refused = [(place, error) for place, error in results.items() if error is not None]
    if refused:
        place, error = refused[0]
        failure = group_refusal(error, f"{what} in {place}", name)
        failure.why += f"; {len(results) - len(refused)} of {plural(len(results), 'partition')} set"
        raise failure


def delete_groups(client: WireClient, names: Sequence[str]) -> dict[str, CommandFailure | None]:
    """Delete groups with their offsets; None for each deleted one, the failure for each other."""
    results = client.attempt("cannot delete the groups", groups.delete_groups, names)
    return {
        name: None if error is None else group_refusal(error, f"cannot delete group {name}", name)
        for name, error in ((name, results[name]) for name in names)
    }


def delete_offsets(client: WireClient, name: str, places: Iterable[TopicPartition]) -> None:
    """Delete committed offsets; raises CommandFailure when one could not be deleted."""
    what = f"cannot delete offsets of group {name}"
    with _advising(name):
        results = client.attempt(what, groups.delete_offsets, name, places)
    for place, error in results.items():
        if error is not None:
            failure = group_refusal(error, f"{what} in {place}", name)
            subscribed = error.name == "GROUP_SUBSCRIBED_TO_TOPIC"
            failure.why = f"{f'its members read {place.topic}' if subscribed else 'the broker refuses'} ({error.name})"
            raise failure


def end_offsets(client: WireClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offsets; partitions that are gone or have no leader are left out."""
    asked = set(partitions)
    if not asked:
        return {}
    online = {
        TopicPartition(topic.name, each.partition)
        for topic in list_topics(client)
        for each in topic.partitions
        if each.leader >= 0
    }
    wanted = dict.fromkeys(sorted(asked & online), LATEST)
    found = client.attempt("cannot read the ends of partitions", offsets.read_positions, wanted)
    return {name: position.offset for name, position in found.items() if not isinstance(position, Refused)}


def group_refusal(error: Refused, what: str, name: str) -> CommandFailure:
    """A coordinator's error as the failure of a command about a group."""
    return refusal(error, what, ADVICE.get(error.name, "").format(group=name))


@contextmanager
def _advising(name: str) -> Iterator[None]:
    """Let refusals have the advice that is about groups."""
    try:
        yield
    except CommandFailure as failure:
        if isinstance(failure.__cause__, Refused):
            failure.advice = group_refusal(failure.__cause__, "", name).advice
        raise


def _portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), GROUPS_PER_REQUEST):
        yield names[first : first + GROUPS_PER_REQUEST]
