"""TransferQueue in memory: what it does with keys, tags and fields, without Ray or sockets.

Values are cut up and put together by TransferQueue's own functions, so that a batch comes back in
the shapes it comes back in there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import transfer_queue
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta
from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager


class Entry(NamedTuple):
    """What lies under a key."""

    tag: dict[str, Any]
    fields: dict[str, Any]


class FakeQueue:
    """Stands in for the functions of `transfer_queue` once it is installed."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[str, Entry]] = defaultdict(dict)
        self._readers = list[Any]()

    def install(self, monkeypatch: Any) -> None:
        """Take the place of the real one."""
        for name in ("kv_put", "kv_batch_put", "kv_batch_get", "kv_list", "kv_clear"):
            monkeypatch.setattr(transfer_queue, name, getattr(self, name))
        from rejuice.trainer.verl import training

        readers = self._readers

        class Reader(training.NextGroups):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                readers.append(self)

        monkeypatch.setattr(training, "NextGroups", Reader)

    def close(self) -> None:
        """Stop what reads it while nobody waits: another test has another queue."""
        for reader in self._readers:
            reader.stop()

    def kv_put(
        self, key: str, partition_id: str, fields: Any = None, tag: dict[str, Any] | None = None
    ) -> None:
        assert fields is None, "nobody puts fields of one key"
        self.kv_batch_put([key], partition_id, tags=[tag or {}])

    def kv_batch_put(
        self,
        keys: Sequence[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: Sequence[dict[str, Any]] | None = None,
    ) -> KVBatchMeta:
        if fields is None and tags is None:
            raise ValueError("Please provide at least one parameter of `fields` or `tags`.")
        if fields is not None and fields.batch_size[0] != len(keys):
            raise ValueError("`keys` do not match the `fields`")
        if tags is not None and len(tags) != len(keys):
            raise ValueError("keys do not match length of tags")
        entries = self.partitions[partition_id]
        for row, key in enumerate(keys):
            entry = entries.setdefault(key, Entry({}, {}))
            if tags is not None:
                entry.tag.update(tags[row])
        if fields is not None:
            for name in list(fields.keys()):
                for key, value in zip(keys, _apart(fields.get(name), len(keys)), strict=True):
                    entries[key].fields[name] = value
        return KVBatchMeta(list(keys), [dict(entries[k].tag) for k in keys], partition_id)

    def kv_batch_get(
        self, keys: Sequence[str], partition_id: str, select_fields: Iterable[str] | None = None
    ) -> TensorDict:
        entries = [
            self.partitions[partition_id][k] for k in keys if k in self.partitions[partition_id]
        ]
        if not entries:
            raise ValueError("keys or partition were not found!")
        # As there: what one of the keys lacks is not given, without an error.
        common = set.intersection(*(set(entry.fields) for entry in entries))
        names = common if select_fields is None else [n for n in select_fields if n in common]
        pack = AsyncSimpleStorageManager._pack_field_values
        packed = {name: pack([entry.fields[name] for entry in entries]) for name in names}
        return TensorDict(packed, batch_size=len(entries))

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, Any]]:
        names = list(self.partitions) if partition_id is None else [partition_id]
        # A copy: another thread may put and clear meanwhile.
        return {n: {k: dict(e.tag) for k, e in [*self.partitions[n].items()]} for n in names}

    def kv_clear(self, keys: Sequence[str] | str, partition_id: str) -> None:
        for key in [keys] if isinstance(keys, str) else keys:
            self.partitions[partition_id].pop(key, None)


def _apart(values: Any, rows: int) -> list[Any]:
    """A column as one value for each key."""
    select = AsyncSimpleStorageManager._select_by_positions
    pieces = [select(values, [row]) for row in range(rows)]
    return [p.tolist()[0] if isinstance(p, NonTensorStack) else p[0] for p in pieces]
