"""The demo agent's tools: an example to copy. Their files and orders are pretend ones; nothing is touched."""

from holdfast import ToolContext, tool

_orders = {"A-7": {"item": "lamp", "paid": 80.0}, "B-2": {"item": "kettle", "paid": 35.0}}
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


@tool(effect="read")
async def find_order(number: str) -> dict[str, object]:
    """Look an order up. It is a pretend order, made for this demo.

    Args:
        number: the order's number, such as A-7
    """
    return _orders.get(number.upper(), {"problem": f"There is no order {number}."})


@tool(timeout=10)
async def refund(number: str, amount: float, ctx: ToolContext) -> str:
    """Pay money back for an order. It is pretend money. Above 50 a rule in demo.toml asks a person.

    Args:
        number: the order's number
        amount: how much, in euros
    """
    ctx.stream_output("asking the pretend bank …\n")
    return (
        f"Refunded {amount:g} for order {number}, for {ctx.run.started_by}. It was pretend money."
    )
