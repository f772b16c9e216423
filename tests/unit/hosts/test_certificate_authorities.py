"""An authority of files: made once, and the same from then on."""

import pytest

from interpreter_bot import errors
from interpreter_bot.hosts import certificate_authorities


def test_an_authority_is_created_once(tmp_path):
    first = certificate_authorities.CertificateAuthority(tmp_path)
    second = certificate_authorities.CertificateAuthority(tmp_path)
    assert first.certificate == second.certificate
    made = second.issue(["bot"], is_bot=True, days=1)
    assert certificate_authorities.check_certificate(made) == ""


def test_a_new_certificate_replaces_the_former_one(tmp_path):
    authority = certificate_authorities.CertificateAuthority(tmp_path)
    first = (authority.issue(["bot"], is_bot=True, days=1) / "tls.crt").read_bytes()
    assert (authority.issue(["bot"], is_bot=True, days=1) / "tls.crt").read_bytes() != first


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a b", "x" * 64])
def test_an_invalid_name_is_refused(tmp_path, name):
    authority = certificate_authorities.CertificateAuthority(tmp_path)
    with pytest.raises(errors.SettingsError, match="is not the name of a host or a bot"):
        authority.issue([name], is_bot=False, days=1)


def test_files_of_no_authority_are_refused(tmp_path):
    certificate_authorities.CertificateAuthority(tmp_path)
    (tmp_path / "ca.key").write_text("nothing of that kind")
    with pytest.raises(
        errors.SettingsError, match="other files than those of a certificate authority"
    ):
        certificate_authorities.CertificateAuthority(tmp_path)
