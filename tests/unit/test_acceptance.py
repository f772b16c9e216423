"""Records of what an administrator accepted."""

from interpreter_bot import acceptance


def test_the_longest_listing_of_a_server_is_read_again(tmp_path):
    records = acceptance.Records(tmp_path, "tools", dict[str, str])
    listing = {f"tool_{number}": "x" * 64 * 1024 for number in range(500)}
    records.write("server", listing)
    assert records.read("server") == listing
