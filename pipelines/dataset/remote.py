"""Paths in object stores, with the part of pathlib's interface that datasets and runs need.

`s3://bucket/folder/file.parquet` and whatever else `pyarrow.fs` opens. A query says how, as it does
in Arrow: `s3://bucket/run?endpoint_override=localhost:9000&scheme=http`. Keys and regions come from
where the client of the store looks for them, such as `AWS_ACCESS_KEY_ID` and `AWS_ENDPOINT_URL`.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs

import pyarrow as pa
from pydantic import BeforeValidator, PlainSerializer, SerializationInfo, WithJsonSchema

from ...operators import DataError, RecipeError

# --- What an error of Arrow with a file in a store means: its text has the store's answer ---

_AWS = re.compile(
    r"AWS Error (?P<code>\w+)(?: \(HTTP status \d+\))? during \w+ operation: "
    r"(?P<text>.*?)(?: \(Request.*)?$"
)
_GOOGLE = re.compile(r"google::cloud::Status\((?P<code>\w+): ")
_REFUSED = {
    "ACCESS_DENIED": "the store refuses access",
    "PERMISSION_DENIED": "the store refuses access",
    "INVALID_ACCESS_KEY_ID": "the keys are not valid",
    "SIGNATURE_DOES_NOT_MATCH": "the keys are not valid",
    "UNAUTHENTICATED": "the keys are not valid",
}
_OTHER_PATH = "create it, or give another path"


def is_of_store(error: OSError) -> bool:
    """Whether an error that Arrow raises is a store's answer, or that there was none."""
    message = _one_line(error)
    return bool(_AWS.search(message) or _GOOGLE.search(message))


@contextmanager
def store_errors(path: RemotePath, done: str, *, content: bool = False) -> Iterator[None]:
    """Report what a store answers in one line; a file that is not there stays an OSError.

    With `content`, errors may also be about what is in the file; these stay as they are.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, NotImplementedError, ValueError) as error:
        if content and not (isinstance(error, OSError) and is_of_store(error)):
            raise
        message = _one_line(error)
        aws = _AWS.search(message)
        found = aws or _GOOGLE.search(message)
        code = found["code"] if found else ""
        if code == "NO_SUCH_BUCKET":
            raise path.no_bucket(done) from None
        if code in _REFUSED:
            keys = "AWS_ACCESS_KEY_ID" if aws else "GOOGLE_APPLICATION_CREDENTIALS"
            message, right = _REFUSED[code], f"check the keys, such as {keys}, and what they may do"
        elif code in ("NETWORK_CONNECTION", "UNAVAILABLE"):
            message, right = "the store cannot be reached", "check the network and the endpoint"
        else:  # Not an OSError: such as of a list of the hub's datasets.
            message = aws["text"] or code if aws else message
            right = "" if isinstance(error, OSError) else _OTHER_PATH
        raise DataError(f"{path} cannot be {done}: {message}", right) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


# --- Remote ---------------------------------------------------------------------------

_URI = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://(?P<key>[^?]*)(?:\?(?P<query>.*))?", re.DOTALL)
_CREDENTIALS = frozenset({"access_key", "secret_key", "session_token", "account_key", "sas_token"})
"""Options of Arrow's clients."""
_GOOGLE_SCHEMES = ("gs", "gcs")
_GCS_RETRIES = "retry_limit_seconds=60"
_ATTEMPTS = 5
"""Most attempts for one request to S3; the client waits longer between them each time."""


