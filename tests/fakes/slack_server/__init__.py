"""A strict loopback Slack: Web API, Socket Mode, HTTP events, files, streaming, faults on demand.

async with servers.Server() as slack:
    … the real bolt app with `api_base_url=slack.base_url` …
    ts = await slack.say("U1", "C1", "<@UBOT> hello")
    await slack.until(lambda: slack.replies("C1", ts))
# leaving it raises if the app did anything Slack would refuse, or acknowledged too late
"""
