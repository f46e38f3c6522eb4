"""Spark's own Kafka connector, unmodified, from the jars that Maven Central publishes."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

from .kafka_tools import MAVEN_DEPENDENCY_PLUGIN, SCALA_VERSION
from .tools import TOOLS_DIRECTORY, exclusive, want

FETCH_TIMEOUT_SECONDS = 300
KAFKA_CLIENTS_VERSION = "3.9.1"
POOL_VERSION = "2.12.0"
# Not every mirror has every version of each part; these go together and work with any Spark 4.
VERSIONS_KNOWN = (("4.2.0", "4.0.0"), ("4.0.1", "4.0.0"))


@functools.cache
def connector_jars() -> tuple[str, tuple[Path, ...]] | str:
    """The connector's version and its jars, for `spark.jars`; or the reason they cannot be had."""
    import pyspark

    choices = ((pyspark.__version__, pyspark.__version__), *VERSIONS_KNOWN)
    # What was fetched before goes first: asking for what is not there takes its time.
    choices = tuple(sorted(choices, key=lambda each: not _directory(each[0]).is_dir()))
    problem = ""
    for connector, token_provider in choices:
        directory = _directory(connector)
        reason = _fetch(directory, connector, token_provider)
        if reason is None:
            return connector, tuple(sorted(directory.glob("*.jar")))
        problem = problem or reason
    return problem


def _directory(connector: str) -> Path:
    return TOOLS_DIRECTORY / f"spark-kafka-{connector}"


def _fetch(into: Path, connector: str, token_provider: str) -> str | None:
    if into.is_dir():
        return None
    maven = shutil.which("mvn")
    if maven is None:
        return want("Apache Maven", f"{into.name} is not fetched yet; install maven and run once online")
    artifacts = (
        f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{connector}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA_VERSION}:{token_provider}",
        f"org.apache.kafka:kafka-clients:{KAFKA_CLIENTS_VERSION}",
        f"org.apache.commons:commons-pool2:{POOL_VERSION}",
    )
    with exclusive(into.name):
        partial = into.with_name(f"{into.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        for artifact in artifacts:
            command = [maven, "-q", "-B", f"{MAVEN_DEPENDENCY_PLUGIN}:copy", f"-Dartifact={artifact}"]
            try:
                done = subprocess.run(
                    [*command, f"-DoutputDirectory={partial}"],
                    capture_output=True,
                    text=True,
                    timeout=FETCH_TIMEOUT_SECONDS,
                    cwd=TOOLS_DIRECTORY,
                )
            except subprocess.TimeoutExpired:
                return want("Maven Central", f"fetching {artifact} took longer than {FETCH_TIMEOUT_SECONDS} s")
            if done.returncode != 0:
                return want("Maven Central", f"{artifact} cannot be had")
        partial.rename(into)
    return None
