"""Futures that have their result from the beginning."""

import asyncio


def completed_future(result):
    """Return a future that has this result already."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future
