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
    for legend in ["map-uses", "space-legend"]:
        names = browser.eval(f"[...document.querySelectorAll('#{legend} span')].map(s => s.textContent.split(' ')[0])")
        if not {"free", "bad", "data"} <= set(names) or set(names) - set(uses):
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
    if not re.fullmatch(r"The host (is|keeps) .*this flash.*\.", text("takes")):
        fail(f"the host and the flash are compared as {text('takes')!r}")
    # The histogram has the blocks of the map, and the mean is theirs.
    mean = browser.eval("""(() => { const empty = ['free', 'released', 'bad'].map(use => device.uses.indexOf(use)); draw();
      const of = now.map.valid.filter((_, i) => !empty.includes(now.map.used[i]));
      return (of.reduce((a, b) => a + b, 0) / of.length).toFixed(1) + ' of ' + device.pages_per_block; })()""")
    if f"mean {mean} valid pages" not in text("valid-legend"):
        fail(f"the mean of the histogram is not {mean}: {text('valid-legend')!r}")
    victim = browser.eval("now.events.findLast(e => device.events[e[1]] === 'gc')")
    if f"victim: block {victim[2]} with {victim[3]};" not in text("valid-legend"):
        fail(f"the victim of {victim} is not in {text('valid-legend')!r}")


def check_vessels(browser):
    """The fill of a vessel is its valid pages; above it, up to the write pointer, it is striped, not empty. Outlines may be in the way."""
    wrong = browser.eval("""(() => { held || hold(true); draw(); const { map } = held, c = document.getElementById('map'), high = grid.h - 5, wrong = [];
      const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true }); copy.drawImage(c, 0, 0);
      const free = color('var(--free)'), hex = d => '#' + [...d].slice(0, 3).map(n => n.toString(16).padStart(2, '0')).join('');
      let seen = 0;
      for (let i = 0; i < grid.count; i++) {
        if (device.uses[map.used[i]] !== 'data' && device.uses[map.used[i]] !== 'cold') continue;
        const x = i % grid.columns * grid.w + 4, y = Math.floor(i / grid.columns) * grid.h, hue = color(USES[device.uses[map.used[i]]]);
        const column = Array.from({ length: high }, (_, k) => hex(copy.getImageData(x, y + high - 1 - k, 1, 1).data));
        const full = column.findIndex(paint => paint !== hue), fill = full < 0 ? high : full, empty = column.filter(paint => paint === free).length;
        const [valid, unwritten] = [map.valid[i], device.pages_per_block - map.written[i]].map(n => n / device.pages_per_block * high);
        seen++;
        if (Math.abs(fill - valid) > 2.5 || Math.abs(empty - unwritten) > 2.5) wrong.push([i, fill, valid, empty, unwritten]);
      }
      hold(false);
      return seen < 20 ? ['only ' + seen] : wrong.length > 3 ? wrong.slice(0, 5) : []; })()""")
    if wrong:
        fail(f"vessels (cell, fill, wanted, empty, wanted): {wrong}")


def check_plots(browser, text):
    """The sum of the stack is programs per page written; one crosshair is in all plots; a drag zooms all, Escape resets."""
    sums = browser.eval("""(() => { const near = now.ticks.slice(-10), tick = near[near.length - 1], sum = of => near.reduce((a, t) => a + of(t), 0);
      draw(); return [sum(t => Object.values(t.programs).reduce((a, b) => a + b, 0)) / sum(t => t.written), tick.life]; })()""")
    told = [float(n) for n in re.findall(r"\d+\.\d+", text("programs-legend"))]
    if abs(told[0] - sums[0]) > 0.006 or abs(sum(told[1:-1]) - told[0]) > 0.05 or abs(told[-1] - sums[1]) > 0.006 or not 0.9 < told[1] < 1.1:
        fail(f"programs per page are {sums}, told as {text('programs-legend')!r}")
    # Near the right end, where there is something however short the history is.
    x, y = browser.place("#programs")
    x += int(0.3 * browser.eval("document.getElementById('programs').clientWidth"))
    browser.point(x, y)
    browser.until("at !== null && !document.getElementById('tip').hidden", "no crosshair")
    same = browser.eval("""(() => { drawPlots(); const t = tickAt(), ids = Object.keys(plots).filter(id => !document.getElementById('s-' + id).classList.contains('empty'));
      const legendOf = id => [...document.getElementById(id + '-legend').children].map(e => e.textContent).join();
      return [Math.abs(t.at - at) - Math.min(...now.ticks.map(t => Math.abs(t.at - at))), ids.length, ids.every(id => legendOf(id) === plots[id].rows(t).map(row => row[1]).join()), newestAt() - t.at]; })()""")
    if same[0] or same[1] < 3 or not same[2] or "in all" not in text("tip"):
        fail(f"under the crosshair: {same}, {text('tip')!r}")
    before = browser.eval("span()")
    browser.drag(x - 60, y, 80)
    zoomed = browser.eval("[zoomed, ...span(), document.getElementById('unzoom').hidden]")
    if not zoomed[0] or zoomed[3] or not (before[0] < zoomed[1] < zoomed[2] < before[1] + 3 and zoomed[2] - zoomed[1] < 0.6 * (before[1] - before[0])):
        fail(f"a drag in {before} zooms to {zoomed}")
    browser.key("Escape")
    if browser.eval("zoomed") is not None:
        fail("Escape does not show all of the time")
    browser.point(2, 2)


