// ---- asking

async function ask(path) {
  const answer = await fetch(path, { cache: 'no-store' });
  if (!answer.ok) throw new Error(path + ': ' + answer.status);
  return answer.json();
}

async function poll() {
  if (busy || (document.hidden && device)) return;
  busy = true;
  try {
    if (!device) { device = await ask('/api/device'); describe(); }
    const [status, history, events, blocks, instances] = await Promise.all([ask('/status'), ask('/api/history?since=' + now.sample),
      ask('/api/events?since=' + now.next), ask('/api/blocks?since=' + now.generation), polls % 5 < 2 ? ask('/api/instances') : null]);
    failures = 0;
    if (now.status && (status.pid !== now.status.pid || status.uptime_seconds < now.status.uptime_seconds)) restarted(status);
    else {
      take(status, history, events, blocks);
      if (instances) links(instances.instances);
      document.body.dataset.ticks = ++polls;
      refresh();
    }
  } catch (error) {
    failures++;
  } finally {
    busy = false;
    draw();
  }
}

// The daemon was started again: it may be another version, its numbers are new, and its history
// has that of the one before.
function restarted(status) {
  hold(false);
  now = { ...now, status, ticks: [], sample: 0, events: [], next: 0, missed: 0, generation: -1, marks: [] };
  device = before = way = recovered = null;
  row = 0;
  setTimeout(poll, 0);
}

function take(status, history, events, blocks) {
  const { ticks } = now, fresh = events.events, last = now.events.length ? now.events[now.events.length - 1][0] : 0;
  now.status = status;
  now.restarts = (history.restarts || []).map(([ms, how]) => [ms / 1000, how]);
  now = { ...now, ticks: extend(ticks, history), sample: history.next, next: events.next };
  // Events are published only while a page asks: a gap counts as dropped events only after some
  // answers in a row.
  row = performance.now() - asked < 3 * EVERY_MS ? row + 1 : 0;
  asked = performance.now();
  if (fresh.length) {
    if (row > 2) now.missed += fresh[fresh.length - 1][0] - last - fresh.length;
    // The block to which the copies of an event went, as far as the newest status has it.
    for (const event of fresh) Object.assign(event, { to: target(status, event), came: asked });
    now.events = [...now.events, ...fresh].slice(-EVENTS_KEPT);
  }
  if (blocks.used !== undefined && blocks.generation > 0) now.map = unpack(blocks);
  if (blocks.marks) now.marks = blocks.marks;
  now.generation = blocks.generation;
  follow();
  if (fresh.length && !held && row > 1 && isSlow()) animate(fresh);
}

const isSlow = () => { const near = now.ticks.slice(-5); return near.reduce((sum, t) => sum + t.gc, 0) <= SLOW * near.length; };

// The open block of the stream that takes copies, in the shard of the event's block.
function target(status, [, , block]) {
  if (block === null) return null;
  const each = device.blocks / device.shards, near = s => s.block !== null && s.block !== block && Math.floor(s.block / each) === Math.floor(block / each);
  const { streams } = status.snapshot, found = streams.findLast(s => s.kind === 'copies' && near(s)) || streams.findLast(s => ['host', 'data'].includes(s.kind) && near(s));
  return found ? found.block : null;
}

// Compares the states of a paused device before and after a step. It waits for one more answer, so
// that the block map has the step.
function follow() {
  const { status, map } = now, writes = status.host.write.completed;
  if (!status.paused || !map) { before = way = null; return; }
  if (before && status.snapshot.last_write && before.status.host.write.completed !== writes) {
    if (before.seen !== writes || status.paused.stepping) { before.seen = writes; return; }
    way = { stages: stages(before, now), began: performance.now(), told: -1 };
  }
  if (!status.paused.stepping) before = { status, map };
}

// Pages of a stream in an earlier state.
const pagesBefore = (state, { kind, number }) => state.status.snapshot.streams.find(s => s.kind === kind && s.number === number)?.pages || 0;
const streamText = ({ kind, number, pages, block }) => kind + (number ? ' ' + number : '') + ': ' + pages
  + (block === null ? '' : ', the last in block ' + block);

// Causes of programs for the map.
const MAP_CAUSES = ['translation', 'gc_translation', 'convert', 'merge', 'checkpoint', 'trim', 'journal'];

