"""A process with one Spark session that runs pipelines' files when it is told to, and may be made to crash.

A session of its own, since libraries for databases and object stores must be there when Java starts. Run as a module,
this file is that process: a line of JSON in for each run, a line out when it is done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..tools import REPOSITORY

DONE = "pipeline: "


class PipelineRunner:
    """Runs pipelines to their end, in a process that is started when it is needed."""

    def __init__(self, directory: Path, jars: Sequence[Path], environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._jars = jars
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    def run(self, file: Path, bootstrap: str, crash: str = "") -> None:
        """Run a pipeline once; AssertionError if it fails. With `crash` the process dies on the way: see `_crash`."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"file": str(file), "bootstrap": bootstrap, "crash": crash}) + "\n")
        process.stdin.flush()
        said = next((line for line in process.stdout if line.startswith(DONE)), "")
        if crash:
            assert said == "", f"{file} was to crash: {said}"
            process.wait()
            self.close()
            return
        assert said == f"{DONE}done\n", said or (self._directory / "spark.log").read_text()[-3000:]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            path = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY / "tests")))
            settings = {
                "spark.jars": ",".join(map(str, self._jars)),
                "spark.ui.enabled": "false",
                "spark.local.dir": str(self._directory / "local"),
                "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
            }
            with (self._directory / "spark.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "support.spark.pipeline_runner", json.dumps(settings)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env={**os.environ, **self._environment, "PYTHONPATH": path},
                )
        return self._process


def _crash(where: str) -> None:
    """Die at one of the places where it hurts, or break what should make up for it."""
    from penstock.spark.pipelines import jdbc_polling, jdbc_sink

    def die(*_: Any) -> None:
        os._exit(9)

    if where == "before rows appear":
        jdbc_polling._Files.rename = die  # type: ignore[method-assign]
    elif where == "after rows are committed":
        write = jdbc_sink.JdbcWriter.__call__

        def write_and_die(writer: jdbc_sink.JdbcWriter, frame: Any, batch_id: int) -> None:
            write(writer, frame, batch_id)
            die()

        jdbc_sink.JdbcWriter.__call__ = write_and_die  # type: ignore[method-assign]
    elif where == "after rows are committed, and forget that":
        jdbc_sink._advance = lambda *_: True
        _crash("after rows are committed")


def main(settings: dict[str, str]) -> None:
    from penstock.spark import session
    from penstock.spark.pipelines.document import PipelineError
    from penstock.spark.pipelines.running import run
    from penstock.spark.pipelines.spec import load_pipeline

    spark = session("connectors", master="local[2]", settings=settings)
    for line in sys.stdin:
        order = json.loads(line)
        _crash(order["crash"])
        try:
            pipeline = load_pipeline(Path(order["file"]), order["bootstrap"])
            # The session is there already: of what the file wants of Spark, only this can be had later.
            for name, value in pipeline.spark.items():
                if name.startswith("spark.hadoop."):
                    spark._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)  # type: ignore[attr-defined]
            run(spark, pipeline, once=True, show=lambda _: None)
            said = "done"
        except PipelineError as error:
            said = f"{error} ({error.fix})"
        sys.stdout.write(f"{DONE}{said}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