# Answers in place of those of the daemon: `stubs` has a function of the answer for each path, `down` is a daemon that is gone.
STUBS = """(() => { if (window.asked) return 0; window.asked = window.fetch; window.stubs = {}; window.down = false;
  window.fetch = async (path, how) => { if (window.down) throw new Error('down');
    const stub = window.stubs[path.split('?')[0]], json = data => ({ ok: true, status: 200, json: async () => data });
    if (stub && stub.alone) return stub.alone(path);
    const answer = await window.asked(path, how);
    return stub ? json(stub(await answer.json())) : answer; };
  window.alone = of => ({ alone: path => ({ ok: true, status: 200, json: async () => of(path) }) });
  return 1; })()"""


def check_pages_of_a_block(browser, text):
    """Enter opens the chosen block, the arrows tell its pages; a file's pages and their dead copies are found."""
    browser.eval(STUBS)
    browser.eval("""(() => { stubs['/api/block'] = alone(path => ({ block: Number(path.split('=')[1]), pages: Array.from({ length: 64 }, (_, page) => page < 3
      ? { page, state: ['valid', 'invalid', 'unreadable'][page], kind: 'data', lpn: 77 + page, version: 900 + page } : { page, state: 'free', kind: null, lpn: null, version: null }) }));
      stubs['/api/where'] = alone(path => ({ asked: path, pages: [{ lpn: 5, version: 8, at: [0, 1, 0], dead: [[0, 1, 1, 7], [0, 2, 9, 6]] }, { lpn: 6, version: null, at: null, dead: [] }], truncated: false }));
      document.getElementById('map').focus(); return 1; })()""")
    for key in ["ArrowRight", "ArrowRight", "Enter"]:
        browser.key(key)
    browser.until("document.getElementById('zoom-title').textContent === 'Block 1 (' + device.uses[now.map.used[1]] + '): 61 free, 1 valid, 1 invalid, 1 unreadable of 64 pages'", "Enter opens no block")
    browser.eval("document.getElementById('pages').focus()")
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    if text("page-facts") != "Page 1: invalid, data, logical page 78 (byte 319488), version 901":
        fail(f"a page is told as {text('page-facts')!r}")
    browser.eval("(() => { document.getElementById('extents').value = 'a.txt: 4096+8192 and 65536+512'; document.querySelector('#file button').click(); return 1; })()")
    browser.until("/^My file: /.test(document.getElementById('file-facts').textContent)", "no pages of a file")
    wanted = "My file: 1 page in 1 block (1); 2 dead copies in 2 blocks (1, 2); 1 page never written or trimmed."
    if text("file-facts") != wanted or browser.eval("file.extents") != "4096+8192,65536+512" or not text("page-facts").endswith("an old version of my file"):
        fail(f"my file is told as {text('file-facts')!r}, {text('page-facts')!r}")
    table = "f: 3 pages\\nOFFSET  LOGICAL PAGE  VERSION  NOW AT  DEAD COPIES\\n0  16  4  1:2  -\\n4096  17  5  1:3  7:1 v3\\n8192  40  -  -  -\\n"
    parsed = browser.eval(f"""[extentsOf("{table}"), extentsOf('{{"extents": [{{"file_offset": 0, "offset": 512, "bytes": 9}}]}}')]""")
    if parsed != [["65536+8192", "163840+4096"], ["512+9"]]:
        fail(f"what `ftld where` prints is read as {parsed}")
    browser.key("Escape")
    if not browser.eval("zoom === null && document.getElementById('zoom').hidden"):
        fail("Escape does not close the block")
    browser.eval("(() => { showFile('nothing'); stubs['/api/block'] = { alone: () => ({ ok: false, status: 404, text: async () => '' }) }; openBlock(3); return 1; })()")
    browser.until("/does not tell/.test(document.getElementById('page-facts').textContent)", "an ftld that knows no pages is not told")
    if "OFFSET+LENGTH" not in text("file-facts"):
        fail(f"a text without extents is told as {text('file-facts')!r}")
    browser.eval("(() => { closeBlock(); showFile(''); stubs = {}; document.activeElement.blur(); return 1; })()")


