"""The error response to a request: what happened, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping


class Problem(Exception):
    """Ends a request with an error.

    `code` is the API's own error code, which starts with the HTTP status; `fix` is what the caller can do about it.
    """

    def __init__(self, code: int, message: str, fix: str = "", *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = int(str(code)[:3])
        self.code = code
        self.message = message
        self.fix = fix
        self.headers = dict(headers or {})

    def as_json(self) -> dict[str, object]:
        """The body of the response; the message contains the fix too, for clients that show nothing else."""
        body: dict[str, object] = {"error_code": self.code, "message": self.message}
        if self.fix:
            body["message"] = f"{self.message}; {self.fix}"
            body["fix"] = self.fix
        return body


def invalid(status: int, message: str, fix: str) -> Problem:
    """The Problem for an invalid body; its status differs from API to API."""
    return Problem(40002 if status == 400 else status, message, fix)


def too_busy(what: str, retry_after_s: int = 1) -> Problem:
    """429 with Retry-After: the caller should retry later."""
    return Problem(42901, what, f"try again in {retry_after_s} s", headers={"Retry-After": str(retry_after_s)})
