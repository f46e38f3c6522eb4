"""What the connectors need besides Spark, from Maven Central: PostgreSQL's driver, and Hadoop's way to S3."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pyspark

from penstock.spark.pipelines.template import DIRECTORY, hadoop_version

from ..maven import fetch_jars
from ..tools import TOOLS_DIRECTORY

# Spark has these already, or has no use for them, and the bundle has 600 MB.
LEFT_OUT = (
    ("software.amazon.awssdk", "bundle"),
    ("software.amazon.encryption.s3", "*"),
    ("software.amazon.awssdk.crt", "*"),
    ("org.apache.parquet", "*"),
    ("com.fasterxml.jackson.core", "*"),
    ("org.slf4j", "*"),
)


@functools.cache
def connector_library_jars() -> tuple[Path, ...] | str:
    """The jars that the templates name in spark.jars.packages, for `spark.jars`; or the reason they cannot be had."""
    packages = sorted(set().union(*(_packages(path) for path in DIRECTORY.glob("*.yaml"))))
    into = TOOLS_DIRECTORY / f"spark-connectors-{hadoop_version()}"
    coordinates = [(group, artifact, version) for group, artifact, version in (each.split(":") for each in packages)]
    reason = fetch_jars(coordinates, into, LEFT_OUT)
    if reason is not None:
        return reason
    own = {_artifact(path) for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return tuple(path for path in sorted(into.glob("*.jar")) if _artifact(path) not in own)


def _packages(template: Path) -> set[str]:
    text = template.read_text("utf-8").replace("\\\n    ", "")
    found = re.search(r'spark\.jars\.packages: "?([^"\n]+)', text)
    version = hadoop_version() or ""
    return {re.sub(r"(hadoop-aws:).*", rf"\g<1>{version}", each) for each in found[1].split(",")} if found else set()


def _artifact(path: Path) -> str:
    return re.sub(r"-\d[\w.]*$", "", path.stem)
