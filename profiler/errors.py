"""The few exceptions of stallscope. A message states the fact, the value, and the way out."""


class StallscopeError(Exception):
    """A user's mistake or a limit of the machine: printed as one message, exit code 2, no traceback."""


class RecordError(StallscopeError):
    """A run folder or record file cannot be written or read."""


class DataError(StallscopeError):
    """A dataset cannot be used."""


class MissingExtra(StallscopeError):
    """An optional part is not installed; the message says what to install."""


class DeviceOutOfMemory(StallscopeError):
    """The accelerator has less memory than the batch needs (real or emulated)."""
