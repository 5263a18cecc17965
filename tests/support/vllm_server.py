"""vLLM on CPU, made by `make vllm-cpu`: its interpreter, and a server that may be killed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

EMBEDDED = Path(__file__).resolve().parents[2] / "operators/sampling/embedded"
_MADE = Path(__file__).resolve().parents[2] / ".venv-vllm/bin/python"
_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # For /update_weight_version.
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
_FLAGS = shlex.split(
    "--dtype float32 --enforce-eager --generation-config vllm --max-model-len 128 --block-size 32 "
    "--enable-scale-out --max-num-seqs 128 "
    # vLLM 0.32 on CPU dies of a seeded request whose prompt it takes in pieces.
    "--no-enable-chunked-prefill"
)


def vllm_python() -> str:
    """The interpreter that has vLLM; the test is skipped, or with $REJUICE_NEED_VLLM fails,
    where there is none."""
    python = Path(os.environ.get("VLLM_PYTHON", _MADE))
    if not python.exists():
        give_up = pytest.fail if os.environ.get("REJUICE_NEED_VLLM") else pytest.skip
        give_up("no vLLM here: make vllm-cpu")
    return str(python)


class VllmServer:
    """Serves a policy on the loopback, in a process group of its own.

    Args:
        policy: folder of it.
        name: of the model.
        log: file that takes what the server prints.
        *flags: further ones.
    """

    def __init__(self, policy: Path, name: str, log: Path, *flags: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        where = ["--model", str(policy), "--served-model-name", name]
        where += ["--host", "127.0.0.1", "--port", str(self.port)]
        program = [vllm_python(), "-m", "vllm.entrypoints.openai.api_server"]
        self._command, self._log = [*program, *where, *_FLAGS, *flags], log
        self.start()

    @property
    def url(self) -> str:
        """Base address, up to and with /v1."""
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Begin to come up; again on the same port after `kill`."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, **_ENVIRONMENT},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it answers, 180 s at most."""
        for _ in range(360):
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").close()
            except OSError:
                time.sleep(0.5)
            else:
                return
        raise AssertionError("vLLM did not come up in 180 s")

    def label_weights(self, version: str) -> None:
        """Tell the server what to call its weights."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/update_weight_version",
            json.dumps({"new_version": version}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()

    def kill(self) -> None:
        """kill -9, workers and all."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
