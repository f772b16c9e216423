"""Snowflake by ADBC's driver, as far as that goes without the service: what is refused, and how.

Skipped where the driver is not installed (adbc-driver-snowflake).
"""

import pytest

from tests.integration.data_connections.conftest import PASSWORD
from tests.integration.data_connections.test_worker_processes import ask, processes

pytest.importorskip(
    "adbc_driver_snowflake",
    reason="adbc-driver-snowflake is not installed here",
    exc_type=ImportError,
)
# Nobody listens there.
ADDRESS = f"bot:{PASSWORD}@127.0.0.1:1/shop?account=x&protocol=http&loginTimeout=1"

KEY = "adbc.snowflake.sql.client_option.jwt_private_key_pkcs8_value"


@pytest.mark.parametrize(
    ("address", "options", "told"),
    [
        (ADDRESS, {}, "connection refused"),
        (f"bot:{PASSWORD}@@/", {}, "account is empty"),
        (ADDRESS, {KEY: PASSWORD}, "private key"),
    ],
    ids=["unreachable", "malformed", "no key"],
)
async def test_an_error_of_connecting_is_logged_without_secrets(address, options, told):
    async with processes("snowflake", address, options=options, login_only_reads=True) as workers:
        _, answer = await ask(workers, "select 1")
    # People are told that it cannot be reached; what stands here is for the operator.
    assert answer["error"] == ""
    assert told in answer["detail"]
    assert PASSWORD not in repr(answer)


async def test_a_statement_that_may_change_data_is_not_sent_at_all():
    async with processes("snowflake", ADDRESS, login_only_reads=True) as workers:
        for statement in ("delete from orders", "with x as (select 1) call wipe()", "put file://x"):
            _, answer = await ask(workers, statement)
            assert answer["error"]
            assert "detail" not in answer
