"""Two headless browsers with one page each, used as a person would use them: `Chromium` by its own protocol over a pipe, and
`Firefox` by WebDriver BiDi over a websocket. A browser collects the requests that its page sends and the errors that it reports."""

import base64
import json
import os
import select
import subprocess
import time

PATIENCE = 30


class Left(Exception):
    """The page was left for another one while it was asked."""


class Browser:
    """What the two have in common. A subclass has a `process`, a socket or pipe to `read` from, and these:

    LEFT                  words in the error of a command when the page is left meanwhile
    call(method, params)  sends a command and returns its result
    receive()             returns the messages that have arrived
    take(event, params)   handles an event"""

    def __init__(self, arguments, **how):
        self.name = type(self).__name__.lower()
        self.last, self.answers, self.requests, self.errors = 0, {}, [], []
        self.process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)

    def answer(self, method):
        """Returns the answer to the last command, which had this method."""
        answer = self.wait(lambda: self.answers.pop(self.last, None), f"{method} was not answered")
        if "error" in answer:
            why = str(answer.get("message") or answer["error"])
            raise Left(why) if any(words in why for words in self.LEFT) else SystemExit(f"{method}: {why}")
        return answer["result"]

    def wait(self, found, otherwise, seconds=PATIENCE):
        """Handles what the browser says until `found` gives something."""
        until = time.monotonic() + seconds
        while True:
            result = found()
            if result:
                return result
            left = until - time.monotonic()
            if left <= 0:
                raise SystemExit(f"after {seconds} s: {otherwise}; errors on the page: {self.errors}")
            if select.select([self.read], [], [], min(left, 0.2))[0]:
                for message in self.receive():
                    if "id" in message:
                        self.answers[message["id"]] = message
                    else:
                        self.take(message.get("method"), message.get("params", {}))

    def until(self, code, otherwise, seconds=PATIENCE):
        """Evaluates until the value is true; the page may be left for another meanwhile."""
        def found():
            try:
                return self.eval(code)
            except Left:
                return None

        return self.wait(found, otherwise, seconds)

    def rest(self, seconds):
        """Lets so much time go by."""
        until = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= until, "time does not pass", seconds + PATIENCE)

    def place(self, selector, across=None, down=None):
        """Returns a point of an element in the window: its middle, or so many pixels from its upper left corner."""
        self.eval(f"document.querySelector({selector!r}).scrollIntoView({{ block: 'nearest' }})")
        box = self.eval(f"(r => [r.x, r.y, r.width, r.height])(document.querySelector({selector!r}).getBoundingClientRect())")
        return [round(box[0] + (box[2] / 2 if across is None else across)), round(box[1] + (box[3] / 2 if down is None else down))]

    def open(self, url):
        self.go(url)
        self.until("Number(document.body?.dataset.ticks || 0) > 0", "the page does not tick")

    def save(self, path, data):
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


