"""Arguments of `pip install`: what is wanted, and what is refused."""

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels.packages import pip_arguments


def test_names_versions_and_extras_are_read_and_needless_options_ignored():
    arguments = ["-q", "Foo_Bar[extra]>=1", "--progress-bar", "off", "-U", "baz==2"]
    found = pip_arguments.read(arguments)
    assert [str(one) for one in found] == ["Foo_Bar[extra]>=1", "baz==2"]
    assert pip_arguments.normalized_names(found) == ["foo-bar", "baz"]


@pytest.mark.parametrize(
    "argument",
    [
        *("git+https://example.org/x", "https://example.org/x.whl", "x @ file:///etc/passwd"),
        *("./x", "../x", "/tmp/x.whl", "x.whl", "~/x", "-r", "-e", "--index-url=http://x/", "-i"),
        *("--extra-index-url", "--find-links", "--target=/", "--pre", "x y", "x\n-r/etc/passwd"),
        *("", "x" * 300, "x; python_version > '3' or", "--config-settings=a"),
        "x; python_version > '3\n--index-url http://example.org\n'",
    ],
)
def test_what_is_not_the_name_of_a_package_is_refused(argument):
    with pytest.raises(errors.PackagesError):
        pip_arguments.read([argument, "good"])


@pytest.mark.parametrize("arguments", [[], ["-q"], ["x"] * 41])
def test_nothing_and_too_much_are_refused(arguments):
    with pytest.raises(errors.PackagesError):
        pip_arguments.read(arguments)


def test_what_is_there_is_not_wanted_again_and_never_replaced():
    held = {"a-b": "2.0"}
    known = [
        pip_arguments.is_met(one, held) for one in pip_arguments.read(["A_b>=1", "c", "a.b[x]"])
    ]
    assert known == [True, False, False]
    with pytest.raises(errors.PackagesError, match=r"a-b 2\.0 is installed"):
        pip_arguments.is_met(pip_arguments.read(["a-b<2"])[0], held)
