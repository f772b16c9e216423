"""Packages guessed from names of modules."""

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels.packages import import_names

HELD = {"pandas": "3.1.1", "numpy": "2.4.6", "pillow": "12.0"}


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("bs4", "beautifulsoup4"),
        ("life_lines", "life-lines"),
        ("Foo", "foo"),
        ("geopandas", "geopandas"),
        ("numpyro", "numpyro"),
    ],
)
def test_a_module_is_of_the_package_that_is_known_or_called_alike(module, package):
    assert import_names.guess_package(module, HELD) == package


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("pandsa", "pandas is installed, which is spelled almost the same"),
        ("panda", "pandas is installed, which is spelled almost the same"),
        ("numpi", "numpy is installed, which is spelled almost the same"),
        ("PIL", "pillow 12.0 is installed, and has no module PIL"),
        ("x\n%run y", "not the name of a module"),
        ("--index-url", "not the name of a module"),
    ],
)
def test_nothing_is_offered_for_a_slip_or_for_what_is_there(module, why):
    with pytest.raises(errors.PackagesError, match=why):
        import_names.guess_package(module, HELD)


def test_only_what_is_known_or_allowed_by_its_whole_name_is_sure():
    assert import_names.is_sure("bs4", "beautifulsoup4", ())
    assert import_names.is_sure("lifelines", "lifelines", ("life*", "lifelines"))
    assert not import_names.is_sure("lifelines", "lifelines", ("*", "life*"))
