"""The few exceptions of whyidle. A message states the fact, the value, and the way out."""


class WhyidleError(Exception):
    """A user's mistake or a limit of the machine: printed as one message, exit code 2, no traceback."""


class RecordError(WhyidleError):
    """A run folder or record file cannot be written or read."""


class DataError(WhyidleError):
    """A dataset cannot be used."""


class MissingExtra(WhyidleError):
    """An optional part is not installed; the message says what to install."""

    def __init__(self, fact: str, extra: str) -> None:
        """`fact`: what needs what; a sentence without its full stop. `extra`: of ours, which brings it."""
        super().__init__(fact, extra)

    def __str__(self) -> str:
        fact, extra = self.args
        return f"{fact}: pip install 'whyidle[{extra}]'"


class DeviceOutOfMemory(WhyidleError):
    """The accelerator has less memory than the batch needs (real or emulated)."""
