"""The server that an operator of Data-Juicer's asks, from its fields and the environment."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...operators import EngineError, RejuiceError
from .catalogue import ForeignKind
from .watch import ServerLostError

_DEFAULT_URL = "https://api.openai.com/v1"
# As data_juicer.utils.model_utils reads them, in its order.
_URLS = ("OPENAI_BASE_URL", "OPENAI_API_URL", "DASHSCOPE_BASE_URL")
_KEYS = ("OPENAI_API_KEY", "DASHSCOPE_API_KEY", "SK")
_MODELS = ("api_or_hf_model", "api_model")
_WHICH_URL = "model_params: {base_url: ...} or OPENAI_BASE_URL"
_WHICH_KEY = "OPENAI_API_KEY"


class Server(NamedTuple):
    """A server with OpenAI's API.

    Attributes:
        url: up to and with `/v1`.
        key: empty where none is set.
        model: that it is asked for; None: the first that it has.
        is_chat: whether it is asked for chat completions.
    """

    url: str
    key: str
    model: str | None
    is_chat: bool = True

    def check(self) -> None:
        """Try its address once, and whether it has the model and takes the key.

        Nothing is tried where there is a proxy between, which Data-Juicer's clients use.

        Raises:
            EngineError: it is not up, or will answer no request.
        """
        from ...operators.servers.options import ServerOptions
        from ...operators.servers.preflight import check_server

        if not self.url.startswith(("http://", "https://")):
            found = f"the address of its server is '{self.url}'"
            raise EngineError(found, f"it must begin with http:// or https://; see {_WHICH_URL}")
        if not self.key:
            found = f"it has no key for {self.url}"
            raise EngineError(found, f"give {_WHICH_KEY}; a server of your own takes any value")
        if _is_beyond_proxy(self.url):
            return
        # Only of a chat is it known how to ask for the model, and Alibaba's has other names for it.
        model = self.model if self.is_chat and "dashscope" not in self.url else None
        try:
            check_server(ServerOptions(base_url=self.url, patience_s=0), model, key=self.key)
        except RejuiceError as error:
            right = error.right.replace("api_key_env", _WHICH_KEY).replace("base_url", _WHICH_URL)
            raise type(error)(error.found, right) from error.__cause__

    def lost(self, error: ServerLostError) -> EngineError:
        """The error that ends a run whose server is lost."""
        if error.status is None and error.calls:
            found = f"{self.url} answered none of {error.calls:,} calls: {error.found}"
            return EngineError(found, "its log may say why")
        if error.status is None:
            found = f"{self.url} could not be reached: {error.found}"
            return EngineError(found, "is the server up? then run again: finished chunks are kept")
        found = f"{self.url} refuses requests: {error.found}"
        if error.status == 404:
            model = f"does it have the model '{self.model}', and " if self.model else ""
            return EngineError(found, f"{model}is its address right? see {_WHICH_URL}")
        return EngineError(found, f"is the key right? see {_WHICH_KEY}")


def model_field(kind: ForeignKind) -> str | None:
    """The field of an operator that names a model which may be behind a server."""
    return next((name for name in _MODELS if name in kind.known), None)


def server(kind: ForeignKind, fields: Mapping[str, Any]) -> Server | None:
    """The server that an operator asks; None where it is not known, as with `litellm`.

    Args:
        kind: an operator for which `Needs.asks_server` is true.
        fields: those of the recipe.
    """
    params = fields.get("model_params") or {}
    defaults = {field.name: field.default for field in kind.fields}
    name = model_field(kind)
    if name is None or params.get("api_backend") == "litellm":
        return None
    url = params.get("base_url") or _first(_URLS) or _DEFAULT_URL
    model, endpoint = (
        fields.get(field, ast.literal_eval(defaults.get(field) or "None"))
        for field in (name, "api_endpoint")
    )
    key = str(params.get("api_key") or _first(_KEYS))
    return Server(str(url).rstrip("/"), key, model, "chat" in (endpoint or "chat"))


def _is_beyond_proxy(url: str) -> bool:
    from urllib.request import getproxies, proxy_bypass  # `rejuice check` asks no server.

    parts = urlsplit(url)
    proxies = {parts.scheme, "all"} & set(getproxies())
    return bool(proxies) and not proxy_bypass(parts.hostname or "")


def _first(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
