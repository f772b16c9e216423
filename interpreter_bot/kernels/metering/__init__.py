"""Metering of sessions from /proc, for machines without cgroups that count.

This package only measures; `kernels.session_monitors` and `kernels.watchdog_loop` act on the
results. The processes are hostile: each reading is bounded in time and bytes.
"""