// The way of the writes between two states: title, text, and the cells to outline on the map.
function stages(a, b) {
  const { map, status } = b, page = device.page_bytes, { offset, bytes: length } = status.snapshot.last_write;
  const writes = status.host.write.completed - a.status.host.write.completed;
  const [from, to] = [Math.floor(offset / page), Math.floor((offset + length - 1) / page)];
  const cells = of => [...map.valid.keys()].filter(i => of(map.valid[i] - a.map.valid[i]));
  const [more, fewer] = [cells(n => n > 0), cells(n => n < 0)];
  const name = i => (map.perCell > 1 ? 'cell ' : 'block ') + i + ' (' + device.uses[map.used[i]] + ')';
  const names = list => list.slice(0, 6).map(name).join(', ') + (list.length > 6 ? ', ...' : '');
  const programs = device.causes.map(c => [c, status.nand[c].programs - a.status.nand[c].programs]).filter(([, n]) => n > 0);
  const streams = status.snapshot.streams.map(s => ({ ...s, pages: s.pages - pagesBefore(a, s) })).filter(s => s.pages > 0);
  const told = list => list.map(([c, n]) => c + ' ' + n).join(', ') || 'none';
  const ofMap = programs.filter(([c]) => MAP_CAUSES.includes(c));
  return [
    ['Host page', (writes > 1 ? writes + ' writes, the last one: ' : '') + (to > from ? 'pages ' + from + ' to ' + to : 'page ' + from)
      + ' (' + bytes(length) + ' at byte ' + offset + ')', []],
    ['Stream', (streams.length ? 'Pages appended to ' + streams.map(streamText).join('; ') : 'No page programmed') + '. By cause: ' + told(programs),
      streams.filter(s => s.block !== null).map(s => cellOf(map, s.block))],
    ['Block', more.length ? 'More valid pages in ' + names(more) : 'No block has more valid pages', more],
    ['Older version', fewer.length ? 'Fewer valid pages in ' + names(fewer) : 'No block has fewer valid pages', fewer],
    ['Map', ofMap.length ? 'Pages programmed for it: ' + told(ofMap)
      : 'No page is programmed for it. Map: ' + (device.scheme ? device.scheme.mapping : '-'), []],
  ];
}

// Appends the samples of an answer of /api/history, whose columns of zeros are empty.
function extend(ticks, history) {
  ticks = ticks.slice(-KEPT);
  for (let i = 0; i < history.samples; i++) {
    const of = column => column[i] || 0, per = (n, ms) => n / Math.max(ms / 1000, .05);
    const [host, flash] = [of(history.host_ms), of(history.flash_ms)], { read, write } = history.host;
    const programs = mapValues(history.programs, of), hit = ({ total, hits }) => of(total) ? of(hits) / of(total) : null;
    const at = of(history.at_ms) / 1000, run = Math.max(0, ...now.restarts.map(([began]) => began).filter(began => began < at));
    const tick = { at, run, flash, emulated: of(history.emulated_ns), programs, copied: per(programs.gc, flash),
      written: of(history.written_bytes) / device.page_bytes,
      life: of(history.written_total_bytes) ? of(history.programs_total) * device.page_bytes / of(history.written_total_bytes) : null,
      reads: per(of(read.completed), host), writes: per(of(write.completed), host), gc: per(of(history.gc_runs), flash),
      readBytes: per(of(read.bytes), host), writeBytes: per(of(write.bytes), host),
      hitRead: hit(history.lookups.read), hitWrite: hit(history.lookups.write),
      counts: mapValues(history.host, o => ({ wall: o.wall.map(of), emulated: o.emulated.map(of) })) };
    ticks.push(tick);
    // Over the last 10 s: programs per page that the host wrote, by cause; emulated time per wall
    // time; latencies.
    const recent = ticks.slice(-RECENT).filter(t => t.run === tick.run), sum = of => recent.reduce((total, t) => total + of(t), 0);
    const written = sum(t => t.written), flashMs = sum(t => t.flash);
    tick.costs = written >= 1 ? mapValues(programs, (_, c) => sum(t => t.programs[c]) / written) : null;
    tick.waf = tick.costs && Object.values(tick.costs).reduce((a, b) => a + b, 0);
    tick.ratio = flashMs && sum(t => t.reads + t.writes) ? sum(t => t.emulated) / flashMs / 1e6 : null;
    tick.latency = mapValues(tick.counts, (_, op) => ({ wall: percentiles(recent, op, 'wall'), emulated: percentiles(recent, op, 'emulated') }));
  }
  return ticks.slice(-KEPT);
}

