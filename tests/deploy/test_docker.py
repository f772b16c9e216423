"""The image and its compose file: no flags, and names that bot and image share."""

import re

import pytest
import yaml

from interpreter_bot import settings
from tests import in_container
from tests.deploy import conftest as systems

PLACE = systems.REPOSITORY / "deploy/docker"


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load((PLACE / "compose.yaml").read_text())["services"]


@pytest.fixture(scope="module")
def image():
    """The Dockerfile, a line for each instruction."""
    return (PLACE / "Dockerfile").read_text().replace("\\\n", "")


def variables(image):
    return dict(re.findall(r"^ENV (INTERPRETER_BOT_\w+)=(\S+)$", image, re.MULTILINE))


def test_no_service_asks_for_a_right(services):
    asked_for = {name for service in services.values() for name in service}
    assert not asked_for & {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode"}
    assert services["bot"]["security_opt"] == ["no-new-privileges:true"]
    # An id for each session takes a bot that is root.
    assert "user" not in services["bot"]


def test_the_image_is_roots_and_has_the_links_of_sessions(image):
    assert not re.search(r"^USER", image, re.MULTILINE)
    links = re.findall(r"ln -s (\S+) (\S+)", image)
    assert {name[1:]: target for target, name in links} == in_container.IMAGE_LINKS


def test_the_volume_has_what_the_bot_keeps(services, image, monkeypatch):
    for name, value in variables(image).items():
        monkeypatch.setenv(name, value)
    (volume,) = services["bot"]["volumes"]
    assert volume.split(":")[1] == str(settings.Settings().paths.data)
    assert f"VOLUME {settings.Settings().paths.data}\n" in image


def test_the_page_is_reached_from_this_machine_alone(services, monkeypatch):
    for name, value in services["bot"]["environment"].items():
        monkeypatch.setenv(name, value)
    web = settings.Settings().web
    assert services["bot"]["ports"] == [f"127.0.0.1:{web.port}:{web.port}"]
    assert str(web.port) in services["bot"]["healthcheck"]["test"][-1]
    assert web.host == "0.0.0.0"


def test_postgresql_is_an_option_that_the_bot_waits_for(services, monkeypatch):
    assert services["postgres"]["profiles"] == ["postgres"]
    waiting = services["bot"]["depends_on"]["postgres"]
    assert waiting == {"condition": "service_healthy", "required": False}
    # No secret is in the file, and the bot's are not the database's to see.
    assert "env_file" not in services["postgres"]
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == "${POSTGRES_PASSWORD:-}"
    lines = re.findall(r"^# ([A-Z_]+)=(.*)$", (PLACE / "bot.env.example").read_text(), re.MULTILINE)
    for name, value in lines:
        monkeypatch.setenv(name, value)
    names = services["postgres"]["environment"]
    url = f"postgresql://{names['POSTGRES_USER']}:PASSWORD@postgres/{names['POSTGRES_DB']}"
    assert settings.Settings().store.url == url
    assert {name for name, value in lines if not value} <= set(_common_names())


def _common_names():
    pages = [systems.REPOSITORY / "README.md", *(systems.REPOSITORY / "docs").glob("*.md")]
    return re.findall(r"\b([A-Z]+_[A-Z_]+)\b", "".join(page.read_text() for page in pages))
