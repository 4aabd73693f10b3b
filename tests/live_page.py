#!/usr/bin/env python3
"""Opens the live page of a running instance in a headless browser, chromium or firefox, and uses it as a person would.

    tests/live_page.py BROWSER URL FOLDER       checks; screenshots of each width, light and dark, go to FOLDER
    tests/live_page.py BROWSER URL --watch S    keeps the page open for S seconds, and that is all
    tests/live_page.py BROWSER URL --step WORDS the way of the last write, after this command has let a paused device do some requests"""

import collections
import re
import subprocess
import sys
import tempfile
import time

from browsers import BROWSERS

WIDTHS = {360: 740, 1280: 800, 2560: 1440}

COLOURS = """(id => { const c = document.getElementById(id);
  const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(c, 0, 0);
  const d = copy.getImageData(0, 0, c.width, c.height).data;
  const seen = new Set();
  for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
  return seen.size; })"""


def fail(why):
    raise SystemExit(f"live page: {why}")


def check_texts(browser, text):
    """Names and numbers of the plots."""
    uses = browser.eval("device.uses")
    for legend in ["map-legend", "space-legend"]:
        names = browser.eval(f"[...document.querySelectorAll('#{legend} span')].map(s => s.textContent.split(' ')[0])")
        if not {"free", "bad", "data"} <= set(names) or set(names) - set(uses) - {"outlined:", "a"}:
            fail(f"{legend} has the names {names}, the daemon has {uses}")
    if " us" in text("latency-legend") or "\u00b5s" not in text("latency-legend"):
        fail(f"latencies are told as {text('latency-legend')!r}")
    for words in ["write amplification, last 10 s", "write amplification, since the start"]:
        if words not in text("now"):
            fail(f"no {words!r} in {text('now')!r}")
    for plot, words in [("bytes", "iB/s"), ("ratio", "emulated time per wall time"), ("requests", "reads ")]:
        browser.click(f"[data-plot={plot}]")
        if words not in text("host-legend"):
            fail(f"host requests by {plot} are told as {text('host-legend')!r}")
    if "this flash" not in text("takes"):
        fail(f"the time on the flash is told as {text('takes')!r}")
    # The histogram has the blocks of the map, and the mean is theirs.
    mean = browser.eval("""(() => { const empty = ['free', 'released', 'bad'].map(use => device.uses.indexOf(use)); draw();
      const of = now.map.valid.filter((_, i) => !empty.includes(now.map.used[i]));
      return (of.reduce((a, b) => a + b, 0) / of.length).toFixed(1) + ' of ' + device.pages_per_block; })()""")
    if f"mean {mean} valid pages" not in text("valid-legend"):
        fail(f"the mean of the histogram is not {mean}: {text('valid-legend')!r}")
    victim = browser.eval("now.events.findLast(e => device.events[e[1]] === 'gc')")
    if f"victim: block {victim[2]} with {victim[3]};" not in text("valid-legend"):
        fail(f"the victim of {victim} is not in {text('valid-legend')!r}")


def check_keys(browser, text):
    """Every control is reached by Tab and shows its focus; the arrows choose blocks."""
    wanted = browser.eval("[...document.querySelectorAll('button, a, canvas[tabindex]')].filter(e => e.checkVisibility()).length")
    reached = set()
    # Once around the page, from wherever the last click was: the body is between the last and the first control.
    for _ in range(wanted + 1):
        browser.key("Tab")
        element, outline = browser.eval("""(e => [e === document.body ? '' : e.id || e.outerHTML, getComputedStyle(e).outlineStyle])
          (document.activeElement)""")
        if element and outline == "none":
            fail(f"{element} does not show its focus")
        reached.add(element)
    if len(reached - {""}) != wanted:
        fail(f"{wanted} controls, reached by Tab: {reached}")
    browser.eval("document.getElementById('map').focus()")
    for key, block in [("ArrowRight", 0), ("ArrowRight", 1), ("ArrowDown", None), ("ArrowUp", 1), ("End", None), ("Home", 0)]:
        browser.key(key)
        said = text("say")
        if "pages valid" not in said or (block is not None and not said.startswith(f"Block {block}:")):
            fail(f"{key} on the map says {said!r}")
    if text("view") != "live":
        fail("an arrow on the map steps through the events")
    browser.key("Escape")
    if browser.eval("chosen") != -1:
        fail("Escape does not leave the block")
    browser.eval("document.activeElement.blur()")


