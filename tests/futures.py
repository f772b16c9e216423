"""Futures of what is there already."""

import asyncio


def done(content):
    """A future of what is given."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(content)
    return future
