"""Finds an application by name: `module:app`."""

from __future__ import annotations

import importlib
import os
import sys

from penstock.app.application import App
from penstock.client.application.errors import PenstockError


def load(name: str) -> App:
    """The application that `module:attribute` names, from the working directory or the environment."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise PenstockError(f"{name!r} names no application", "", "write module:app, such as shop.orders:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and not module_name.startswith(error.name):
            raise
        advice = f"run it where {module_name.partition('.')[0]} is, or install it"
        raise PenstockError(f"there is no module {module_name}", str(error), advice) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        names = [each for each, value in vars(module).items() if isinstance(value, App)]
        advice = f"it has {', '.join(names)}" if names else "make one: app = penstock.App('name')"
        raise PenstockError(f"{module_name} has no application {attribute!r}", "", advice)
    return found
