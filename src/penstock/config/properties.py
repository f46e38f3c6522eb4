"""What a property is: its name, type, default, limits, and how its text is read and written.

Values of each type, as `Property.parse` returns them: BOOLEAN bool; INT, SHORT and LONG int; DOUBLE float;
LIST tuple[str, ...]; STRING, CLASS and PASSWORD str. A default may also be None, "not set".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, IntEnum

from penstock.model.errors import ApiError, ErrorCode

Value = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class PropertyType(IntEnum):
    """The types of Kafka's ConfigDef, with the codes that DescribeConfigs reports."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """Where a property can be changed while the cluster runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    DYNAMIC_ONLY = "per-broker, and not in its file"


class Effect(Enum):
    """What Penstock does with a property that Kafka knows."""

    ACTED_ON = "acted on"
    PLANNED = "checked, not yet acted on"
    ACCEPTED = "accepted, no use for it"
    REFUSED = "nothing but the default is accepted"


class Required:
    """The type of REQUIRED."""

    def __repr__(self) -> str:
        return "REQUIRED"


# The default of a property that has none and must be set.
REQUIRED = Required()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with a configuration: the property to look at, and a sentence about what to do."""

    name: str
    text: str


class ConfigError(ApiError):
    """A configuration that cannot be used. A client that sent it gets INVALID_CONFIG, unless another code is given.

    `findings` holds everything that is wrong, not only what was met first.
    """

    def __init__(self, findings: Iterable[Finding], code: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
        self.findings = tuple(findings)
        super().__init__(code, "\n".join(finding.text for finding in self.findings))


def config_error(name: str, text: str) -> ConfigError:
    """The error for one property."""
    return ConfigError([Finding(name, text)])


_BITS = {PropertyType.SHORT: 16, PropertyType.INT: 32, PropertyType.LONG: 64}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
# How much may be set: a list of the replicas of some ten thousand partitions fits.
SETTINGS_MAX = 1_000
NAME_LENGTH_MAX = 256
VALUE_LENGTH_MAX = 256 * 1024
_UNITS = (
    (("ms", "millis"), " of milliseconds"),
    (("seconds", "secs"), " of seconds"),
    (("minutes",), " of minutes"),
    (("hours",), " of hours"),
    (("bytes",), " of bytes"),
)


@dataclass(frozen=True, slots=True)
class Property:
    """One row of the table. `minimum`, `maximum` and `choices` limit the value; `exceptions` are allowed besides."""

    name: str
    type: PropertyType
    default: Value | Required
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    exceptions: tuple[int, ...] = ()
    update: UpdateMode = UpdateMode.READ_ONLY
    effect: Effect = Effect.ACTED_ON
    reason: str = ""
    internal: bool = False
    ignore_case: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return self.type is PropertyType.PASSWORD

    @property
    def field(self) -> str:
        """The name of the attribute that holds this property in a settings dataclass."""
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """Read a value; raises ConfigError with a sentence for people."""
        text = text.strip()
        match self.type:
            case PropertyType.BOOLEAN:
                return self._boolean(text)
            case PropertyType.INT | PropertyType.SHORT | PropertyType.LONG:
                return self._whole_number(text)
            case PropertyType.DOUBLE:
                return self._number(text)
            case PropertyType.LIST:
                items = text.split(",") if text else ()
                return tuple(self._choice(text, item.strip()) for item in items)
            case _:
                return self._choice(text, text)

    def accept(self, text: str) -> Value:
        """Read a new value; raises ConfigError also for what Penstock does not offer."""
        value = self.parse(text)
        if self.effect is Effect.REFUSED and value != self.default_value:
            default = f", or set it to {self.default_text}" if self.default_text else ""
            why = self.reason.removesuffix(".")
            raise config_error(self.name, f"{self.name}={text.strip()}: {why}; leave it out{default}")
        return value

    def format(self, value: Value) -> str | None:
        """The text that Kafka's tools show for a value; None stays None."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return repr(value).replace("e+", "E").replace("e", "E")
        return str(value)

    @property
    def default_value(self) -> Value:
        """The default; None when there is none."""
        return None if isinstance(self.default, Required) else self.default

    @property
    def default_text(self) -> str | None:
        """The default as text; None when there is none."""
        return self.format(self.default_value)

    def expectation(self) -> str:
        """What a valid value looks like, as the end of the sentence "expected …"."""
        match self.type:
            case PropertyType.BOOLEAN:
                return "true or false"
            case PropertyType.INT | PropertyType.SHORT | PropertyType.LONG | PropertyType.DOUBLE:
                noun = "a number" if self.type is PropertyType.DOUBLE else "a whole number"
                return noun + self._unit() + self._limits()
            case PropertyType.LIST if self.choices:
                return f"a comma-separated list of {', '.join(self.choices)}"
            case PropertyType.LIST:
                return "a comma-separated list"
            case _ if self.choices:
                return f"one of {', '.join(self.choices)}"
            case _:
                return "text"

    def _boolean(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise self._refusal(text)
        return lowered == "true"

    def _whole_number(self, text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text) or len(text) > 20:
            raise self._refusal(text)
        value = int(text)
        limit = 1 << (_BITS[self.type] - 1)
        if not -limit <= value < limit:
            raise self._refusal(text, f" between {-limit} and {limit - 1}")
        self._check_limits(text, value)
        return value

    def _number(self, text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise self._refusal(text)
        value = float(text)
        self._check_limits(text, value)
        return value

    def _check_limits(self, text: str, value: float) -> None:
        if value in self.exceptions:
            return
        if (self.minimum is not None and value < self.minimum) or (self.maximum is not None and value > self.maximum):
            raise self._refusal(text)

    def _choice(self, text: str, item: str) -> str:
        if not self.choices or item in self.choices:
            return item
        for choice in self.choices:
            if choice.lower() == item.lower():
                if self.ignore_case:
                    return choice
                raise self._refusal(text, f" (upper and lower case matter: {choice})")
        raise self._refusal(text)

    def _refusal(self, text: str, addition: str = "") -> ConfigError:
        shown = "[hidden]" if self.sensitive else text
        example = self._example()
        return config_error(self.name, f"{self.name}={shown}: expected {self.expectation()}{addition}{example}")

    def _example(self) -> str:
        numeric = self.type in (*_BITS, PropertyType.DOUBLE)
        if not numeric or self.default_value in (None, -1):
            return ""
        return f", for example {self.default_text}"

    def _unit(self) -> str:
        last = self.name.rsplit(".", 1)[-1]
        return next((unit for endings, unit in _UNITS if last in endings), "")

    def _limits(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            limits = f" from {self.minimum} to {self.maximum}"
        elif self.minimum is not None:
            limits = f", at least {self.minimum}"
        else:
            limits = ""
        return limits + "".join(f", or {value}" for value in self.exceptions)


def check_sizes(settings: Iterable[tuple[str, str | None]]) -> None:
    """Raises ConfigError for more, or longer, settings than a node needs: every node reads them again and again."""
    for count, (name, value) in enumerate(settings, 1):
        if count > SETTINGS_MAX:
            raise config_error(name[:NAME_LENGTH_MAX], f"more than {SETTINGS_MAX} settings are changed at once")
        if len(name) > NAME_LENGTH_MAX:
            shown = name[:NAME_LENGTH_MAX]
            raise config_error(shown, f"{shown}…: the name has {len(name)} characters, {NAME_LENGTH_MAX} are allowed")
        if value is not None and len(value) > VALUE_LENGTH_MAX:
            text = f"{name}: the value has {len(value)} characters, {VALUE_LENGTH_MAX} are allowed"
            raise config_error(name, text)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that someone who typed `name` most likely meant, if any is close."""
    matches = get_close_matches(name, list(known), n=1, cutoff=0.85)
    return matches[0] if matches else None


def index(properties: Iterable[Property]) -> dict[str, Property]:
    """Properties by name, in name order."""
    return {row.name: row for row in sorted(properties, key=lambda row: row.name)}
