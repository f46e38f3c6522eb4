"""CallThread and CodeWatch."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from penstock.app.processing.call_thread import CallThread
from penstock.app.running.reloading import CodeWatch


def test_calls_run_in_order_in_one_thread_and_their_futures_raise() -> None:
    thread = CallThread("calls")
    idents = [thread.submit(threading.get_ident) for _ in range(3)]
    failing = thread.submit(lambda: 1 // 0)
    assert len({future.result(10) for future in idents}) == 1
    with pytest.raises(ZeroDivisionError):
        failing.result(10)
    thread.close()


def test_waiting_call_lets_later_calls_run() -> None:
    thread = CallThread("calls")
    awaited: Future[str] = Future()
    waiting = thread.submit(lambda: thread.wait(awaited, 30))
    assert thread.submit(lambda: "made meanwhile").result(10) == "made meanwhile"
    assert not waiting.done()
    awaited.set_result("over")
    assert waiting.result(10) == "over"
    assert thread.submit(lambda: "afterwards").result(10) == "afterwards"
    with pytest.raises(TimeoutError):
        thread.submit(lambda: thread.wait(Future(), 0.01)).result(10)
    thread.close()


def test_code_change_is_reported_once_files_are_stable(tmp_path: Path) -> None:
    code = tmp_path / "shop" / "orders.py"
    code.parent.mkdir()
    code.write_text("first")
    watch = CodeWatch(tmp_path)
    assert not watch.has_changed()

    def change(seconds: int) -> None:
        os.utime(code, (seconds, seconds))

    change(1)
    assert not watch.has_changed(), "it may still be being written"
    change(2)
    assert not watch.has_changed()
    assert watch.has_changed()
    watch = CodeWatch(tmp_path)
    for name in (".hidden/orders.py", "__pycache__/orders.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("not watched")
    assert [watch.has_changed(), watch.has_changed()] == [False, False]
    code.unlink()
    assert [watch.has_changed(), watch.has_changed()] == [False, True]