class Chromium(Browser):
    LEFT = ["navigated or closed", "Cannot find context"]
    FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run --disable-sync --hide-scrollbars
    --disable-background-networking --disable-component-update --disable-extensions --remote-debugging-pipe --window-size=1280,800""".split()

    def __init__(self, folder):
        to_browser, self.to = os.pipe()
        self.read, from_browser = os.pipe()

        def pipes():
            # The browser reads from 3 and writes to 4.
            read, write = os.dup(to_browser), os.dup(from_browser)
            os.dup2(read, 3)
            os.dup2(write, 4)

        arguments = ["chromium", f"--user-data-dir={folder}/profile", *self.FLAGS, "about:blank"]
        super().__init__(arguments, preexec_fn=pipes, close_fds=False)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.session = b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        return self.answer(method)

    def receive(self):
        data = os.read(self.read, 1 << 20)
        if not data:
            raise SystemExit("chromium ended")
        *messages, self.buffer = (self.buffer + data).split(b"\0")
        return [json.loads(message) for message in messages]

    def take(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def eval(self, code):
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{code}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def go(self, url):
        self.call("Page.navigate", url=url)

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {"windowsVirtualKeyCode": {"Tab": 9, "Enter": 13}.get(key, 0)}
        for kind in ["keyDown", "keyUp"]:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def click(self, selector):
        x, y = self.place(selector)
        for kind in ["mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, x, y, across):
        for kind, at in [("mousePressed", x), ("mouseMoved", x + across // 2), ("mouseMoved", x + across), ("mouseReleased", x + across)]:
            self.call("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1, clickCount=1)

    def window(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path, scheme, whole):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.rest(0.5)
        self.save(path, self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def end(self):
        self.process.terminate()
        self.process.wait()


class Firefox(Browser):
    LEFT = ["AbortError", "no such frame", "DiscardedBrowsingContext"]
    # Keys have code points of their own in WebDriver.
    KEYS = {"Tab": "\ue004", "Escape": "\ue00c", "End": "\ue010", "Home": "\ue011", "ArrowLeft": "\ue012", "ArrowUp": "\ue013",
            "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Enter": "\ue007"}
    EVENTS = ["log.entryAdded", "network.beforeRequestSent"]
    # No request but the page's own, and no first-run page.
    PREFERENCES = {"app.update.enabled": False, "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False,
                   "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False, "toolkit.telemetry.enabled": False,
                   "browser.aboutwelcome.enabled": False}

    def __init__(self, folder):
        profile = f"{folder}/profile"
        os.mkdir(profile)
        with open(f"{profile}/user.js", "w") as file:
            file.writelines(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in self.PREFERENCES.items())
        # The system access is for what BiDi does not have: focus on the page, and the light or dark setting.
        super().__init__(["firefox-esr", "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0",
                          "--remote-allow-system-access", "about:blank"], env={**os.environ, "HOME": folder, "MOZ_DISABLE_CONTENT_SANDBOX": "1"})
        self.socket = self.connect(f"{profile}/WebDriverBiDiServer.json")
        self.read = self.socket.sock
        self.call("session.new", capabilities={})
        self.page = self.call("browsingContext.getTree")["contexts"][0]["context"]
        self.chrome = self.call("browsingContext.getTree", **{"moz:scope": "chrome"})["contexts"][0]["context"]
        self.call("session.subscribe", events=self.EVENTS)

    def connect(self, path):
        """Connects to the address that the browser writes to a file of its profile."""
        import websocket  # which Chromium does without

        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise SystemExit(f"firefox-esr ended with {self.process.returncode}")
            try:
                with open(path) as file:
                    address = json.load(file)
                url = f"ws://{address['ws_host']}:{address['ws_port']}/session"
                return websocket.create_connection(url, timeout=PATIENCE, suppress_origin=True)
            except (OSError, ValueError):
                time.sleep(0.05)
        raise SystemExit(f"firefox-esr did not listen within {PATIENCE} s")

    def call(self, method, **params):
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, "method": method, "params": params}))
        return self.answer(method)

    def receive(self):
        # The library reads no further than to the end of a message.
        return [json.loads(self.socket.recv())]

    def take(self, method, params):
        if method == "network.beforeRequestSent" and params["context"] == self.page:
            self.requests.append(params["request"]["url"])
        elif method == "log.entryAdded" and params["level"] in ("error", "warn") and params["source"].get("context") == self.page:
            self.errors.append(params["text"])

    def eval(self, code, context=None):
        # As text, because BiDi returns objects in a form of its own.
        expression = f"JSON.stringify({code})"
        result = self.call("script.evaluate", expression=expression, target={"context": context or self.page}, awaitPromise=False)
        if result["type"] != "success":
            raise SystemExit(f"{code}: {result['exceptionDetails']['text']}")
        return json.loads(result["result"].get("value", "null"))

    def go(self, url):
        self.call("browsingContext.navigate", context=self.page, url=url, wait="interactive")

    def perform(self, kind, **source):
        self.call("input.performActions", context=self.page, actions=[{"type": kind, "id": kind, **source}])

    def key(self, key):
        value = self.KEYS.get(key, key)
        # Not the address bar, which has the focus at first, nor the toolbar, to which Tab leads
        # after the last control. Setting a focus that is there already would take it from the page
        # for a moment.
        self.eval("document.activeElement === gBrowser.selectedBrowser || gBrowser.selectedBrowser.focus()", self.chrome)
        self.perform("key", actions=[{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}])

    def click(self, selector):
        x, y = self.place(selector)
        self.perform("pointer", actions=[{"type": "pointerMove", "x": x, "y": y}, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}])

    def point(self, x, y):
        self.perform("pointer", actions=[{"type": "pointerMove", "x": x, "y": y}])

    def drag(self, x, y, across):
        move = lambda at: {"type": "pointerMove", "x": at, "y": y}
        down, up = [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        self.perform("pointer", actions=[move(x), down, move(x + across // 2), move(x + across), up])

    def window(self, width, height):
        self.call("browsingContext.setViewport", context=self.page, viewport={"width": width, "height": height}, devicePixelRatio=1)

    def screenshot(self, path, scheme, whole):
        self.eval(f"gBrowser.selectedBrowser.browsingContext.prefersColorSchemeOverride = {scheme!r}", self.chrome)
        self.rest(0.5)
        origin = "document" if whole else "viewport"
        self.save(path, self.call("browsingContext.captureScreenshot", context=self.page, origin=origin)["data"])

    def end(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait()


BROWSERS = {"chromium": Chromium, "firefox": Firefox}
