"""How a tool fails on purpose: with a code that programs can read, and a sentence for the model."""

from app.domain.errors import HoldfastError


class ToolFailed(HoldfastError):
    """Raised by a tool: its call gets this as its error, and the run goes on.

    A failure that the same call would meet again isn't worth another try: `may_be_retried=False`.
    """

    def __init__(self, code: str, message: str, *, may_be_retried: bool = True) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.may_be_retried = may_be_retried
