"""Metering of sessions from /proc, where no cgroup counts for the bot.

Only measures; `kernels.monitors` and `kernels.watchdogs` decide what follows. The processes are
hostile: each reading is bounded in time and bytes.
"""
