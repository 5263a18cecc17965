"""Two runs at the same time on one cache, on a local disk and as two machines: nothing is mixed up."""

import pytest
from forked_command import ForkedCommand
from paid_run import PaidRun, is_refused

from rejuice.operators.kept_rows import SHARED_FOLDERS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("where", ["local", "shared"])
def test_two_runs_at_once_give_what_one_gives_and_pay_once(folder_in_memory, where):
    run = PaidRun(folder_in_memory / "run")
    environment = {"PAUSE": "0.01"}
    if where == "shared":
        environment[SHARED_FOLDERS] = str(folder_in_memory)
    command = ForkedCommand(run.arguments, folder_in_memory / "output.log")
    right = run.result()["export"]
    run.paid()
    (cache,) = run.out.glob(".rejuice")
    cache.rename(folder_in_memory / "cache of the first")
    (run.out / "judge").rename(folder_in_memory / "judge of the first")
    exports = [run.out / f"{name}.parquet" for name in ("one", "two")]
    started = [
        command.start(*run.arguments, "--export_path", str(export), environment=environment)
        for export in exports
    ]
    for process in started:
        ended = command.wait(process)
        assert ended.status == 0, ended
    assert [export.read_bytes() for export in exports] == [right] * 2
    samples, judgements = run.paid()
    again = {prompt for prompt, times in samples.items() if times > 1}
    assert all(map(is_refused, again)), "refused ones are not kept"
    third = run.out / "three.parquet"
    options = ("--export_path", str(third))
    assert command.run(*run.arguments, *options, environment=environment).status == 0
    assert third.read_bytes() == right
    assert [sum(each.values()) for each in run.paid()] == [0, 0]
    assert judgements
