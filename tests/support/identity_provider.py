"""An identity provider for tests: it signs tokens, gives them to clients it knows, and publishes its keys by HTTP."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ISSUER, AUDIENCE = "https://identity.example", "penstock"


class IdentityProvider:
    """Signs tokens, and publishes its keys as JWKS on a port of this machine.

    `tokens_url` gives a client in `clients` (its id and secret) the token that is noted there.
    """

    def __init__(self) -> None:
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self.clients: dict[tuple[str, str], str] = {}
        self.asked = 0
        self.new_key()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"keys": [provider._public(key_id) for key_id in provider._keys]})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                basic = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
                client_id, _, secret = basic.partition(":")
                token = provider.clients.get((client_id, secret))
                provider.asked += 1
                if token is None:
                    self._answer(401, {"error": "invalid_client"})
                else:
                    self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600})

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self.tokens_url = f"http://127.0.0.1:{self._server.server_port}/token"

    def new_key(self) -> None:
        """From now on tokens are signed with another key, and the earlier ones are no longer published."""
        self._keys = {uuid.uuid4().hex: rsa.generate_private_key(65537, 2048)}

    def _public(self, key_id: str) -> dict[str, str]:
        document: dict[str, str] = json.loads(RSAAlgorithm.to_jwk(self._keys[key_id].public_key()))
        return {**document, "kid": key_id, "use": "sig", "alg": "RS256"}

    def token(self, user: str, seconds: float = 3600, **claims: Any) -> str:
        """A token for a user; `claims` replace those that it would have."""
        key_id, key = next(iter(self._keys.items()))
        now = int(time.time())
        usual = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + int(seconds)}
        return jwt.encode({**usual, **claims}, key, algorithm="RS256", headers={"kid": key_id})

    def close(self) -> None:
        """Stop publishing."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def trusting(provider: IdentityProvider) -> dict[str, str]:
    """The settings of a SecureCluster that takes the provider's tokens, besides passwords."""
    return {
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": provider.url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": "1",
        "connection.failed.authentication.delay.ms": "10",
    }
