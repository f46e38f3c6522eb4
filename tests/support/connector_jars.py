"""What the connectors need besides Spark, from Maven Central: PostgreSQL's driver, and Hadoop's way to S3."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pyspark

from penstock.spark.pipelines.template import DIRECTORY, hadoop_version

from .kafka_tools import FETCH_TIMEOUT_SECONDS, MAVEN_DEPENDENCY_PLUGIN, POM
from .tools import TOOLS_DIRECTORY, exclusive, want

DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions>{}</exclusions></dependency>"""
EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"
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
    reason = _fetch(packages, into)
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


def _fetch(packages: list[str], into: Path) -> str | None:
    if into.is_dir():
        return None
    maven = shutil.which("mvn")
    if maven is None:
        return want("Apache Maven", f"{into.name} is not fetched yet; install maven and run once online")
    with exclusive(into.name):
        if into.is_dir():
            return None
        partial = into.with_name(f"{into.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        exclusions = "".join(EXCLUSION.format(*each) for each in LEFT_OUT)
        dependencies = "".join(DEPENDENCY.format(*package.split(":"), exclusions) for package in packages)
        pom = partial / "pom.xml"
        pom.write_text(POM.format(dependencies=dependencies))
        command = [maven, "-q", "-B", "-f", str(pom), f"{MAVEN_DEPENDENCY_PLUGIN}:copy-dependencies"]
        command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return want("Maven Central", f"fetching took longer than {FETCH_TIMEOUT_SECONDS} s")
        if done.returncode != 0:
            complaint = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no message")
            return want("Maven Central", f"run once online; Maven says: {complaint[:300]}")
        partial.rename(into)
    return None
