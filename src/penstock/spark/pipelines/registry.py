"""A client of the schema registry: schemas by subject and by id, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import lru_cache
from urllib.parse import quote

TIMEOUT_SECONDS = 20.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024


class RegistryError(Exception):
    """The registry cannot be reached or has no such schema."""


def latest_schema(url: str, subject: str) -> str:
    """A subject's latest schema."""
    return _schema(f"{url.rstrip('/')}/subjects/{quote(subject, safe='')}/versions/latest")


@lru_cache(maxsize=1024)
def schema_by_id(url: str, schema_id: int) -> str:
    """The schema of an id. Ids are immutable, so the result is cached."""
    return _schema(f"{url.rstrip('/')}/schemas/ids/{schema_id}")


def _schema(address: str) -> str:
    if not address.startswith(("http://", "https://")):
        raise RegistryError(f"{address} is not a registry URL: it must start with http:// or https://")
    request = urllib.request.Request(address, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            answer = json.loads(response.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        error.close()
        raise RegistryError(f"{address} answers {error.code}: check the subject or id") from None
    except (OSError, ValueError) as error:
        raise RegistryError(f"{address} returned no schema: {error}") from None
    return str(answer["schema"])
