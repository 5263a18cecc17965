"""What Data-Juicer uses of the package `openai`, for tests where it is not installed.

It sends real requests, and raises what the package raises; it does not retry.
"""

from types import SimpleNamespace

import httpx


class OpenAIError(Exception):
    pass


class APIConnectionError(OpenAIError):
    def __init__(self):
        super().__init__("Connection error.")


class APIStatusError(OpenAIError):
    def __init__(self, response):
        super().__init__(f"Error code: {response.status_code} - {_content(response)}")
        self.status_code = response.status_code


class Stream:
    def __class_getitem__(cls, item):
        return cls


types = SimpleNamespace(chat=SimpleNamespace(ChatCompletionChunk=None))


class OpenAI:
    def __init__(self, *, api_key=None, base_url=None, max_retries=2):
        if api_key is None:
            raise OpenAIError("The api_key client option must be set")
        self._base = base_url
        self._client = httpx.Client(headers={"Authorization": f"Bearer {api_key}"}, timeout=20)

    def post(self, path, *, body, cast_to, stream=False, stream_cls=None):
        try:
            response = self._client.post(f"{self._base}{path}", json=body)
        except httpx.HTTPError as error:
            raise APIConnectionError from error
        if response.status_code >= 300:
            raise APIStatusError(response)
        return response


def _content(response):
    try:
        return response.json()
    except ValueError:
        return response.text
