"""Chromium over the WebDriver protocol, without a library: windows, scripts, screenshots."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.request

PLAIN = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
# A window that no one sees polls as one that is seen.
ALWAYS_ACTIVE = ("--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding")


def is_there():
    return bool(shutil.which("chromedriver") and shutil.which("chromium"))


def ask(url, body=None, method="POST", seconds=120):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, method=method, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=seconds) as reply:
        return json.loads(reply.read())["value"]


class Browser:
    def __init__(self, *arguments):
        self.driver = subprocess.Popen([shutil.which("chromedriver"), "--port=0"], stdout=subprocess.PIPE, text=True)
        found = next(filter(None, (re.search(r"started successfully on port (\d+)", line) for line in self.driver.stdout)))
        self.url = f"http://127.0.0.1:{found[1]}/session"
        options = {"args": [*PLAIN, *arguments]}
        made = ask(self.url, {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}})
        self.url += "/" + made["sessionId"]

    def js(self, script):
        return ask(self.url + "/execute/sync", {"script": script, "args": []})

    def open(self, address):
        ask(self.url + "/url", {"url": address})

    def windows(self):
        return ask(self.url + "/window/handles", method="GET")

    def new_window(self):
        """One more, which is the current one from then on."""
        self.go_to(ask(self.url + "/window/new", {"type": "window"})["handle"])

    def go_to(self, window):
        ask(self.url + "/window", {"handle": window})

    def size(self, width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        ask(self.url + "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def until(self, script, seconds=120):
        for _ in range(seconds * 10):
            if self.js(script):
                return
            time.sleep(0.1)
        raise SystemExit(f"not within {seconds} s: {script}")

    def picture(self):
        """The window as a PNG file."""
        return base64.b64decode(ask(self.url + "/screenshot", method="GET"))

    def close(self):
        with contextlib.suppress(OSError):
            ask(self.url, method="DELETE")
        self.driver.terminate()
        self.driver.wait(30)
