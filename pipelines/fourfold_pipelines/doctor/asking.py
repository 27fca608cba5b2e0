"""Puts questions to an API server: plain paths and JSON, with what is refused as an error of its own."""

import json
from typing import Any, Protocol

import urllib3
import yaml
from kubernetes import client

from fourfold.contract.errors import ClusterError, ClusterUnavailableError
from fourfold.train.api import configuration

TIMES = (5.0, 30.0)


class RefusedError(Exception):
    """The API server's answer is no.

    Attributes:
        status: of HTTP; 403 means that we may not ask, 404 that there is none.
        message: in the server's words.
    """

    def __init__(self, status: int, message: str):
        super().__init__(f"{status} {message}")
        self.status, self.message = status, message


class LoginError(ClusterError):
    """The API server does not know who asks, whatever is asked."""


class Asks(Protocol):
    """Whoever answers questions about a cluster."""

    def get(self, path: str) -> Any:
        """What is at a path, as JSON.

        Raises:
            RefusedError: it is not to be had.
            ClusterError: nobody answers, not an API server, or one that does not know us.
        """
        ...

    def post(self, path: str, body: Any) -> Any:
        """The answer to what is sent; errors as for ``get``."""
        ...


class ApiServer:
    """The API server of the kubeconfig, or of the cluster that this process runs in.

    Raises:
        ClusterError: there is no cluster to talk to.
    """

    def __init__(self) -> None:
        try:
            settings = configuration()
        except (yaml.YAMLError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            # The client checks little of what it reads.
            raise ClusterError(
                f"the kubeconfig cannot be read: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            ) from error
        settings.retries = False  # pyright: ignore[reportAttributeAccessIssue]
        self.host = settings.host
        self._client = client.ApiClient(settings)

    def get(self, path: str) -> Any:
        """See ``Asks``."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        """See ``Asks``."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        try:
            found = self._client.call_api(
                path,
                method,
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                response_type="object",
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=TIMES,
            )
        except client.ApiException as error:
            if error.status == 401:
                raise LoginError(
                    f"the API server at {self.host} does not accept our credentials: 401 {_message(error)}"
                ) from error
            if not error.status:
                # The client's way to say that the connection was refused for its certificate.
                raise ClusterUnavailableError(
                    f"no connection to the API server at {self.host}: {' '.join(str(error.reason).split())}"
                ) from error
            raise RefusedError(error.status, _message(error)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterUnavailableError(
                f"the API server at {self.host} does not answer ({type(error).__name__})"
            ) from error
        if not isinstance(found, dict):
            raise ClusterError(f"what answers at {self.host} is no Kubernetes API server")
        return found


def _message(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
