"""`replace` for msgspec's Structs, with arguments that mypy checks.

Immutable values are Structs with `frozen=True`: one is made in a tenth of a frozen dataclass's time, and its
class in a thirtieth. Dataclasses remain where the state can change, or where a field isn't compared or shown.
"""

from typing import TYPE_CHECKING

__all__ = ["replace"]

if TYPE_CHECKING:
    # msgspec declares any arguments. mypy knows those of `dataclasses.replace`, for Structs, too.
    from dataclasses import replace
else:
    from msgspec.structs import replace
