"""Whom a controller lets sign in between its start and the first word from the quorum."""

from __future__ import annotations

import asyncio
from pathlib import Path

from test_access_settings import security

from penstock.core.metadata.image import Image
from penstock.wire.messages.metadata_records import (
    FeatureLevelRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

ANN, BOB = (UserScramCredentialRecord(name, 1, b"salt", b"stored", b"server", 4096) for name in ("ann", "bob"))
CHANGED = ANN._replace(stored_key=b"another")


def test_users_of_the_log_count_until_it_is_known_what_is_committed(tmp_path: Path) -> None:
    async def story() -> None:
        node = security(tmp_path, "")
        image = Image()
        for record in (FeatureLevelRecord("metadata.version", 27), ANN, BOB):
            image.replay(record)
        node.start(image, [TopicRecord("t", b"t" * 16), CHANGED, RemoveUserScramCredentialRecord("bob", 1)])
        assert node._known().security.credentials == {("ann", 1): CHANGED}
        assert image.security.credentials == {("ann", 1): ANN, ("bob", 1): BOB}
        node.committed([])
        assert node._known() is image

    asyncio.run(story())


def test_without_such_records_it_is_the_snapshot_or_what_the_cluster_was_formatted_with(tmp_path: Path) -> None:
    async def story() -> None:
        node = security(tmp_path, "")
        node.start(Image(), [TopicRecord("t", b"t" * 16)])
        assert node._known() is node._bootstrap_image

    asyncio.run(story())
