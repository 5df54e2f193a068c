"""Delete a file. Messages that refer to it stay; models read a placeholder."""

from app.context import ServiceContext
from app.domain.ids import FileId
from app.domain.principals import Principal, Scope
from app.queries.files.reading import file_not_found
from app.storage.files import files


async def delete_file(ctx: ServiceContext, principal: Principal, file_id: FileId) -> None:
    principal.require(Scope.RUNS_WRITE)
    async with ctx.database.transaction() as connection:
        if not await files.remove(connection, principal.tenant, file_id):
            raise file_not_found(file_id)
