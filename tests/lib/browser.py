"""A real browser for tests: Chromium without a window, driven through a pipe (--remote-debugging-pipe), so that neither a
port nor a package is needed. It can reach no host: every name resolves to nothing.

    with browser.Browser() as page:
        page.open("file:///...")
        page.run("document.title")
"""
import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe")


class Browser:

    def __init__(self, width=1280, height=900):
        self.folder = tempfile.mkdtemp(prefix="ztstream-browser-")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def descriptors():  # the browser reads 3 and writes 4
            reads, writes = os.dup(to_read), os.dup(to_write)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        self.process = subprocess.Popen([CHROMIUM, *FLAGS, f"--user-data-dir={self.folder}", "about:blank"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(3, 4, to_read, to_write),
                                        preexec_fn=descriptors, env={**os.environ, "HOME": self.folder})
        os.close(to_read)
        os.close(to_write)
        self.numbers, self.buffer, self.session, self.events = itertools.count(1), b"", None, []
        target = next(each for each in self.ask("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(domain + ".enable")
        self.ask("Emulation.setScrollbarsHidden", hidden=True)
        self.ask("Performance.enable", timeDomain="threadTicks")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)
        os.close(self.back)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self):
        while b"\0" not in self.buffer:
            more = os.read(self.back, 1 << 20)
            if not more:
                raise EOFError("the browser has gone")
            self.buffer += more
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def ask(self, method, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url):
        """Opens a page and waits until it is loaded; self.events are those of this page alone."""
        self.events = []
        self.ask("Page.navigate", url=url)
        while not any(each.get("method") == "Page.loadEventFired" for each in self.events):
            self.events.append(self.receive())

    def run(self, expression):
        """The value of a JavaScript expression."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def seconds(self):
        """Of processor time that the page has taken since it was opened: a busy machine makes no difference."""
        metrics = {each["name"]: each["value"] for each in self.ask("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"]

    def resize(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path):
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def requests(self):
        """The addresses that the page has asked for."""
        return [each["params"]["request"]["url"] for each in self.events if each.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        """Exceptions, and what the console says."""
        wanted = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [each["params"] for each in self.events if each.get("method") in wanted]
