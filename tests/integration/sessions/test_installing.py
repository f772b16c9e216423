"""Packages that a model installs: in a cell that people see, and agree to where they are asked."""

import pytest

from interpreter_bot import settings
from tests.fakes import openai_server, package_indexes, replies

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("approval", ["never", "every"])
async def test_a_model_installs_what_is_missing_and_uses_it(opened, approval):
    install, use = "%pip install greeter", "import greeter; print(greeter.version)"
    script = [
        openai_server.call("install_packages", {"names": "greeter"}),
        openai_server.code(use),
        openai_server.text("Done."),
    ]
    with package_indexes.serving() as index:
        index.add("greeter", "2.5")
        reply = replies.Reply(approvals=[install, use], answers=["yes"])
        bought = settings.PackageIndex(url=index.url)
        async with opened(*script, package_index=bought) as house:
            await house.ask("Greet me.", reply, approval=approval)
            tools = [tool["function"]["name"] for tool in house.server.requests[0].body["tools"]]
            told = house.server.requests[1].messages[-1]["content"]
    assert reply.of("code") == [install, use]
    asked = [request.prompt for request in reply.of("ask")]
    assert len(asked) == (approval == "every")
    assert all(prompt.startswith("Install greeter 2.5 (") for prompt in asked)
    assert "Installed greeter 2.5" in told
    assert "".join(output.plain for output in reply.of("output")).endswith("2.5\n")
    assert "install_packages" in tools
