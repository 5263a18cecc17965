"""A headless Chromium that loads nothing, for tests of the page."""

import json
import os
import time
from pathlib import Path

import pytest

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
_MISSING = "needs chromium and chromium-driver: apt-get install chromium chromium-driver"
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--force-color-profile=srgb",
)
_LONGEST_S = 60


class Browser:
    """A page in a browser.

    Args:
        width, height: of the window, in pixels.
    """

    def __init__(self, width=1280, height=900):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        os.environ["SE_OFFLINE"] = "true"  # Otherwise selenium looks for a driver to download.
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for option in (*_OPTIONS, f"--window-size={width},{height}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))

    def phone(self):
        """Look as a phone of 390 x 844 does: a window is never as narrow."""
        metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def desktop(self):
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def open(self, page, part=""):
        """Open a page, and wait until it is ready; returns the seconds that it took."""
        self.driver.get("about:blank")
        start = time.perf_counter()
        self.driver.get(f"{Path(page).resolve().as_uri()}{part}")
        self.wait("return document.documentElement.dataset.ready")
        return time.perf_counter() - start

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script, *arguments):
        """What a script returns, once that is true."""
        end = time.perf_counter() + _LONGEST_S
        while not (found := self.run(script, *arguments)):
            assert time.perf_counter() < end, f"never true: {script}"
            time.sleep(0.02)
        return found

    def key(self, keys):
        """Press keys, wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(keys).perform()

    def choose(self, name, value):
        """Set a field of the filters, as a person does."""
        self.run(
            """
            const field = document.getElementById("filters")[arguments[0]];
            field.value = arguments[1];
            field.dispatchEvent(new Event("change", { bubbles: true }));
            """,
            name,
            value,
        )

    def filtered(self, rows):
        """Wait until the filters leave that many rows; returns the number of groups."""
        self.wait(
            "return document.getElementById('matches').dataset.rows === arguments[0]", str(rows)
        )
        return int(self.run("return document.getElementById('matches').dataset.groups"))

    def console(self):
        """Messages of the console that are errors."""
        return [each for each in self.driver.get_log("browser") if each["level"] == "SEVERE"]

    def requested(self):
        """Addresses that were asked for since the last call, without data: and about:."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [url for url in found if not url.startswith(("data:", "about:"))]

    def table(self, figure):
        """The table of a figure: a list of rows, numbers as they are in the page."""
        return self.run(
            """
            const panel = document.querySelector(`[data-figure="${CSS.escape(arguments[0])}"]`);
            return [...panel.querySelectorAll("tbody tr")].map(
              (line) => [...line.cells].map((cell) => cell.dataset.value));
            """,
            figure,
        )

    def close(self):
        self.driver.quit()


def start():
    """A browser; the test is skipped where there is none, and fails where there must be one."""
    if not (CHROMIUM.exists() and DRIVER.exists()):
        needed = os.environ.get("REJUICE_NEED_BROWSER") == "1"
        (pytest.fail if needed else pytest.skip)(_MISSING)
    return Browser()
