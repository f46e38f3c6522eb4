"""`penstock security …`: who may connect to a cluster, and what they may do there."""

from __future__ import annotations

import click

from penstock.cli.lazy import LazyGroup

COMMANDS = {
    "cert": ("penstock.cli.security.cert", "Make an authority and certificates of it, and look at certificates."),
    "user": ("penstock.cli.security.user", "Add, list and delete users who sign in with a password (SCRAM)."),
    "acl": ("penstock.cli.security.acl", "Say who may do what: add, list and delete entries of the access lists."),
    "token": ("penstock.cli.security.token", "Create, list, renew and expire delegation tokens."),
    "audit": ("penstock.cli.security.audit", "Show who changed what, who was denied what, and refused sign-ins."),
    "quota": ("penstock.cli.security.quota", "Limit what users, clients and addresses take of the brokers."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def command() -> None:
    """Say who may connect to a cluster, and what they may do there."""