def check_reopened(browser, url, text):
    """Reopened after the events were not published any more, the page has its plots and drops no event."""
    before = browser.eval("now.ticks.length")
    browser.go("about:blank")
    browser.rest(8)
    browser.open(url)
    after = browser.eval("now.ticks.length")
    if after < min(before + 5, 600):
        fail(f"{before} seconds of history before, {after} after 8 s")
    browser.until("Number(document.body.dataset.ticks) >= 6", "the page does not tick")
    if "dropped" in text("events-legend"):
        fail(f"after the page was closed for 8 s: {text('events-legend')!r}")


def check_widths(browser, folder):
    """Nothing is cut or touches an edge, at any width."""
    for width in WIDTHS:
        browser.window(width, WIDTHS[width])
        for scheme in ["light", "dark"]:
            browser.screenshot(f"{folder}/{scheme}-{width}.png", scheme, True)
        wide = browser.eval("document.documentElement.scrollWidth")
        if wide > width:
            fail(f"the page is {wide} pixels wide, the window {width}")
        touching = browser.eval("""[...document.querySelectorAll('section:not([hidden])')].flatMap(section => [...section.querySelectorAll('*')]
          .filter(e => e.getBoundingClientRect().right > section.getBoundingClientRect().right - 6).map(e => e.id || e.textContent))""")
        if touching:
            fail(f"at {width} pixels the edge is touched by {touching}")
    browser.window(1280, WIDTHS[1280])


def check_instances(browser, text):
    """The other instance is a link with its state, and leads to its page."""
    browser.until("document.querySelector('#instances a') !== null", "no link to the other instance")
    if "dftl, serving" not in text("instances"):
        fail(f"the instances are told as {text('instances')!r}")
    other = browser.eval("document.querySelector('#instances a').href")
    browser.click("#instances a")
    browser.until(f"location.href === {other!r} && Number(document.body?.dataset.ticks || 0) > 1", "the link leads nowhere")
    browser.until("document.querySelector('#instances a') !== null", "no link back")
    return other


def check_idle(browser, text):
    """Axes of a device without a load have numbers that a person can read, and there is a line that makes one."""
    browser.until("!document.getElementById('idle').hidden", "an idle page names no load")
    if "fio --name=load" not in text("idle-line") or "--rw=randwrite" not in text("idle-line"):
        fail(f"the load to paste is {text('idle-line')!r}")
    labels = browser.eval("""(() => { const seen = [], plain = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (words, ...at) {
        if (this.textBaseline === 'middle') seen.push([this.canvas.id, words]);
        return plain.call(this, words, ...at); };
      draw(); CanvasRenderingContext2D.prototype.fillText = plain; return seen; })()""")
    numbers = collections.defaultdict(list)
    for plot, words in labels:
        if re.match(r"[0-9]", words):
            numbers[plot].append(words)
    if len(numbers) < 6 or any(len(set(of)) < len(of) or "e-" in "".join(of) for of in numbers.values()):
        fail(f"the axes of an idle device are {dict(numbers)}")
    if any("." in words for words in numbers["valid"]):
        fail(f"a number of blocks is no fraction: {numbers['valid']}")


def check_way(browser, command):
    """The page shows the stages of a write one after the other."""
    browser.until("before !== null", "the page does not see the pause")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    stages = "document.querySelectorAll('#way li').length"
    browser.until(f"{stages} > 0", "no way of a write")
    seen = {browser.eval(stages)}
    browser.wait(lambda: seen.add(browser.eval(stages)) or 5 in seen, "the way of the write does not end")
    told = browser.eval("[...document.querySelectorAll('#way li')].map(li => li.textContent)")
    offset = browser.eval("now.status.snapshot.last_write.offset")
    # The streams of the scheme, with the block of the last program, which the page outlines.
    streams = browser.eval("now.status.snapshot.streams.filter(s => s.pages).map(s => s.kind)")
    named = re.findall(r"(\w+): \d+, the last in block (\d+)", told[1])
    outlined = browser.eval("way.stages[1][2]")
    if not named or named[0][0] != "host" or not {kind for kind, _ in named} <= set(streams) or [int(b) for _, b in named] != outlined:
        fail(f"the streams of the way are {told[1]!r}, outlined {outlined}, the device has {streams}")
    if len(seen) < 3 or f"at byte {offset})" not in told[0] or "By cause: host " not in told[1] or "block " not in told[2]:
        fail(f"the way of the last write, {seen} stages: {told}")
    print(f"live page in {browser.name}: {told}")


