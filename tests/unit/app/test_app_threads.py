"""The thread that makes calls, and the watch over code."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from penstock.app.lines.call_thread import CallThread
from penstock.app.running.reloading import CodeWatch


def test_calls_are_made_in_order_by_one_thread_and_tell_of_failures() -> None:
    thread = CallThread("calls")
    idents = [thread.submit(threading.get_ident) for _ in range(3)]
    failing = thread.submit(lambda: 1 // 0)
    assert len({future.result(10) for future in idents}) == 1
    with pytest.raises(ZeroDivisionError):
        failing.result(10)
    thread.close()


def test_a_call_that_waits_lets_others_be_made() -> None:
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


def test_code_has_changed_when_it_stays_changed(tmp_path: Path) -> None:
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
        (tmp_path / name).write_text("nothing to look at")
    assert [watch.has_changed(), watch.has_changed()] == [False, False]
    code.unlink()
    assert [watch.has_changed(), watch.has_changed()] == [False, True]
