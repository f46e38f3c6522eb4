"""Users' code passes mypy --strict and pyright's strict mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def test_user_code_passes_mypy_strict(tmp_path: Path) -> None:
    program = tmp_path / "users_code.py"
    program.write_text((HERE / "users_code.py").read_text())
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", str(program)]
    environment = {**os.environ, "MYPYPATH": str(SOURCE), "MYPY_CACHE_DIR": str(tmp_path)}
    checked = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_user_code_passes_pyright(tmp_path: Path) -> None:
    (tmp_path / "users_code.py").write_text((HERE / "users_code.py").read_text())
    settings = {"include": ["users_code.py"], "extraPaths": [str(SOURCE)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(tmp_path), "--pythonpath", sys.executable]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0 errors" in checked.stdout
