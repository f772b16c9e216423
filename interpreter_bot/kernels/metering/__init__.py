"""Metering of sessions from /proc, where no cgroup counts for the bot.

Only measures; `kernels.session_monitors` and `kernels.watchdog_loop` decide what follows. The
processes are hostile: each reading is bounded in time and bytes.
"""