def check_shadows(browser, text):
    """Shadows have a row each with their figures above the device's; without them the table is hidden."""
    browser.eval(STUBS)
    if browser.eval("!document.getElementById('s-shadows').hidden"):
        fail("there is a table of no shadows")
    browser.eval("""(() => { const live = { write_amplification: 2.5, erases: 900, ram_bytes: 1 << 20, read_p99_ns: 70000, write_p99_ns: 2e6 };
      const twin = { scheme: 'dftl', profile: 'mlc-4k', op_percent: 7, parameters: '', behind: 0, dropped: 0, exact: true, failure: null, erases: 600,
        write_amplification: 1.25, ram_bytes: 2 << 20, read_p99_ns: null, write_p99_ns: 3e6, live };
      stubs['/status'] = status => ({ ...status, shadows: [{ ...twin, name: 'dftl' }, { ...twin, name: 'late', exact: false, dropped: 12345 }, { ...twin, name: 'bad', failure: 'no free block' }] });
      return 1; })()""")
    browser.until("document.querySelectorAll('#shadows tbody tr').length === 3", "no table of the shadows")
    rows = browser.eval("[...document.querySelectorAll('#shadows tbody tr')].map(row => [...row.children].map(cell => [cell.className, cell.innerText.replace(/\\s+/g, ' ')]))")
    wanted = [["less", "1.25 device 2.50"], ["less", "600 device 900"], ["more", "2.0 MiB device 1.0 MiB"], ["more", "3 ms device 2 ms"], ["", "- device 70 \u00b5s"]]
    if rows[0][1:] != wanted or "inexact: 12.3 k requests dropped" not in rows[1][0][1] or rows[2][1] != ["bad", "failed: no free block"]:
        fail(f"the shadows are told as {rows}")
    browser.eval("stubs = {}")


