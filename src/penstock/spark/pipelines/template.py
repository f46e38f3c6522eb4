"""The templates of `penstock pipeline init`: runnable pipelines with explanations."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

DIRECTORY = Path(__file__).with_name("templates")
DEFAULT = "orders"


def names() -> list[str]:
    """All templates' names."""
    return sorted(path.stem for path in DIRECTORY.glob("*.yaml"))


def summary(template: str) -> str:
    """The purpose of a template, in one line."""
    first = (DIRECTORY / f"{template}.yaml").read_text("utf-8").partition("\n")[0]
    return first.removeprefix("# ")


def render(name: str, topic: str, bootstrap: str, file: str, template: str = DEFAULT) -> str:
    """A template for a name, a topic and a cluster.

    Templates are pipelines of the topic `orders`, and of topics whose names start with it. Hadoop libraries get the
    version that the installed Spark uses: they must match.
    """
    text = (DIRECTORY / f"{template}.yaml").read_text("utf-8")
    text = re.sub(r"(?m)^name: .*$", lambda _: f"name: {name}", text, count=1)
    text = re.sub(r"(?m)^bootstrap: .*$", lambda _: f"bootstrap: {bootstrap}", text, count=1)
    text = re.sub(r"(?m)^(\s+topic: )orders\b", lambda found: f"{found[1]}{topic}", text)
    text = text.replace("dlq.orders", f"dlq.{topic}")
    text = re.sub(rf"\b{re.escape(template)}\.yaml\b", lambda _: file, text)
    version = hadoop_version()
    return re.sub(r"(hadoop-aws:)[\d.]+", lambda found: found[1] + version, text) if version else text


def hadoop_version() -> str | None:
    """The version of Hadoop in the installed PySpark; None if there is none."""
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec is not None and spec.origin is not None else None
    found = sorted(jars.glob("hadoop-client-api-*.jar")) if jars is not None else []
    return found[0].stem.removeprefix("hadoop-client-api-") if found else None
