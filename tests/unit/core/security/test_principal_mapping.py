"""Kafka's rules from a certificate's name to a principal."""

from __future__ import annotations

import pytest

from penstock.core.security.principal_mapping import InvalidRules, PrincipalMapping

NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", NAME),
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U", "DUKE@SERVICEUSERS"),
        ("RULE:^CN=x$/y/, RULE:^.*OU=ServiceUsers.*$/service/ , DEFAULT", "service"),
        ("RULE:^CN=x$/y/,DEFAULT", NAME),
        ("RULE:^CN=x$/y/", None),
        (r"RULE:CN=(\w+),.*/a\/$1/", "a/Duke"),
    ],
)
def test_the_first_rule_that_fits_decides(rules: str, expected: str | None) -> None:
    assert PrincipalMapping(rules).principal(NAME) == expected


@pytest.mark.parametrize("rules", ["nonsense", "RULE:^CN=(.*$/$1/", "RULE:a/b/X", "RULE:(a)/$2/", "RULE:a"])
def test_rules_that_cannot_be_read(rules: str) -> None:
    with pytest.raises(InvalidRules):
        PrincipalMapping(rules)


def test_a_certificate_does_not_name_groups_of_the_rule() -> None:
    mapping = PrincipalMapping("RULE:^CN=(.*?),OU=(.*?)$/$1/")
    assert mapping.principal("CN=$2,OU=admin") == "$2"
    assert mapping.principal("CN=$0,OU=admin") == "$0"
