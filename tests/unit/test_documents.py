"""Generated pages say what the code says."""

from __future__ import annotations

from penstock.api.document import DOCUMENT_PATH, document


def test_the_page_of_supported_apis_is_current() -> None:
    assert DOCUMENT_PATH.read_text() == document(), "run `make docs`"