class Stat(NamedTuple):
    st_size: int  # in bytes
    st_mtime_ns: int  # when it was last written, in nanoseconds since 1970; 0: unknown


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or a folder in an object store, with the methods of `pathlib.Path`.

    A folder is the beginning of its files' keys: it exists while there is a file in it. A file
    appears whole, when all of it is written. There is no renaming, no link and no lock.

    Every method that asks the store raises a DataError of one line where the store cannot be
    reached, has no such bucket, or refuses.

    Args:
        scheme: such as `s3`.
        key: the bucket and what is in it, without a slash at its end.
        query: options of the client.
    """

    scheme: str
    key: str
    query: str = ""

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.key}{query}"

    # Names

    def __truediv__(self, name: str | PurePosixPath) -> RemotePath:
        return replace(self, key=f"{self.key}/{name}")

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.key)

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in; of a bucket, itself."""
        return replace(self, key=str(self._pure.parent)) if "/" in self.key else self

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        return tuple(replace(self, key=str(each)) for each in self._pure.parents[:-1])

    def with_name(self, name: str) -> RemotePath:
        return self.parent / name

    def with_suffix(self, suffix: str) -> RemotePath:
        return replace(self, key=str(self._pure.with_suffix(suffix)))

    def relative_to(self, other: RemotePath) -> PurePosixPath:
        return self._pure.relative_to(other.key)

    def resolve(self) -> RemotePath:
        return self

    absolute = resolve

    # What is there

    def exists(self) -> bool:
        return self._kind() != "NotFound"

    def is_file(self) -> bool:
        return self._kind() == "File"

    def is_dir(self) -> bool:
        return self._kind() == "Directory"

    def stat(self) -> Stat:
        info = self._info()
        if info.type.name != "File":
            raise FileNotFoundError(f"{self} does not exist")
        return Stat(info.size, info.mtime_ns or 0)

    def iterdir(self) -> Iterator[RemotePath]:
        return (self / name for name in self.listing())

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def listing(self, *, only_files: bool = False) -> dict[str, bool]:
        """The names of what is in the folder, and whether each is a folder; one request for many.

        Nothing where there is no such folder.
        """
        from pyarrow.fs import FileSelector

        # Of Google's store, Arrow lists only files: folders are in the paths of what is in them.
        deep = self._is_of_google and not only_files
        with store_errors(self, "listed"):
            selector = FileSelector(self._place, allow_not_found=True, recursive=deep)
            found = self.filesystem.get_file_info(selector)
        kinds = dict[str, bool]()
        for each in found:
            name, below, _ = each.path.removeprefix(f"{self._place}/").partition("/")
            kinds[name] = bool(below) or each.type.name == "Directory"
        return {name: below for name, below in kinds.items() if not (below and only_files)}

    def check_bucket(self) -> None:
        """Check that the bucket is there: a store answers "not found" for a file in either case."""
        if not replace(self, key=self._bucket).exists():
            raise self.no_bucket("read")

    # Reading and writing

    def open_input(self) -> Any:
        with store_errors(self, "read"):
            return self.filesystem.open_input_file(self._place)

    def read_bytes(self) -> bytes:
        with store_errors(self, "read"):
            # In Google's store, it may be replaced between opening and reading it.
            with suppress(ValueError), self.filesystem.open_input_file(self._place) as file:
                return bytes(file.readall())
            with self.filesystem.open_input_file(self._place) as file:
                return bytes(file.readall())

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes | pa.Buffer) -> None:
        try:
            # Else Arrow compresses once more what is written to `a.jsonl.gz`.
            with (
                store_errors(self, "written"),
                self.filesystem.open_output_stream(self._place, compression=None) as file,
            ):
                file.write(data)
        except FileNotFoundError:  # Nothing else can be missing; S3 says so.
            raise self.no_bucket("written") from None

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        self.write_bytes(text.encode(encoding))

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a folder is there as soon as a file is in it."""

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            with store_errors(self, "removed"):
                self.filesystem.delete_file(self._place)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_folder(self) -> None:
        with store_errors(self, "removed"), suppress(FileNotFoundError):
            # In Google's store, `delete_dir` fails where there is no folder; in S3, the other call
            # leaves an empty one.
            if self._is_of_google:
                self.filesystem.delete_dir_contents(self._place, missing_dir_ok=True)
            else:
                self.filesystem.delete_dir(self._place)

    @property
    def filesystem(self) -> Any:
        return _filesystem(self.scheme, self._bucket, self.query)

    def no_bucket(self, done: str) -> DataError:
        bucket = self._bucket.rpartition("@")[2]
        return DataError(f"{self} cannot be {done}: there is no bucket '{bucket}'", _OTHER_PATH)

    @property
    def _is_of_google(self) -> bool:
        return self.scheme in _GOOGLE_SCHEMES

    @property
    def _bucket(self) -> str:
        """The bucket, with a user where one is given, as in `gs://anonymous@bucket`."""
        return self.key.partition("/")[0]

    @property
    def _place(self) -> str:
        """The key as the file system takes it: without a user."""
        return self.key.removeprefix(self._bucket.rpartition("@")[0]).removeprefix("@")

    def _kind(self) -> str:
        return str(self._info().type.name)

    def _info(self) -> Any:
        with store_errors(self, "read"):
            return self.filesystem.get_file_info(self._place)


AnyPath: TypeAlias = Path | RemotePath


def to_path(text: str | AnyPath) -> AnyPath:
    """A path on disk, or in an object store where it begins with `SCHEME://`.

    Example:
        >>> to_path("s3://rollouts/run/curated.parquet").parent / "curated.run"
        RemotePath(scheme='s3', key='rollouts/run/curated.run', query='')
    """
    if isinstance(text, RemotePath):
        return text
    found = _URI.fullmatch(str(text))
    if found is None:
        return Path(text)
    if found["scheme"] == "file":
        return Path(found["key"])
    _refuse_credentials(found)
    return RemotePath(found["scheme"], found["key"].rstrip("/"), found["query"] or "")


def _refuse_credentials(found: re.Match[str]) -> None:
    """Pass an address without a password or a key: addresses are in logs, reports and caches."""
    user, at, bucket = found["key"].partition("/")[0].rpartition("@")
    named = _CREDENTIALS.intersection(parse_qs(found["query"] or ""))
    if (at and ":" in user) or named:
        what = min(named) if named else "a password before an '@'"
        right = "take it out; the store's keys come from variables such as AWS_SECRET_ACCESS_KEY"
        raise RecipeError(f"{found['scheme']}://{bucket} is given with {what}", right)


def _checked_path(value: Any) -> Any:
    return to_path(value) if isinstance(value, str | Path) else value


def dumped_path(value: Any, info: SerializationInfo) -> Any:
    """A text, but for a path on disk where the dump is not for YAML: it may be made absolute."""
    return value if isinstance(value, Path) and info.mode == "python" else str(value)


PathField = Annotated[
    Path | RemotePath,
    BeforeValidator(_checked_path),
    PlainSerializer(dumped_path),
    WithJsonSchema({"type": "string", "format": "path"}),
]
"""A field of a model that holds a path on disk or in an object store."""


@cache
def _filesystem(scheme: str, bucket: str, query: str) -> Any:
    from pyarrow import fs  # It loads the clients of all stores, which `check` does not need.

    if scheme != "s3":
        if scheme in _GOOGLE_SCHEMES and "retry_limit_seconds" not in query:
            query = "&".join(part for part in (query, _GCS_RETRIES) if part)  # Else 15 minutes.
        uri = f"{scheme}://{bucket}/{'?' + query if query else ''}"
        try:
            return fs.FileSystem.from_uri(uri)[0]
        except (ValueError, ImportError, OSError) as error:
            found = f"{scheme}://{bucket} cannot be opened: {_one_line(error)}"
            raise DataError(found, "give a path on disk, or s3://BUCKET/...") from None
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    endpoint = options.pop("endpoint_override", environment)
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
    # A small file is one request with delayed opening, and three without.
    return fs.S3FileSystem(
        endpoint_override=endpoint, retry_strategy=retries, allow_delayed_open=True, **options
    )


# --- Lease ----------------------------------------------------------------------------
# Leases in an object store, which has no locks: small files that are written again and again.
#
#     .curated.run.lock-9af3…     the claim of a process that has the lease, or asks for it
#
# A process writes a claim, and lists those of others after that. Where there is none it has the
# lease; else it takes its claim back, and asks again later: of two that ask at once, at most one
# finds itself alone. Whoever has the lease writes its claim again every few seconds. A claim that
# does not change for long enough is that of a process that was killed, and is removed. Clocks are
# not compared.
#
# A process that is suspended loses its lease, and does not know before it looks.

_BEAT_S = 5.0
_WAIT_S = 20.0
"""A claim that has not changed for so long is that of a process that was killed."""
_ASKS, _HAS = "asks", "has"


@contextmanager
def leased(path: RemotePath, is_taken: Callable[[], object] = lambda: None) -> Iterator[RemotePath]:
    """Have a lease for the time of the block, as soon as no other process has it.

    Once the claim does not exist any more, the lease is lost.
    """
    claim = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    try:
        _acquire(claim, path, is_taken)
        ended = threading.Event()
        thread = threading.Thread(target=_renew, args=(claim, ended), daemon=True)
        thread.start()
        try:
            yield claim
        finally:
            ended.set()
            thread.join()
    finally:
        with suppress(DataError):  # Else it ends by itself; what ended the block is reported.
            claim.unlink(missing_ok=True)


def _acquire(claim: RemotePath, path: RemotePath, is_taken: Callable[[], object]) -> None:
    seen = dict[RemotePath, tuple[str, float]]()
    for number in count():
        claim.write_text(f"{_ASKS} {number}")
        others = _others(claim, path)
        if not others:
            return
        claim.unlink(missing_ok=True)
        if _at_work(others, seen):
            is_taken()
        time.sleep(_BEAT_S / 5 * random.uniform(0.5, 1.0))  # Else two might ask at once forever.


def _others(claim: RemotePath, path: RemotePath) -> list[RemotePath]:
    names = path.parent.listing(only_files=True)
    claims = (path.with_name(name) for name in names if name.startswith(f"{path.name}-"))
    return [each for each in claims if each != claim]


def _at_work(claims: list[RemotePath], seen: dict[RemotePath, tuple[str, float]]) -> bool:
    """Whether a process that has the lease is at work; what is left of killed ones is removed."""
    at_work, now = False, time.monotonic()
    for claim in claims:
        try:
            text = claim.read_bytes().decode("utf-8", "replace")
        except (FileNotFoundError, DataError):  # It is removed meanwhile, perhaps during the read.
            continue
        before, since = seen.setdefault(claim, (text, now))
        if text != before:
            seen[claim] = text, now
            at_work |= text.startswith(_HAS)
        elif now - since >= _WAIT_S:
            claim.unlink(missing_ok=True)
    return at_work


def _renew(claim: RemotePath, ended: threading.Event) -> None:
    for number in count():
        if ended.wait(_BEAT_S):
            return
        try:
            if not claim.exists():
                return  # This process was suspended, and another one goes on.
            claim.write_text(f"{_HAS} {number}")
        except DataError:
            continue  # The run itself meets the same error where it writes, and reports it.
