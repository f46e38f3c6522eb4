"""YAML with line numbers, so that every error names the line and the fix."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from typing import Any

import yaml

Path = tuple[str | int, ...]
DOCUMENT_BYTES_MAX = 1024 * 1024
# ${NAME} or ${NAME:-default}: from the environment, which is where passwords belong.
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class PipelineError(Exception):
    """An error in a pipeline's file: its line, the problem, and the fix."""

    def __init__(self, file: str, line: int, what: str, fix: str) -> None:
        super().__init__(f"{file}:{line}: {what}")
        self.file = file
        self.line = line
        self.what = what
        self.fix = fix


class Section:
    """A mapping in the file. Reading a field marks it as known; `finish` reports those that nothing read."""

    def __init__(self, document: Document, path: Path, fields: dict[str, Any]) -> None:
        self._document = document
        self._path = path
        self._fields = fields
        self._known: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    @property
    def line(self) -> int:
        return self._document.line(self._path)

    def line_of(self, name: str) -> int:
        """The line of a field, or of the section if the field is missing."""
        return self._document.line((*self._path, name)) if name in self._fields else self.line

    def error(self, what: str, fix: str, name: str | None = None) -> PipelineError:
        """An error about a field, or about the section."""
        line = self.line if name is None else self.line_of(name)
        return PipelineError(self._document.file, line, what, fix)

    def value(self, name: str) -> Any:
        """A field's raw value, None if it is missing."""
        self._known.add(name)
        return self._fields.get(name)

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text field; numbers and booleans count as text too."""
        value = self.value(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            raise self.error(f"{name} must be a string", f"write {name}: some text", name)
        return str(value)

    def expanded(self, name: str) -> str | None:
        """A text field with environment variables expanded."""
        value = self.text(name)
        return None if value is None else self._expand(value, name)

    def required(self, name: str, example: str) -> str:
        """A mandatory field."""
        value = self.text(name)
        if value is None or not value.strip():
            raise self.error(f"{self.title} has no {name}", f"add {name}: {example}", name)
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """A field with a few possible values."""
        value = self.text(name, default) or default
        if value not in choices:
            raise self.error(f"{name} is {value!r}", f"write one of {', '.join(choices)}", name)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(f"{name} must be true or false, not {value!r}", f"write {name}: true", name)
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """A field that is one name or a list of names."""
        value = self.value(name)
        if value is None:
            return ()
        words = value if isinstance(value, list) else [value]
        if not all(isinstance(word, str) for word in words):
            raise self.error(f"{name} must be a name or a list of names", f"write {name}: [first, second]", name)
        return tuple(words)

    def options(self, name: str) -> dict[str, str]:
        """A mapping of names to values, such as Spark's or Kafka's settings."""
        value = self.value(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or any(isinstance(each, dict | list) for each in value.values()):
            raise self.error(f"{name} must be a mapping of names to values", f"write {name}: {{key: value}}", name)
        texts = {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in value.items()}
        return {key: self._expand(text, name) for key, text in texts.items()}

    def section(self, name: str) -> Section | None:
        """A nested mapping."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(f"{name} must be a mapping", f"write {name}: and its fields, indented, below", name)
        return Section(self._document, (*self._path, name), value)

    def sections(self, name: str) -> Iterator[tuple[str, Section]]:
        """The mappings below a field, in the file's order."""
        outer = self.section(name)
        for key in outer._fields if outer is not None else ():
            assert outer is not None
            inner = outer.section(key)
            if inner is None:
                raise outer.error(f"{key} is empty", "write its fields, indented, below", key)
            yield key, inner

    def _expand(self, text: str, name: str) -> str:
        def value_of(found: re.Match[str]) -> str:
            value = os.environ.get(found[1], found[2])
            if value is None:
                fix = f"export {found[1]}=…, or write ${{{found[1]}:-a default}}"
                raise self.error(f"{name} needs the environment variable {found[1]}, which is not set", fix, name)
            return value

        return _VARIABLE.sub(value_of, text)

    @property
    def title(self) -> str:
        return ".".join(map(str, self._path)) or "the pipeline"

    def finish(self) -> None:
        """Raise an error for a field that was not read: it is misspelt, or in the wrong section."""
        for name in self._fields:
            if name not in self._known:
                close = difflib.get_close_matches(name, self._known, 1)
                known = ", ".join(sorted(self._known))
                fix = f"write {close[0]}" if close else f"known fields: {known}"
                raise self.error(f"{self.title} has an unknown field {name!r}", fix, name)


class Document:
    """A parsed file with the line of every field."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self._lines: dict[Path, int] = {}
        if len(text) > DOCUMENT_BYTES_MAX:
            raise PipelineError(file, 1, "the file is larger than a megabyte", "is it a pipeline?")
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark is not None else 1
            raise PipelineError(
                file, line, f"this is not valid YAML: {error.problem}", "check indents and quotes"
            ) from None
        if not isinstance(node, yaml.MappingNode):
            raise PipelineError(file, 1, "the file is not a mapping", "start it with name: my-pipeline")
        self._note(node, ())
        self._loader = yaml.SafeLoader("")
        self.root = Section(self, (), self._loader.construct_document(node))

    def line(self, path: Path) -> int:
        return self._lines.get(path, 1)

    def _note(self, node: yaml.Node, path: Path) -> None:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                name = str(key.value)
                if name in seen:
                    line = key.start_mark.line + 1
                    raise PipelineError(self.file, line, f"{name} is duplicated", "remove or rename one of them")
                seen.add(name)
                self._lines[(*path, name)] = key.start_mark.line + 1
                self._note(value, (*path, name))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self._note(value, (*path, index))
