"""The initial SCRAM users of a cluster, in kafka-storage.sh's notation:

`SCRAM-SHA-256=[name=alice,password=secret]`, or with `salt` and `saltedpassword` in base64, and `iterations`.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode
from binascii import Error as Base64Error

from penstock.cli.failures import CommandFailure
from penstock.core.security import scram
from penstock.wire.messages.metadata_records import UserScramCredentialRecord

SALT_BYTES = 24
_USER = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]")
_FIELD = re.compile(r"""\s*(name|password|salt|saltedpassword|iterations)=("[^"]*"|[^,]*)\s*(?:,|$)""")


def parse_user(text: str) -> UserScramCredentialRecord:
    """Parse a user; raises CommandFailure, which never contains a password."""
    matched = _USER.fullmatch(text.strip())
    if matched is None:
        raise _refused("it is not MECHANISM=[…], with SCRAM-SHA-256 or SCRAM-SHA-512")
    mechanism = scram.MECHANISMS[matched[1]]
    fields: dict[str, str] = {}
    position = 0
    while position < len(matched[2]):
        field = _FIELD.match(matched[2], position)
        if field is None:
            raise _refused("a part of it is not one of name, password, salt, saltedpassword and iterations")
        fields[field[1]] = field[2].strip('"')
        position = field.end()
    if not fields.get("name") or ("password" in fields) == ("saltedpassword" in fields):
        raise _refused("it needs a name, and either a password or a saltedpassword")
    iterations = int(fields["iterations"]) if fields.get("iterations", "").isdigit() else scram.ITERATIONS_MIN
    if not scram.ITERATIONS_MIN <= iterations <= scram.ITERATIONS_MAX:
        raise _refused(f"iterations must be between {scram.ITERATIONS_MIN} and {scram.ITERATIONS_MAX}")
    try:
        salt = b64decode(fields["salt"], validate=True) if "salt" in fields else secrets.token_bytes(SALT_BYTES)
        if "password" in fields:
            salted = scram.salted_password(mechanism, fields["password"], salt, iterations)
        else:
            salted = b64decode(fields["saltedpassword"], validate=True)
    except (Base64Error, ValueError):
        raise _refused("salt and saltedpassword must be base64") from None
    if "saltedpassword" in fields and "salt" not in fields:
        raise _refused("a saltedpassword needs its salt")
    made = scram.credential_of_salted(mechanism, salted, salt, iterations)
    return UserScramCredentialRecord(fields["name"], mechanism.code, salt, made.stored_key, made.server_key, iterations)


def _refused(why: str) -> CommandFailure:
    return CommandFailure(
        "--add-scram is not a valid user", why, "for example 'SCRAM-SHA-256=[name=admin,password=secret]'"
    )
