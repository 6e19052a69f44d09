"""Chromium over the WebDriver protocol, without a library: windows, scripts, keys, logs, screenshots."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

PLAIN = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
# A window that no one sees polls as one that is seen.
ALWAYS_ACTIVE = ("--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name of an element in an answer


def is_there():
    return bool(shutil.which("chromedriver") and shutil.which("chromium"))


def ask(url, body=None, method="POST", seconds=120):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, method=method, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as reply:
            return json.loads(reply.read())["value"]
    except urllib.error.HTTPError as error:
        # The driver answers 500 for a script that throws, too: only its words tell what failed.
        said = json.loads(error.read())["value"]
        raise RuntimeError(f"chromedriver: {said['error']}: {said['message']}") from None


class Browser:
    def __init__(self, *arguments, logs=False):
        """With `logs`, chromedriver keeps what log() returns."""
        self.driver = subprocess.Popen([shutil.which("chromedriver"), "--port=0"], stdout=subprocess.PIPE, text=True)
        found = next(filter(None, (re.search(r"started successfully on port (\d+)", line) for line in self.driver.stdout)))
        self.url = f"http://127.0.0.1:{found[1]}/session"
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": [*PLAIN, *arguments]},
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"} if logs else {}}
        made = ask(self.url, {"capabilities": {"alwaysMatch": wanted}})
        self.url += "/" + made["sessionId"]

    def js(self, script, *arguments):
        return ask(self.url + "/execute/sync", {"script": script, "args": arguments})

    def js_done(self, script, *arguments):
        """The value with which the script calls its last argument."""
        return ask(self.url + "/execute/async", {"script": script, "args": arguments})

    def open(self, address):
        ask(self.url + "/url", {"url": address})

    def refresh(self):
        ask(self.url + "/refresh", {})

    def address(self):
        return ask(self.url + "/url", method="GET")

    def focused(self):
        return ask(self.url + "/element/active", method="GET")[ELEMENT]

    def find(self, selector):
        return ask(self.url + "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def keys(self, element, text):
        ask(f"{self.url}/element/{element}/value", {"text": text})

    def log(self, kind):
        """Entries since the last call: the console's ("browser") or Chromium's own events ("performance")."""
        return ask(self.url + "/se/log", {"type": kind})

    def windows(self):
        return ask(self.url + "/window/handles", method="GET")

    def new_window(self):
        """One more, which is the current one from then on."""
        self.go_to(ask(self.url + "/window/new", {"type": "window"})["handle"])

    def go_to(self, window):
        ask(self.url + "/window", {"handle": window})

    def size(self, width, height):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """`light` or `dark`."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def devtools(self, command, **fields):
        ask(self.url + "/goog/cdp/execute", {"cmd": command, "params": fields})

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
