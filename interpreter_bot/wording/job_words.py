"""Jobs: code that goes on in the background."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

JOB_GOES_ON: Final = (
    "This takes longer, so it goes on in the background. You are told when it is done. Until then "
    "you can go on asking, but no other code can run in this conversation."
)
JOB_WENT_ON: Final = "This went on in the background."


def job_is_running(seconds: float) -> str:
    since = quantities.duration(max(round(seconds), 1))
    return (
        f"Code of this conversation has been running in the background for {since}. Other code can "
        "run once it is done or stopped."
    )


def too_many_jobs(limit: int) -> str:
    runs = quantities.count(limit, "long run")
    return f"{runs} may go on at a time, and that many do. Try again when one is done."


def too_many_own_jobs(limit: int) -> str:
    runs = quantities.count(limit, "long run")
    return f"One person may have {runs} at a time. Try again when one of yours is done."


def job_done(seconds: float) -> str:
    return f"The code in the background is done, after {quantities.duration(round(seconds))}."


def job_stopped(seconds: float) -> str:
    return f"The code in the background was stopped after {quantities.duration(round(seconds))}."


def job_failed(seconds: float) -> str:
    return f"The code in the background failed after {quantities.duration(round(seconds))}."
