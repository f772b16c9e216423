"""Approvals of a kernel's requests."""

import asyncio

import pytest

from interpreter_bot import code_activity, values
from interpreter_bot.egress import approvals


def _contact(method):
    return code_activity.Contact("web///x", "kernel", method=method, host="example.org", port=443)


@pytest.mark.looptime
async def test_an_approved_request_does_not_wait_for_the_answer_about_another():
    was_asked = asyncio.Event()

    async def ask(request):
        if request.grant.startswith("POST"):
            was_asked.set()
            await asyncio.Event().wait()
        return values.FOR_SESSION

    kernel_approvals = approvals.Approvals(ask)
    await kernel_approvals.require(_contact("GET"), target="/", body_beginning=b"")
    post = asyncio.create_task(
        kernel_approvals.require(_contact("POST"), target="/", body_beginning=b"")
    )
    await was_asked.wait()
    async with asyncio.timeout(60):
        await kernel_approvals.require(_contact("GET"), target="/", body_beginning=b"")
    assert not post.done()
    post.cancel()
    await asyncio.wait({post})
