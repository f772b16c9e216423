from interpreter_bot import values
from interpreter_bot.sessions import tool_approvals

KEY = values.SessionKey("web", thread="t")
ONE, OTHER = (tool_approvals.ToolApproval(who, "jira", "delete", "d") for who in ("u1", "u2"))


def test_what_was_allowed_ends_with_the_kernel_and_is_nobody_elses():
    approvals = tool_approvals.ToolApprovals()
    approvals.add(KEY, "k1", ONE)
    assert OTHER not in approvals.of(KEY, "k1")
    assert not approvals.of(values.SessionKey("web", thread="other"), "k1")
    approvals.add(KEY, "k1", OTHER)
    assert approvals.of(KEY, "k1") == {ONE, OTHER}
    assert not approvals.of(KEY, "k2")
    approvals.add(KEY, "k2", ONE)
    assert not approvals.of(KEY, "k1")


def test_the_oldest_sessions_are_forgotten_of_too_many(monkeypatch):
    monkeypatch.setattr(tool_approvals, "_MAX_SESSIONS", 2)
    approvals = tool_approvals.ToolApprovals()
    keys = [values.SessionKey("web", thread=name) for name in "abc"]
    for key in keys:
        approvals.add(key, "k", ONE)
    assert [bool(approvals.of(key, "k")) for key in keys] == [False, True, True]
