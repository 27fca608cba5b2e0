"""Puts questions to an API server: plain paths and JSON, with what is refused as an error of its own."""

import json
from typing import Any, Protocol

import urllib3
from kubernetes import client

from fourfold.contract.errors import ClusterUnavailableError
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


class Asks(Protocol):
    """Whoever answers questions about a cluster."""

    def get(self, path: str) -> Any:
        """What is at a path, as JSON.

        Raises:
            RefusedError: it is not to be had.
            ClusterUnavailableError: nobody answers.
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
        settings = configuration()
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
            return self._client.call_api(
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
            raise RefusedError(error.status or 0, _message(error)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterUnavailableError(
                f"the API server at {self.host} does not answer ({type(error).__name__}): is the cluster up, "
                "is the kubeconfig the right one?"
            ) from error


def _message(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
