"""What the doctor says of the package index."""

from interpreter_bot import settings
from interpreter_bot.doctor import configured_services
from tests.fakes import package_indexes


def test_an_index_that_can_be_used_is_told_from_one_that_cannot(tmp_path):
    with package_indexes.serving() as index:
        bought = settings.PackageIndex(url=index.url, deny=("nvidia-*",), missing="say")
        bot = settings.Settings(package_index=bought, paths=settings.Paths(data=tmp_path))
        without, kept = configured_services.check(bot, {}, None)
        index.add("six", "2.0", requirements=["unheard-of"])
        broken, _ = configured_services.check(bot, {}, None)
        index.add("six")
        there, _ = configured_services.check(bot, {}, None)
    assert [without.is_active, there.is_active, broken.is_active] == [True, True, False]
    assert "no usable package six" in without.detail
    assert "all names but nvidia-* may be installed, at least 7 days old" in there.detail
    assert "missing imports: say" in there.detail
    assert "unheard-of" in broken.detail
    assert kept.is_active
    assert kept.detail.startswith("0 layers in ")
