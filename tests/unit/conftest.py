"""How Hypothesis is used here: what it finds counts, not how long a busy machine took to look."""

import hypothesis

hypothesis.settings.register_profile(
    "beside other suites",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("beside other suites")
