"""The server of `rejuice view --live`: on loopback, read only, with a token; ends with the run."""

import json
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import browser as browsers
import page_fixture
import pytest

from rejuice.operators import DataError, RejuiceError
from rejuice.pipelines.analysis.page.build import page_bytes
from rejuice.trainer.report.live import serve


class Run:
    """A run that goes on until it is ended; `step` is what its page shows."""

    def __init__(self):
        self.step, self.built, self.ended = 1, 0, threading.Event()

    def version(self):
        return f"step {self.step}"

    def page(self, version):
        self.built += 1
        if self.step == 0:
            raise DataError("steps/000000 cannot be read")
        return page_bytes(page_fixture.page_data(hostile=False), version)

    def status(self):
        return f"step {self.step} of 3"

    def is_running(self):
        return not self.ended.is_set()


@pytest.fixture
def run():
    return Run()


@pytest.fixture
def address(run):
    """Where the page of `run` is served; the run ends with the test."""
    addresses, farewell = [], threading.Event()
    opened = threading.Event()

    def wait(seconds):
        run.ended.wait() if not run.ended.is_set() else farewell.wait()

    def tell(line):
        addresses.append(line)
        opened.set()

    thread = threading.Thread(target=serve, args=(run, 0, tell), kwargs={"wait": wait})
    thread.start()
    assert opened.wait(30)
    yield addresses[0]
    run.ended.set()
    farewell.set()
    thread.join(30)
    assert not thread.is_alive()


def get(address, method="GET"):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method=method)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_page_is_built_once_for_each_version(run, address):
    assert urlsplit(address).hostname == "127.0.0.1"
    status, page = get(address)
    assert (status, page[:15]) == (200, b"<!doctype html>")
    assert b"connect-src 'self'" in page
    assert b'"live":"step 1"' in page
    assert (get(address), run.built) == ((200, page), 1)
    assert json.loads(get(f"{address}version")[1]) == {
        "version": "step 1",
        "running": True,
        "status": "step 1 of 3",
    }
    run.step = 2
    assert b'"live":"step 2"' in get(address)[1]
    assert run.built == 2


def test_only_who_has_the_token_reads_and_nobody_writes(address):
    token = urlsplit(address).path.strip("/")
    root = address.removesuffix(f"{token}/")
    others = ("", "version", f"{token[:-1]}/", f"{token}x/version", f"{token}/../recipe.yaml", "é/")
    for path in others:
        assert get(root + urllib.request.quote(path))[0] == 404, path
    assert len(token) >= 20
    assert get(f"{address}other")[0] == 404
    assert {get(address, method)[0] for method in ("POST", "PUT", "DELETE")} == {501}


def test_a_step_that_is_being_written_is_asked_for_again(run, address):
    run.step = 0
    assert get(address) == (503, b"steps/000000 cannot be read\n")
    run.step = 1
    assert get(address)[0] == 200


@pytest.mark.recommended("trainer/report/live.py", "give another --port")
def test_a_taken_port_is_one_line(address, run):
    with pytest.raises(RejuiceError, match=r"port \d+: Address already in use; give another"):
        serve(run, urlsplit(address).port, print)


def test_a_page_that_is_not_live_asks_for_nothing():
    page = page_bytes(page_fixture.page_data(hostile=False), "")
    assert b"connect-src" not in page
    assert b"fetch(" not in page


@pytest.mark.browser
@pytest.mark.slow
def test_an_open_page_follows_the_run_to_its_end(run, address):
    browser = browsers.start()
    try:
        browser.driver.get(address)
        shown = "return document.documentElement.dataset.ready && HEAD.live"
        assert browser.wait(shown) == "step 1"
        status = "return document.getElementById('live')?.textContent"
        assert browser.wait(status) == "Live: step 1 of 3"
        run.step = 2
        browser.wait("return document.documentElement.dataset.ready && HEAD.live === 'step 2'")
        browser.run("scrollTo(0, 2000)")
        if browser.run("return scrollY") >= 700:
            run.step = 3
            banner = "document.getElementById('banner')"
            browser.wait(f"return {banner}.textContent.startsWith('There are new figures.')")
            browser.run(f"{banner}.querySelector('button').click()")
            browser.wait("return document.documentElement.dataset.ready && HEAD.live === 'step 3'")
        run.ended.set()
        browser.wait("return document.getElementById('banner').textContent.includes('has ended')")
        assert browser.console() == []
    finally:
        browser.close()
