"""The demo agent's tools: an example to copy. Their files are pretend ones; no disk is touched."""

from app.runtime.ports import ToolContext
from app.tools.functions.decorator import tool

_files = {"/tmp/old-report.txt", "/tmp/notes.md", "/tmp/todo.txt"}


@tool(effect="read")
async def list_files() -> list[str]:
    """List all files. They are pretend files, made for this demo."""
    return sorted(_files)


@tool(timeout=10)
async def delete_file(path: str, ctx: ToolContext) -> str:
    """Delete a file for good. It is a pretend file: nothing on any disk changes.

    Args:
        path: the file's full path
    """
    ctx.stream_output(f"deleting {path} …\n")
    _files.discard(path)
    return f"Deleted {path}. It was a pretend file: nothing on any disk has changed."
