"""Detect a model that goes round in circles. Pure.

Three circles are known: the same code again though nothing else ran in between, different code
with the same error, and calls that cannot be read.
"""

from __future__ import annotations

from typing import Final

from interpreter_bot import values

REFUSAL: Final = "[Not run again: "
"""The beginning of a refusal of `refusal_of`."""
_REPEATED: Final = (
    REFUSAL + "this is exactly the code that ran just before, and its output is above. {advice}]"
)
_AFTER_SUCCESS: Final = "It worked. Answer the person now, or run different code."
_AFTER_FAILURE: Final = "It failed. Take another way, with other functions."


class RepetitionDetector:
    """Detects repeated code and errors in one turn.

    Attributes:
        refusals: identical repeats refused, in a row.
        failures: executions that failed in the same way, in a row.
        misreadings: calls that could not be read, in a row.
        setbacks: steps in a row, of any kind, that brought nothing new.
        has_succeeded: some code has run to its end.
    """

    def __init__(self) -> None:
        self.refusals = 0
        self.failures = 0
        self.misreadings = 0
        self.setbacks = 0
        self.has_succeeded = False
        self._last_code = ""
        self._last_failed = False
        self._last_error: tuple[str, str] | None = None

    def refusal_of(self, code: str) -> str | None:
        """Return the message to the model why this code is not run; None if it is."""
        self.misreadings = 0
        if _essence(code) != self._last_code:
            self.refusals = 0
            return None
        self.refusals += 1
        self.setbacks += 1
        advice = _AFTER_FAILURE if self._last_failed else _AFTER_SUCCESS
        return _REPEATED.format(advice=advice)

    def misread(self) -> None:
        """Count a call that could not be read."""
        self.misreadings += 1
        self.setbacks += 1

    def ran(self, code: str, finished: values.Finished, error: values.Error | None) -> None:
        """Record how code ended."""
        # Code that did not run, or ran in a kernel that is gone, may well be run again.
        is_gone = finished.kernel_lost or finished.ending is values.Ending.REFUSED
        self._last_code = "" if is_gone else _essence(code)
        self._last_failed = finished.ending is not values.Ending.OK
        if not self._last_failed:
            self.has_succeeded = True
            self.failures, self.setbacks, self._last_error = 0, 0, None
            return
        failure = (error.name, error.message) if error else (finished.ending.value, "")
        self.failures = self.failures + 1 if failure == self._last_error else 1
        self._last_error = failure
        self.setbacks += 1

    @property
    def last_failure(self) -> str:
        """Return the last error in a few words."""
        name, message = self._last_error or ("", "")
        return f"{name}: {message[:200]}" if message else name


def _essence(code: str) -> str:
    """Normalise code: drop blank lines and comments on lines of their own."""
    lines = (line.rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
