"""A gateway that callers sign in to, next to a secured node with an identity provider."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import jwt
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from support.gateway_process import GatewayProcess
from support.secure_cluster import ADMIN, PASSWORD, SecureCluster

ISSUER = "https://provider.example"
TIMEOUT_S = 60.0
LIMITS = ("sign_in_s=1", "failed_sign_ins_max=4")


class SecuredGateway:
    """`admin` changes users and access lists; `client` makes HTTP clients."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        keys = directory / "keys.json"
        keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "RS256", "use": "sig"}]}))
        settings = {
            "delegation.token.secret.key": "the cluster's own",
            "connection.failed.authentication.delay.ms": "10",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        self.cluster = SecureCluster(directory, settings=settings)
        self._arguments = arguments
        self.gateway: GatewayProcess
        self.admin: AdminClient

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        own = self.cluster.librdkafka()
        http = {
            "ssl.keystore.location": self.directory / "node-1.pem",
            "ssl.truststore.location": self.cluster.ca_path,
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        }
        arguments = [word for name, value in own.items() for word in ("-X", f"{name}={value}")]
        arguments += [word for name, value in http.items() for word in ("--http", f"{name}={value}")]
        arguments += ["--auth", "basic,bearer,certificate"]
        arguments += [word for limit in LIMITS for word in ("--limit", limit)]
        self.gateway = GatewayProcess(self.cluster.servers(), *arguments, *self._arguments)
        try:
            self.gateway.start()
        except BaseException:
            self.cluster.close()
            raise
        self.admin = AdminClient(own)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.gateway.close()
        self.cluster.close()

    @property
    def rest(self) -> str:
        return self.gateway.rest

    def client(
        self,
        user: str | None = None,
        password: str = "",
        *,
        token: str | None = None,
        certificate: str | None = None,
        registry: bool = False,
    ) -> httpx.Client:
        """A client that signs in with each request, in one of the ways."""
        context = ssl.create_default_context(cafile=str(self.cluster.ca_path))
        if certificate is not None:
            path = self.directory / f"{certificate}.pem"
            path.write_text(self.cluster.client_certificate(certificate).pem)
            context.load_cert_chain(path)
        return httpx.Client(
            base_url=self.gateway.registry if registry else self.gateway.rest,
            verify=context,
            timeout=TIMEOUT_S,
            auth=None if user is None else (user, password),
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
        )

    def superuser(self, *, registry: bool = False) -> httpx.Client:
        return self.client(ADMIN, PASSWORD, registry=registry)

    def token(self, subject: str, lifetime_s: int = 600, **claims: Any) -> str:
        """A token of the identity provider."""
        now = int(time.time())
        body = {"sub": subject, "iss": ISSUER, "iat": now, "exp": now + lifetime_s, **claims}
        return jwt.encode(body, self._key, "RS256", headers={"kid": "one"})

    def add_user(self, name: str, password: str) -> None:
        change = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password.encode()
        )
        self._alter(name, change)

    def delete_user(self, name: str) -> None:
        self._alter(name, UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256))

    def _alter(self, name: str, change: Any) -> None:
        self.admin.alter_user_scram_credentials([change])[name].result(TIMEOUT_S)

    def allow(self, user: str, operations: Iterable[str], topic: str, kind: str = "TOPIC") -> None:
        """Grant rights on a topic, or on a group."""
        bindings = [_binding(user, operation, topic, kind) for operation in operations]
        for future in self.admin.create_acls(bindings).values():
            future.result(TIMEOUT_S)

    def revoke(self, user: str) -> None:
        """Take all rights of a user."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self.admin.delete_acls([every]).values():
            future.result(TIMEOUT_S)

    def topic(self, name: str) -> str:
        """A topic with one partition, known to everybody."""
        self.admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while name not in self.admin.list_topics(timeout=TIMEOUT_S).topics:
            assert time.monotonic() < deadline, f"{name} is not there"
            time.sleep(0.05)
        return name


def _binding(user: str, operation: str, name: str, kind: str) -> AclBinding:
    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )
