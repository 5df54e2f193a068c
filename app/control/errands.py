"""Errands, carried out by whichever process gets them."""

from typing import assert_never

from app.control.abort import abort_remote
from app.control.children import run_child_errand
from app.control.desk import Desk
from app.domain.errands import AbortRemote, AboutChild, Errand


async def run_errand(desk: Desk, errand: Errand) -> bool:
    """Carry out an errand; False when it should be tried again a little later."""
    match errand:
        case AboutChild():
            return await run_child_errand(desk, errand)
        case AbortRemote(tenant=tenant, run_id=run_id):
            await abort_remote(desk, tenant, run_id)
            return True
        case _:
            assert_never(errand)