function unpack(blocks) {
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const words = text => { const b = bytes(text); return Array.from({ length: b.length / 2 }, (_, i) => b[2 * i] | b[2 * i + 1] << 8); };
  return { blocks: blocks.blocks, perCell: blocks.per_cell, counts: blocks.counts, used: bytes(blocks.used), valid: words(blocks.valid),
    written: words(blocks.written), erases: words(blocks.erases).map(n => n * blocks.erases_unit), age: words(blocks.age).map(n => n * blocks.age_unit) };
}

// Percentiles 50, 99 and 99.9 of these ticks, in nanoseconds; within a bucket as if spread evenly
// over its logarithm.
function percentiles(ticks, op, clock) {
  const bounds = now.status.latency_bounds_ns, counts = bounds.concat(0).map((_, i) => ticks.reduce((sum, t) => sum + t.counts[op][clock][i], 0));
  const total = counts.reduce((x, y) => x + y, 0);
  return [.5, .99, .999].map(p => {
    let rest = total * p;
    if (!total) return null;
    const i = Math.max(0, counts.findIndex(n => (rest -= n) <= 0));
    const high = bounds[i] || bounds[bounds.length - 1] * 4, low = i ? bounds[i - 1] : high / 4;
    return low * (high / low) ** (counts[i] ? 1 + rest / counts[i] : 1);
  });
}

function links(instances) {
  $('instances').hidden = instances.length < 2;
  const key = JSON.stringify(instances);
  if (key === $('instances').dataset.key) return;
  $('instances').dataset.key = key;
  $('instances').replaceChildren(...instances.map(({ name, scheme, state, address }) => {
    const here = name === device.name, made = node(address && !here ? 'a' : 'span');
    if (made.tagName === 'A') made.href = location.protocol + '//' + address.replace(/^(0\.0\.0\.0|\[::\]):/, location.hostname + ':') + '/';
    if (here) made.setAttribute('aria-current', 'page');
    made.append(node('b', name), ' ' + [scheme, state, address ? '' : 'no page'].filter(Boolean).join(', '));
    return made;
  }));
}

function describe() {
  const { scheme } = device;
  document.title = device.name + ' - ftld';
  $('name').textContent = device.name;
  $('what').textContent = [scheme && scheme.name, device.profile, bytes(device.size_bytes), device.target].filter(Boolean).join(' \u00b7 ');
  $('what').title = $('what').textContent;
  if (device.load) load().catch(() => {});
  if (scheme) {
    $('scheme-name').textContent = scheme.title;
    $('scheme-about').textContent = scheme.about || '';
    $('scheme-facts').textContent = 'Maps: ' + scheme.mapping + '. RAM: ' + scheme.ram + '. ' + scheme.paper + '.';
  }
  $('foot').textContent = 'ftld ' + device.version + ', ' + (device.shards > 1 ? device.shards + ' chips, ' : '') + device.blocks + ' blocks of ' + device.pages_per_block + ' pages of ' + bytes(device.page_bytes);
  const [version] = document.documentElement.dataset.page.split(' '), isOld = device.page !== document.documentElement.dataset.page;
  $('old').hidden = !isOld;
  $('old-text').textContent = 'This page is of ftld ' + version + (version === device.version ? ' of another build' : '') + ', the daemon is ' + device.version + ': figures may be missing or wrong.';
}

// The load of `ftld demo`: a button for each pattern, and two for the rate.
async function load(change) {
  const answer = await fetch('/api/load' + (change ? '?' + change : ''), change ? { method: 'POST', headers: { 'x-ftld': '1' } } : {});
  if (!answer.ok) return;
  const { pattern, rate, patterns } = await answer.json(), box = $('load');
  const button = (text, change, pressed) => {
    const made = document.createElement('button');
    made.type = 'button';
    made.textContent = text;
    if (pressed !== undefined) made.setAttribute('aria-pressed', pressed);
    made.addEventListener('click', () => load(change));
    return made;
  };
  const has = document.activeElement && [...box.children].indexOf(document.activeElement);
  box.replaceChildren('load', ...patterns.map(name => button(name, 'pattern=' + name, name === pattern)),
    button('slower', 'rate=' + Math.max(1, Math.round(rate / 2))), rate + '/s', button('faster', 'rate=' + Math.min(100000, rate * 2)));
  box.hidden = false;
  if (has >= 0 && box.children[has]) box.children[has].focus();
}

