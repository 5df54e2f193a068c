"""The error that a tool raises on purpose: a code for programs, and a sentence for the model."""

from app.domain.errors import HoldfastError


class ToolFailed(HoldfastError):
    """Raised by a tool: its call ends with this error, and the run continues.

    With `may_be_retried=False` the call is not retried, because it would fail again.
    """

    def __init__(self, code: str, message: str, *, may_be_retried: bool = True) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.may_be_retried = may_be_retried
