"""Sign-in by SCRAM: what a peer can learn of users that it does not know."""

from __future__ import annotations

import random
from base64 import b64decode
from random import Random
from typing import Any

from penstock.core.metadata.image import Image
from penstock.core.metadata.scram_credentials import PEPPER_BYTES, pepper_record
from penstock.core.security import scram
from penstock.core.security.sasl import ScramExchange
from penstock.runtime.env import SystemEnv
from penstock.runtime.security.bearer_tokens import TokenRules
from penstock.runtime.security.sign_in import DelegationTokens, SignIn, SignInSettings
from penstock.wire.messages.metadata_records import DelegationTokenRecord, UserScramCredentialRecord

SETTINGS = SignInSettings(
    ("SCRAM-SHA-256", "SCRAM-SHA-512"), {}, None, TokenRules((), None, "sub", "scope", 0), 0, 0, 0
)


def broker(*kinds: tuple[int, int], seed: int = 1, pepper: bytes = b"") -> SignIn:
    """One with a user of each kind: iterations, bytes of salt."""
    image = Image()
    if pepper:
        image.replay(pepper_record(pepper))
    made = random.Random(7)
    for number, (iterations, salt_bytes) in enumerate(kinds):
        salt = made.randbytes(salt_bytes)
        credential = scram.credential_of(scram.SHA_256, "secret", salt, iterations)
        record = UserScramCredentialRecord(
            f"user{number}", 1, salt, credential.stored_key, credential.server_key, iterations
        )
        image.replay(record)
    env = SystemEnv()
    env.random = Random(seed)
    return SignIn(env, SETTINGS, lambda: image, DelegationTokens(None))


def challenge(sign_in: SignIn, user: str, mechanism: str = "SCRAM-SHA-256") -> tuple[bytes, int]:
    """The salt and the iterations that a peer is sent."""
    exchange: Any = sign_in.begin(mechanism)
    assert isinstance(exchange, ScramExchange)
    fields = dict(
        part.split("=", 1) for part in exchange.step(f"n,,n={user},r=abc".encode()).answer.decode().split(",")
    )
    return b64decode(fields["s"]), int(fields["i"])


def test_an_unknown_user_is_challenged_like_one_that_exists() -> None:
    sign_in = broker((8192, 26), (8192, 26))
    known = {(len(salt), iterations) for salt, iterations in (challenge(sign_in, "user0"), challenge(sign_in, "user1"))}
    unknown = [challenge(sign_in, f"nobody{number}") for number in range(50)]
    assert {(len(salt), iterations) for salt, iterations in unknown} == known == {(26, 8192)}
    assert len({salt for salt, _ in unknown}) == 50


def test_unknown_users_are_of_all_the_kinds_that_there_are() -> None:
    sign_in = broker((4096, 16), (8192, 26), (16384, 100))
    unknown = {
        (len(salt), iterations) for salt, iterations in (challenge(sign_in, f"{number}") for number in range(99))
    }
    assert unknown == {(16, 4096), (26, 8192), (100, 16384)}


def test_the_challenge_is_the_same_each_time_on_every_broker_and_after_a_restart() -> None:
    kinds = ((4096, 16), (8192, 26))
    assert len({challenge(broker(*kinds, seed=seed), "nobody") for seed in range(5)}) == 1
    # Users that are added are no news about those that are not there, as long as they are of a known kind.
    assert challenge(broker(*kinds, (8192, 26)), "nobody") == challenge(broker(*kinds), "nobody")


def test_no_user_can_compute_the_challenges_of_users_that_do_not_exist() -> None:
    pepper = bytes(PEPPER_BYTES)
    challenged = challenge(broker((4096, 16), pepper=pepper), "nobody")
    # They depend on no credential, so they stay when credentials change.
    assert challenge(broker((4096, 16), (4096, 16), seed=2, pepper=pepper), "nobody") == challenged
    assert challenge(broker(seed=3, pepper=pepper), "nobody") == challenged
    assert challenge(broker((4096, 16), pepper=b"x" * PEPPER_BYTES), "nobody") != challenged
    assert challenge(broker((4096, 16)), "nobody") != challenged


def test_a_user_that_exists_takes_the_same_work() -> None:
    sign_in = broker((4096, 16))
    pretended: list[str] = []
    pretend = sign_in._pretend
    sign_in._pretend = lambda kind, user: pretended.append(user) or pretend(kind, user)  # type: ignore[method-assign,func-returns-value]
    for user in ("user0", "nobody"):
        challenge(sign_in, user)
    assert pretended == ["user0", "nobody"]


def test_without_any_user_there_are_still_challenges() -> None:
    sign_in = broker()
    salt, iterations = challenge(sign_in, "nobody", "SCRAM-SHA-512")
    assert (len(salt), iterations) == (16, scram.ITERATIONS_MIN)
    assert challenge(sign_in, "nobody", "SCRAM-SHA-512") == (salt, iterations)


def test_a_token_that_was_expired_or_removed_is_not_usable() -> None:
    image = Image()
    sign_in = SignIn(SystemEnv(), SETTINGS, lambda: image, DelegationTokens("key"))
    now_ms = SystemEnv().now_ms()
    assert not sign_in.is_usable("token")
    image.replay(DelegationTokenRecord("User:a", "User:a", (), 0, now_ms + 10**6, now_ms + 10**6, "token"))
    assert sign_in.is_usable("token")
    image.replay(DelegationTokenRecord("User:a", "User:a", (), 0, now_ms + 10**6, now_ms - 1, "token"))
    assert not sign_in.is_usable("token")
