"""How much of the answers of one client is in memory, however many there are."""

import asyncio
from types import SimpleNamespace

from rejuice.operators.servers import client
from rejuice.operators.servers.wire import AttemptError


def read_all(monkeypatch, sizes, connections):
    """What becomes of answers of so many bytes, of at most 1,000 each; and the most in memory."""
    monkeypatch.setattr(client, "LARGEST", 1000)
    monkeypatch.setattr(client, "_SMALLEST_SHARE", 10)
    inside, most = 0, 0

    async def read(reader, size):
        nonlocal inside
        mine = 0

        async def parts():
            nonlocal inside, most, mine
            for _ in range(size // 10):
                inside, mine = inside + 10, mine + 10
                most = max(most, inside)
                yield 10 * b"x"
                await asyncio.sleep(0)

        try:
            return len(await reader.read(SimpleNamespace(content=SimpleNamespace(iter_any=parts))))
        except AttemptError as error:
            return error.detail
        finally:
            inside -= mine

    async def main():
        reader = client.Bodies(connections)
        return await asyncio.gather(*(read(reader, size) for size in sizes))

    return asyncio.run(main()), most


def test_large_answers_are_read_one_after_the_other(monkeypatch):
    found, most = read_all(monkeypatch, [1000] * 20 + [100] * 20, 40)
    assert found == [1000] * 20 + [100] * 20
    assert most <= 1000 + 40 * (25 + 10)  # The largest, and all shares with what comes at once.
    # Those that fit into their shares do not wait for each other.
    assert read_all(monkeypatch, [20] * 40, 40) == ([20] * 40, 800)


def test_an_answer_that_is_too_large_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(client, "bad_response", lambda detail: AttemptError("", "too large", None))
    found, _ = read_all(monkeypatch, [5000, 900, 5000, 900], 40)
    assert found == ["too large", 900, "too large", 900]
