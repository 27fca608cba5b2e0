"""The errors that a user is meant to read: what was received, what is allowed, what to do."""


class FourfoldError(Exception):
    """Base of every error that is shown as its message alone, without a traceback."""


class InvalidInputError(FourfoldError, ValueError):
    """An argument, a file or a record that cannot be used as it is."""


class StoreError(FourfoldError):
    """The store could not be read or written."""


class StoreDeniedError(StoreError):
    """The store does not let these credentials do this; it will not later, either."""


class MissingObjectError(StoreError):
    """An object that should be in the store is not there."""


class OtherFormatError(StoreError):
    """What lies in the store was written by another version.

    Attributes:
        is_newer: whether it was a later one, which can read it.
    """

    def __init__(self, message: str, is_newer: bool = False):
        super().__init__(message)
        self.is_newer = is_newer


class DamagedObjectError(StoreError):
    """An object in the store is not what its manifest says."""


class DivergedError(FourfoldError):
    """A loss or a weight is no longer a finite number."""


class PeerLostError(FourfoldError):
    """Another worker of the training is gone."""


class ClusterError(FourfoldError):
    """Kubernetes did not let something be done, or does not have what is needed."""


class ClusterUnavailableError(ClusterError):
    """The API server did not answer; it may later."""


class WorkerFailedError(FourfoldError):
    """A worker ended otherwise than by finishing its work.

    Attributes:
        exit_code: what the group of workers exits with, as in ``contract.exits``.
    """

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code
