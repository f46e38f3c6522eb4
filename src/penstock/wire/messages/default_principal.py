"""Messages of the embedded family.

Generated from definitions/default_principal.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class DefaultPrincipalData(NamedTuple):
    """Version 0, flexible from 0."""

    type: str = ""
    name: str = ""
    token_authenticated: bool = False
