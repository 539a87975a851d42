"""Uses the page of `redline serve` in a headless browser.

The server has the demo model and runs on a free port. Each panel is filled in and sent, and the numbers that it shows must be those that
the API answers to the request that the page shows. Nothing may be written to the console, break the content security policy, go to another
host, or be wider than a phone. Screenshots go to `--out`.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import traceback
import urllib.error
import urllib.request

from playwright.sync_api import expect, sync_playwright

import panels

ROOT = pathlib.Path(__file__).parents[2]
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]
WIDTHS = {"wide": (1280, 900), "phone": (360, 740)}
KEY = "secret-1"


class Server:
    """A server on a free port, which ends with the block."""

    def __init__(self, binary, model="demo", flags=()):
        self.process = subprocess.Popen(
            [binary, "serve", "--model", model, "--port", "0", "--quiet", *flags], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the server said {line!r}")
        self.url = line.split()[-1]

    def post(self, path, body):
        """The answer of the API, without the page."""
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


class Watched:
    """A page whose console, errors and requests are kept."""

    def __init__(self, browser, server, scheme="light", width="wide", **options):
        size = dict(zip(("width", "height"), WIDTHS[width]))
        self.context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", **options)
        self.page, self.server = self.context.new_page(), server
        self.noise, self.elsewhere = [], []
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("request", self.request)
        self.page.add_init_script("addEventListener('securitypolicyviolation', e => console.error('CSP: ' + e.violatedDirective))")

    def request(self, request):
        if not request.url.startswith((self.server.url + "/", "data:")):
            self.elsewhere.append(request.url)

    def open(self, panel=""):
        self.page.goto(f"{self.server.url}/{panel and '#' + panel}")
        return self.page

    def check(self):
        """Nothing was logged or asked elsewhere, and nothing is wider than the window."""
        assert not self.noise, self.noise
        assert not self.elsewhere, self.elsewhere
        over = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{over} pixels wider than the window"

    def picture(self, path):
        self.page.screenshot(path=path, full_page=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def panel(name, scheme, width):
    """The check of a panel, whose numbers are those of the API."""

    def check(browser, server, out):
        with Watched(browser, server, scheme, width) as watched:
            (panels.ALL | panels.MASKED)[name](watched.open(name), server)
            watched.picture(out / f"{name}-{scheme}-{width}.png")
            watched.check()

    return f"{name}, {scheme}, {width}", check


def gauges(browser, server, out):
    with Watched(browser, server) as watched:
        page = watched.open()
        for name in ("Running", "Waiting", "KV pages used", "New tokens/s"):
            expect(page.locator("#gauges div", has=page.get_by_text(name, exact=True)).locator("dd")).to_have_text(
                panels.NUMBER, timeout=10_000
            )
        watched.check()


def keyboard(browser, server, out):
    """The tabs follow the arrow keys, and a form is sent without a pointer."""
    with Watched(browser, server) as watched:
        page = watched.open("completion")
        page.locator("#tab-completion").focus()
        for key, name in [("ArrowRight", "chat"), ("ArrowRight", "scores"), ("End", "chat"), ("Home", "scores")]:
            page.keyboard.press(key)
            expect(page.locator(f"#tab-{name}")).to_be_focused()
            expect(page.locator(f"#{name}")).to_be_visible()
        for _ in range(5):
            page.keyboard.press("Tab")
        expect(page.locator("#scores [type=submit]")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#scores .bars").first).to_be_visible()
        unnamed = page.evaluate("[...document.querySelectorAll('input,select,textarea')].filter(e => !e.labels.length).length")
        assert unnamed == 0, f"{unnamed} inputs without a label"
        watched.check()


def errors(browser, server, out):
    """An error of the server is shown as it is, and texts that look like HTML are texts."""
    with Watched(browser, server) as watched:
        page = watched.open("completion")
        page.locator("#completion [name=max_tokens]").fill("100000")
        page.locator("#completion [type=submit]").click()
        box = page.locator("#completion .problem")
        expect(box).to_contain_text("400")
        request = {"model": "demo", "prompt": "In the beginning", "max_tokens": 100000}
        try:
            server.post("v1/completions", request)
        except urllib.error.HTTPError as error:
            refused = json.load(error)["error"]
        expect(box.locator("p")).to_have_text(refused["message"])
        expect(box).to_contain_text(refused["param"])
        watched.picture(out / "error-light-wide.png")
        # The browser itself logs every answer with status 400.
        watched.noise = [text for text in watched.noise if "400 (Bad Request)" not in text]
        page = watched.open("scores")
        page.locator("#scores [name=items]").fill("<img src=x onerror=alert(1)>")
        page.locator("#scores [type=submit]").click()
        expect(page.locator("#scores .result h2")).to_have_text("<img src=x onerror=alert(1)>")
        assert page.locator("#scores .result img").count() == 0
        watched.check()


def stopping(browser, server, out):
    with Watched(browser, server) as watched:
        page = watched.open("completion")
        # At once, so that the answer cannot be complete before.
        page.evaluate("for (const name of ['[type=submit]', '.stop']) document.querySelector(`#completion ${name}`).click()")
        expect(page.locator("#completion .result")).to_contain_text("Stopped.")
        expect(page.locator("#completion .result")).to_have_attribute("aria-busy", "false")
        expect(page.locator("#completion .stop")).to_be_disabled()
        watched.check()


def keys(browser, binary, out):
    """A key is asked for, kept for the tab, and sent."""
    file = out / "keys"
    file.write_text(f"alice {KEY}\n")
    with Server(binary, flags=["--api-key-file", file]) as server, Watched(browser, server) as watched:
        page = watched.open()
        expect(page.locator("#problem")).to_contain_text("401")
        page.get_by_label("API key").fill(KEY)
        page.get_by_label("API key").press("Tab")
        expect(page.locator("#problem")).to_be_empty()
        page.locator("#scores [type=submit]").click()
        expect(page.locator("#scores .bars").first).to_be_visible()
        page.reload()
        expect(page.get_by_label("API key")).to_have_value(KEY)
        expect(page.locator("#model")).to_have_value("demo")
        assert page.evaluate("localStorage.length") == 0 and not watched.context.cookies()
        # The browser itself logs every answer with status 401.
        watched.noise = [text for text in watched.noise if "401 (Unauthorized)" not in text]
        watched.check()


def abilities(browser, binary, out):
    """Only a model that fills masks has a panel for it, and chat needs a template; an adapter takes no decisions."""
    with Server(binary, "demo-diffusion") as server, Watched(browser, server) as watched:
        page = watched.open("chat")
        expect(page.locator("#chat .reason")).to_contain_text("chat template")
        expect(page.locator("#chat [type=submit]")).to_be_disabled()
        expect(page.locator("#chat [name=message]")).to_be_disabled()
        expect(page.locator("#tab-diffusion")).to_be_visible()
        watched.picture(out / "unavailable-light-wide.png")
        page = watched.open("completion")
        panels.completion(page, server, panels.MASKED_NUMBERS)
        page = watched.open("scores")
        panels.scores(page, server)
        watched.check()
    adapter = next(path.parent for path in sorted((ROOT / "models/demo-adapter").rglob("adapter_config.json")))
    with Server(binary, flags=["--adapter", f"mine={adapter}"]) as server, Watched(browser, server) as watched:
        # The panel that the address names is hidden.
        page = watched.open("diffusion")
        expect(page.locator("#tab-chat")).to_have_class("unavailable")
        expect(page.locator("#tab-diffusion")).to_be_hidden()
        expect(page.locator("#scores")).to_be_visible()
        page = watched.open("decisions")
        page.locator("#model").select_option("mine")
        expect(page.locator("#decisions .reason")).to_contain_text("no adapter")
        expect(page.locator("#chat .reason")).to_contain_text("chat template", use_inner_text=False)
        page = watched.open("scores")
        page.locator("#model").select_option("mine")
        panels.scores(page, server)
        watched.check()


def without_scripts(browser, server, out):
    with Watched(browser, server, java_script_enabled=False) as watched:
        page = watched.open()
        expect(page.locator("noscript p")).to_be_visible()
        expect(page.locator("#app")).to_be_hidden()


def filling(browser, server, out):
    """The canvas is seen while it fills in, the API's errors are shown, and a canvas that is stopped stays as it is."""
    with Watched(browser, server) as watched:
        page = watched.open("diffusion")
        panel = page.locator("#diffusion")
        expect(panel).to_be_visible()
        # Every state of the canvas: given, masked and new cells.
        page.evaluate("""() => {
            window.seen = [];
            const look = () => {
                const count = name => document.querySelectorAll(`.canvas .${name}`).length;
                if (document.querySelector('.canvas .cell')) seen.push([count('given'), count('masked'), count('new')]);
            };
            new MutationObserver(look).observe(document.querySelector('#diffusion .result'), {subtree: true, childList: true, attributes: true});
        }""")
        panel.locator("[name=prompt]").fill("And <b>God</b> said")
        panel.locator("[name=max_tokens]").fill("24")
        panels.send(panel)
        given = "".join(panel.locator(".canvas .given").all_text_contents())
        assert given.endswith("And <b>God</b> said") and panel.locator(".canvas b").count() == 0, given
        seen = page.evaluate("seen")
        masks = [masked for _, masked, _ in seen]
        assert masks[0] == 24 and masks == sorted(masks, reverse=True) and len(set(masks)) > 3, seen
        assert any(new for *_, new in seen) and all(given == seen[0][0] for given, *_ in seen), seen
        panel.locator("[name=steps]").fill("4")
        panel.locator("[name=threshold]").fill("0.5")
        panel.locator("[type=submit]").click()
        expect(panel.locator(".problem")).to_contain_text("steps")
        # The browser itself logs every answer with status 400.
        watched.noise = [text for text in watched.noise if "400 (Bad Request)" not in text]
        panel.locator("[name=steps]").fill("")
        panel.locator("[name=threshold]").fill("")
        panel.locator("[name=max_tokens]").fill("400")
        panel.locator("[type=submit]").click()
        expect(panel.locator(".canvas .new").first).to_be_visible()
        panel.locator(".stop").click()
        expect(panel.locator(".result")).to_contain_text("Stopped.")
        assert panel.locator(".canvas .masked").count() > 0
        watched.picture(out / "stopped-light-wide.png")
        watched.check()