def check(browser, url, folder):
    ticks = "Number(document.body?.dataset.ticks || 0)"
    text = lambda id: browser.eval(f"document.getElementById({id!r}).textContent")
    browser.until(f"{ticks} >= 6", "the page does not tick")
    browser.until("/^Event /.test(document.getElementById('event-facts').textContent)", "no event was shown")

    modes = {}
    for mode, wanted in [("used", 4), ("valid", 20), ("erases", 3), ("age", 20)]:
        browser.click(f"[data-mode={mode}]")
        modes[mode] = browser.eval(f"{COLOURS}('map')")
        if modes[mode] < wanted:
            fail(f"block map by {mode}: {modes[mode]} colours, expected {wanted} or more")
    for plot in ["valid", "host", "waf", "causes", "latency", "events"]:
        if browser.eval(f"{COLOURS}({plot!r})") < 4:
            fail(f"plot {plot} is empty")
    browser.click("[data-mode=used]")

    check_texts(browser, text)
    check_keys(browser, text)
    check_reopened(browser, url, text)

    browser.point(*browser.place("#map", 40, 10))
    if "pages valid" not in text("map-facts"):
        fail(f"pointing at a block says {text('map-facts')!r}")
    if "lazy" not in text("scheme-name").lower():
        fail(f"the scheme is told as {text('scheme-name')!r}")

    # The view is frozen while the device and the page's own ticks continue; events are stepped through one by one.
    number = lambda: int(text("event-facts").split()[1].rstrip(":"))
    state = browser.eval("document.getElementById('state').textContent")
    if state != "serving":
        fail(f"state {state!r}")
    browser.click("#pause")
    frozen, before = number(), browser.eval(ticks)
    browser.until(f"{ticks} >= {before} + 3", "a paused view asks no more")
    if number() != frozen or "paused" not in text("view"):
        fail("the view went on while it was paused")
    browser.click("#back")
    browser.click("#back")
    if number() != frozen - 2:
        fail(f"two steps back from event {frozen} lead to {number()}")
    browser.key("ArrowRight")
    browser.until("true", "never")
    if number() != frozen - 1:
        fail(f"a step on leads to {number()}")
    browser.screenshot(f"{folder}/paused.png", "light", False)
    browser.click("#pause")
    browser.until(f"{ticks} >= {before} + 5", "the page does not tick any more")
    if number() <= frozen or text("view") != "live":
        fail("the view does not go on")
    browser.key(" ")
    if "paused" not in text("view"):
        fail("the space bar does not pause")
    browser.key("l")
    if text("view") != "live":
        fail("L does not go live")

    check_widths(browser, folder)
    return modes


def main():
    url, folder = sys.argv[2:4]
    watch = float(sys.argv[4]) if folder == "--watch" else None
    command = sys.argv[4:] if folder == "--step" else None
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        browser = BROWSERS[sys.argv[1]](scratch)
        try:
            browser.window(1280, WIDTHS[1280])
            browser.open(url)
            if watch:
                browser.rest(watch)
                ticks = int(browser.eval("document.body?.dataset.ticks"))
                if ticks < watch / 2:
                    fail(f"{ticks} ticks in {watch} s")
                return print(f"watched for {watch:.0f} s, {ticks} ticks")
            if command:
                return check_way(browser, command)
            modes = check(browser, url, folder)
            paths = collections.Counter(request.removeprefix(url.rstrip("/")).split("?")[0] for request in browser.requests)
            foreign = [path for path in paths if not path.startswith("/") and not path.startswith(("data:", "about:"))]
            if foreign:
                fail(f"other hosts were asked: {foreign}")
            text = lambda id: browser.eval(f"document.getElementById({id!r}).textContent")
            check_instances(browser, text)
            check_idle(browser, text)
            if browser.errors:
                fail(f"errors on the console: {browser.errors}")
            print(f"live page in {browser.name}: {time.monotonic() - began:.1f} s, colours {modes}, requests {dict(paths)}, 0 to other hosts, 0 errors")
        finally:
            browser.end()


main()
