"""Which ids a file grants, whatever else it says."""

import os
import pwd

import pytest

from interpreter_bot import settings
from interpreter_bot.kernels.provisioning import subordinate_ids

ME = pwd.getpwuid(os.geteuid()).pw_name
FILES = {
    "": (0, 0),
    "somebody:100000:65536": (0, 0),
    f"{ME}:100000:65536": (100_000, 65_536),
    f"{ME}:100000:65536\n{ME}:300000:70000\n{ME}:400000:10": (300_000, 70_000),
    f"{ME}:x:65536\n{ME}:-1:65536\n{ME}:1\n{ME}:1:2:3\n# {ME}:5:5\n{ME}:²:5": (0, 0),
    f"{os.geteuid()}:200000:1000": (200_000, 1000),
}


@pytest.mark.parametrize("text", FILES)
def test_largest_range_of_the_user_is_taken(tmp_path, text):
    (tmp_path / "subuid").write_text(text)
    assert subordinate_ids.largest_grant(tmp_path / "subuid") == FILES[text]


def test_no_file_grants_nothing(tmp_path):
    assert subordinate_ids.largest_grant(tmp_path / "subuid") == (0, 0)


def test_files_cannot_be_given_to_ids_that_are_not_there(tmp_path):
    if os.geteuid():
        assert not subordinate_ids.are_usable(tmp_path, 3_000_000_000)
    assert list(tmp_path.iterdir()) == []


def test_ids_outside_of_a_namespace_go_by_their_own_names():
    assert subordinate_ids.id_on_host(os.geteuid()) == os.geteuid()


# By lines of a uid_map: the first id for kernels, and how many.
MAPS = {
    "0 0 4294967295": (1_600_000_000, 65_536),
    "0 100000 65536": (10_000, 55_536),
    "0 1000 1\n1 100000 65536": (10_000, 55_537),
    "0 100000 10500": (1_600_000_000, 65_536),
}


# The same from a first id that the operator chose.
MAPS_FROM_20_000 = {
    "0 0 4294967295": (20_000, 65_536),
    "0 100000 65536": (20_000, 45_536),
    "0 1000 1\n1 100000 65536": (20_000, 45_537),
    "0 100000 10500": (20_000, 65_536),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="others than root get the ids of the bot")
@pytest.mark.parametrize("text", MAPS)
def test_root_of_a_namespace_takes_ids_that_it_has(tmp_path, text):
    (tmp_path / "uid_map").write_text(text)
    for chosen, maps in ({}, MAPS), ({"first_uid": 20_000}, MAPS_FROM_20_000):
        sandbox = subordinate_ids.choose_ids_in_namespace(
            settings.Sandbox(**chosen), tmp_path / "uid_map"
        )
        assert (sandbox.first_uid, sandbox.uid_count) == maps[text]
