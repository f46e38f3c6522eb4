"""The settings of a link as a user gives them, turned into what brokers take: the content of files, not their names."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.failures import CommandFailure
from penstock.cli.options import parse_assignments, read_client_file
from penstock.config.link import SOURCE

# librdkafka's and the Java client's names of files, and the settings that have their content.
INLINED = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.truststore.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
DROPPED = ("ssl.truststore.type", "ssl.keystore.type", "sasl.jaas.config")


def read_link_settings(source: str | None, assignments: tuple[str, ...], config_file: str | None) -> dict[str, str]:
    """The settings for a request; `config_file` has a client's properties, which options override."""
    found = read_client_file(config_file) if config_file else {}
    found |= parse_assignments(assignments, "--config")
    if source:
        found[SOURCE] = source
    settings: dict[str, str] = {}
    for name, value in found.items():
        if name in DROPPED:
            continue
        inlined = INLINED.get(name)
        if inlined is None:
            settings[name] = value
        elif name.endswith(".location"):
            settings[inlined] = _content(name, value)
        else:
            settings[inlined] = value
    return settings


def _content(name: str, path: str) -> str:
    try:
        text = Path(path).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is no PEM file"
        raise CommandFailure(f"cannot read {path}", why, f"{name} is sent as text: name a PEM file") from None
    if "-----BEGIN" not in text:
        raise CommandFailure(f"{path} is no PEM file", "it has no BEGIN line", "convert it with openssl or keytool")
    return text