def check_ends(browser, text):
    """A page whose daemon is gone keeps its state and says what happened and what to type; after the restart it tells the recovery."""
    name, blocks = browser.eval("[now.status.name, now.map.blocks]")
    word = lambda wanted: f"document.getElementById('state').textContent === '{wanted}'"
    browser.eval("(() => { window.down = true; failures = 2; return 1; })()")
    browser.until(word("killed or gone"), "the daemon is gone, and the page does not say so")
    if f"ftld start {name}" not in text("banner") or browser.eval("now.map.blocks") != blocks or not browser.eval("document.body.classList.contains('gone')"):
        fail(f"without a daemon: {text('banner')!r}")
    browser.eval("(() => { now.status = { ...now.status, state: 'failed', failure: 'power cut injected' }; draw(); return 1; })()")
    if not browser.eval(word("power cut")) or "The power was cut" not in text("banner"):
        fail(f"after a power cut: {text('banner')!r}")
    ticks = browser.eval("now.ticks.length")
    browser.eval("""(() => { down = false; let first = true;
      stubs['/status'] = status => ({ ...status, pid: status.pid + 1, uptime_seconds: first ? (first = false, 1) : 2, recovery: { cause: 'power cut', pages_scanned: 700, pages_kept: 650, pages_dropped: 50, blocks_rewritten: 2,
        steps: [{ step: 'scan_oob', nanoseconds: 5e6, text: 'The spare areas were read.' }] } });
      stubs['/api/blocks'] = blocks => ({ ...blocks, marks: [[3, 'torn'], [4, 'rewritten']] });
      let restart = null;
      stubs['/api/history'] = history => { if (history.samples > 9) restart = history.at_ms[history.samples - 8] - 500;
        return { ...history, restarts: restart ? [[restart, 'power cut']] : [] }; };
      stubs['/api/device'] = device => ({ ...device, page: 'another', version: '99.0' });
      return 1; })()""")
    steps = "document.querySelectorAll('#recovery li').length"
    browser.until(f"{steps} === 1", "the recovery is not told step by step")
    runs = "new Set(now.ticks.map(t => t.run)).size === 2 && now.ticks.filter(t => t.run).length >= 8"
    browser.until(f"{steps} === 2 && now.restarts.length === 1 && {runs}", "the recovery is not told to its end, or the restart is not in the plots")
    if "scan oob, 5 msThe spare areas were read." not in text("recovery") or "700 pages scanned, 650 kept, 50 dropped; 2 blocks rewritten" not in text("recovery"):
        fail(f"the recovery is told as {text('recovery')!r}")
    if browser.eval("now.ticks.length") < ticks or "torn" not in text("map-legend") or "rewritten" not in text("map-legend"):
        fail(f"after the restart: {browser.eval('now.ticks.length')} of {ticks} seconds, {text('map-legend')!r}")
    corner = browser.eval("""(() => { drawMap(); const c = document.getElementById('map'), copy = new OffscreenCanvas(c.width, c.height).getContext('2d'); copy.drawImage(c, 0, 0);
      const at = [3 % grid.columns * grid.w + 4, Math.floor(3 / grid.columns) * grid.h + 4];
      return [...copy.getImageData(...at, 1, 1).data].slice(0, 3).map(n => n.toString(16)).join('') === USES.bad.slice(1); })()""")
    if not corner:
        fail("a torn block is not marked")
    if browser.eval("document.getElementById('old').hidden") or "the daemon is 99.0" not in text("old"):
        fail(f"a daemon of another version is told as {text('old')!r}")
    browser.eval("(() => { stubs = {}; return 1; })()")


def check_keys(browser, text):
    """Every control is reached by Tab and shows its focus; the arrows choose blocks."""
    wanted = browser.eval("[...document.querySelectorAll('button, a, textarea, summary, canvas[tabindex]')].filter(e => e.checkVisibility()).length")
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
          .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > section.getBoundingClientRect().right - 6).map(e => e.id || e.textContent))""")
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
    if any(len(set(of)) < len(of) or "e-" in "".join(of) for of in numbers.values()):
        fail(f"the axes of an idle device are {dict(numbers)}")
    if any("." in words for words in numbers["valid"]):
        fail(f"a number of blocks is no fraction: {numbers['valid']}")
    # What has no content is a line that says so.
    lines = browser.eval("[...document.querySelectorAll('section.empty')].map(s => [s.id, s.getBoundingClientRect().height, s.querySelector('.none').textContent])")
    if not {"s-host", "s-programs", "s-latency", "s-events"} <= {id for id, _, _ in lines} or any(height > 60 or not why for _, height, why in lines):
        fail(f"panels without content are {lines}")


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
    for plot in ["valid", "host", "programs", "latency", "events"]:
        if browser.eval(f"{COLOURS}({plot!r})") < 4:
            fail(f"plot {plot} is empty")
    browser.click("[data-mode=used]")

    check_texts(browser, text)
    check_vessels(browser)
    check_plots(browser, text)
    check_keys(browser, text)
    check_pages_of_a_block(browser, text)
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
    # A step to a GC run shows its copies on their way.
    moved = browser.eval("""(() => { const gc = held.events.findLastIndex(e => device.events[e[1]] === 'gc' && e[3] && e.to !== null); cursor = gc - 1; step(1);
      return [moves.map(move => [move.pages, move.from]), held.events[gc][3], held.events[gc][2]]; })()""")
    if moved[0] != [[moved[1], moved[2]]]:
        fail(f"the copies of a victim are {moved}")
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

    check_shadows(browser, text)
    check_widths(browser, folder)
    check_ends(browser, text)
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
