from __future__ import annotations

from penstock.config.document import DOCUMENT_PATH, document
from penstock.config.tables import BROKER_PROPERTIES, TOPIC_PROPERTIES


def test_the_page_is_current() -> None:
    written = DOCUMENT_PATH.read_text(encoding="utf-8")
    assert written == document(), "run python -m penstock.config.document"


def test_the_page_has_every_setting() -> None:
    page = document()
    for row in (*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values()):
        assert (f"| `{row.name}` |" in page) == (not row.internal), row.name