def motion(browser, server, out):
    """Cells fade only for those who did not ask for less motion."""
    for wish, seconds in (("reduce", "0s"), ("no-preference", "1.2s")):
        with Watched(browser, server) as watched:
            page = watched.open("diffusion")
            page.emulate_media(reduced_motion=wish)
            panels.send(page.locator("#diffusion"))
            look = "e => getComputedStyle(e).transitionDuration"
            assert page.locator(".canvas .given").first.evaluate(look) == seconds, wish


PANELS = [panel(name, scheme, width) for scheme in ("light", "dark") for width in WIDTHS for name in panels.ALL]
# Checks of the server of a model that fills masks.
MASKED = [panel(name, scheme, width) for scheme in ("light", "dark") for width in WIDTHS for name in panels.MASKED]
MASKED += [(check.__name__, check) for check in (filling, motion)]
# Checks of a server that they share.
SHARED = PANELS + [(check.__name__, check) for check in (gauges, keyboard, errors, stopping, without_scripts)]
# Checks that start servers of their own.
OWN = [(check.__name__, check) for check in (keys, abilities)]


def run(checks, *arguments):
    """Runs all checks, and returns the number of those that failed."""
    failed = 0
    for name, check in checks:
        try:
            check(*arguments)
            print(f"ok      {name}", flush=True)
        except Exception:
            traceback.print_exc()
            print(f"FAILED  {name}", flush=True)
            failed += 1
    return failed


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask page", description=__doc__.splitlines()[0])
    parser.add_argument("--redline", default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--browser", help="the browser; default: Chromium on PATH")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/page", help="the directory for screenshots")
    arguments = parser.parse_args()
    path = arguments.browser or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        parser.error("there is no Chromium on PATH; on Debian, `apt-get install chromium` brings one")
    arguments.out.mkdir(parents=True, exist_ok=True)
    template = ROOT / "tests/golden/chat/parts.jinja"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        with Server(arguments.redline, flags=["--chat-template", template]) as server:
            failed = run(SHARED, browser, server, arguments.out)
        with Server(arguments.redline, "demo-diffusion") as server:
            failed += run(MASKED, browser, server, arguments.out)
        failed += run(OWN, browser, arguments.redline, arguments.out)
        browser.close()
    print(f"screenshots are in {arguments.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
