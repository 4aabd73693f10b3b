'use strict';
// Asks once a second, remembers five minutes, draws. What the device does is in `now`, what is shown in `shown`: the same object
// while the view is live, an older one while it is paused.

const EVERY_MS = 1000, KEPT = 300, EVENTS_KEPT = 5000, RECENT = 10, DOTS = 150;
// Okabe and Ito's colours, which people with any colour vision tell apart, and greys; names stand beside them everywhere.
const C = { blue: '#0072b2', sky: '#56b4e9', green: '#009e73', yellow: '#e5d53a', orange: '#e69f00', red: '#d55e00',
  pink: '#cc79a7', brown: '#7d5a3c', grey: '#8b929b', pale: '#b4bac1', violet: '#7a5cc0', salmon: '#f0a58f' };
const USES = { free: 'var(--free)', open: C.yellow, data: C.blue, update: C.orange, cold: C.sky, log: C.red, journal: C.pink,
  map: C.green, checkpoint: C.brown, other: C.pale, released: C.grey, bad: 'var(--ink)' };
const CAUSES = { host: C.blue, gc: C.red, gc_translation: C.salmon, merge: C.orange, convert: C.pink, translation: C.green,
  trim: C.pale, wear: C.yellow, refresh: C.sky, checkpoint: C.brown, pad: C.grey, journal: C.violet, recovery: 'var(--ink)' };
const KINDS = { gc: [C.red, 'GC'], switch_merge: [C.yellow, 'switch merge'], partial_merge: [C.orange, 'partial merge'],
  full_merge: [C.sky, 'full merge'], convert: [C.pink, 'convert'], buffer_flush: [C.violet, 'buffer flush'],
  wear_move: [C.brown, 'wear move'], refresh: [C.green, 'refresh'], checkpoint: [C.grey, 'checkpoint'],
  bad_block: ['var(--ink)', 'bad block'] };
const LINE = 'var(--accent)';
const RAMP = ['#00224e', '#123570', '#3b496c', '#575d6d', '#707173', '#8a8678', '#a59c74', '#c3b369', '#e1cc55', '#fee838'];

const $ = id => document.getElementById(id);
const color = text => text.startsWith('var(') ? getComputedStyle(document.documentElement).getPropertyValue(text.slice(4, -1)).trim() : text;

let device = null;
let now = { status: null, ticks: [], events: [], next: 0, missed: 0, map: null, generation: -1 };
let held = null, cursor = -1, mode = 'used', op = 'write', pointed = -1, failures = 0, busy = false, ticks = 0;
const shown = () => held || now;

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
    const [status, events, blocks] = await Promise.all([ask('/status'), ask('/api/events?since=' + now.next),
      ask('/api/blocks?since=' + now.generation)]);
    if (now.status && status.pid !== now.status.pid) { location.reload(); return; }
    take(status, events, blocks);
    failures = 0;
    document.body.dataset.ticks = ++ticks;
  } catch (error) {
    failures++;
  } finally {
    busy = false;
    draw();
  }
}

function take(status, events, blocks) {
  const before = now.ticks[now.ticks.length - 1];
  const tick = { at: performance.now() / 1000, status };
  if (before) tick.rates = rates(before, tick);
  const fresh = events.events;
  now = { ...now, status, ticks: [...now.ticks, tick].slice(-KEPT), next: events.next };
  if (fresh.length) {
    const last = now.events.length ? now.events[now.events.length - 1][0] : fresh[0][0] - 1;
    now.missed += Math.max(0, fresh[0][0] - last - 1);
    now.events = [...now.events, ...fresh].slice(-EVENTS_KEPT);
  }
  if (blocks.used !== undefined && blocks.generation > 0) now.map = unpack(blocks);
  now.generation = blocks.generation;
}

function unpack(blocks) {
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const words = text => { const b = bytes(text); return Array.from({ length: b.length / 2 }, (_, i) => b[2 * i] | b[2 * i + 1] << 8); };
  return { blocks: blocks.blocks, perCell: blocks.per_cell, used: bytes(blocks.used), valid: words(blocks.valid),
    erases: words(blocks.erases).map(n => n * blocks.erases_unit), age: words(blocks.age).map(n => n * blocks.age_unit) };
}

function rates(a, b) {
  const dt = Math.max(b.at - a.at, .05), [s, t] = [a.status, b.status], per = (x, y) => Math.max(0, y - x) / dt;
  const programs = Object.fromEntries(Object.keys(t.nand).map(c => [c, per(s.nand[c].programs, t.nand[c].programs)]));
  const written = per(s.snapshot.host_written_bytes, t.snapshot.host_written_bytes);
  const total = Object.values(programs).reduce((x, y) => x + y, 0);
  const hit = op => {
    const [hits, lookups] = ['hits_', 'lookups_'].map(k => per(s.scheme_stats[k + op], t.scheme_stats[k + op]));
    return lookups > 0 ? hits / lookups : null;
  };
  return { programs, written, read: per(s.host.read.bytes, t.host.read.bytes), wrote: per(s.host.write.bytes, t.host.write.bytes),
    gc: per(s.scheme_stats.gc_runs, t.scheme_stats.gc_runs), waf: written > 0 ? total * device.page_bytes / written : null,
    hitRead: hit('read'), hitWrite: hit('write') };
}

// Percentiles of what ended between two ticks, in nanoseconds; within a bucket as if spread evenly over its logarithm.
function percentiles(a, b, op, clock, wanted) {
  const bounds = b.status.latency_bounds_ns, [from, to] = [a, b].map(t => t.status.host[op][clock].counts);
  const counts = to.map((n, i) => Math.max(0, n - from[i])), total = counts.reduce((x, y) => x + y, 0);
  return wanted.map(p => {
    let rest = total * p;
    if (!total) return null;
    const i = Math.max(0, counts.findIndex(n => (rest -= n) <= 0));
    const high = bounds[i] || bounds[bounds.length - 1] * 4, low = i ? bounds[i - 1] : high / 4;
    return low * (high / low) ** (counts[i] ? 1 + rest / counts[i] : 1);
  });
}

// ---- words and numbers

const short = (n, digits = 3) => n === null || n === undefined ? '-' : n === 0 ? '0' :
  Math.abs(n) >= 1e9 ? (n / 1e9).toPrecision(digits) + ' G' : Math.abs(n) >= 1e6 ? (n / 1e6).toPrecision(digits) + ' M' :
  Math.abs(n) >= 1e4 ? (n / 1e3).toPrecision(digits) + ' k' : n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toPrecision(digits);
const bytes = n => { let i = 0; while (n >= 1024 && i < 5) { n /= 1024; i++; } return (i && n < 100 ? n.toFixed(1) : Math.round(n)) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][i]; };
const digits3 = n => String(Number(n.toPrecision(3)));
const time = ns => ns === null || ns === undefined ? '-' : ns < 1e3 ? Math.round(ns) + ' ns' : ns < 1e6 ? digits3(ns / 1e3) + ' us' :
  ns < 1e9 ? digits3(ns / 1e6) + ' ms' : digits3(ns / 1e9) + ' s';
const percent = x => x === null || x === undefined ? '-' : (100 * x).toFixed(1) + ' %';

function node(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function list(id, rows) {
  $(id).replaceChildren(...rows.flatMap(([label, value, strong]) => {
    const dd = node('dd');
    dd.append(strong ? node('b', value) : value);
    return [node('dt', label), dd];
  }));
}

function legend(id, entries) {
  $(id).replaceChildren(...entries.map(([paint, text]) => {
    const span = node('span');
    if (paint) { const i = node('i'); i.style.background = color(paint); span.append(i); }
    span.append(text);
    return span;
  }));
}

function describe() {
  const { scheme } = device;
  document.title = device.name + ' - ftld';
  $('name').textContent = device.name;
  $('what').textContent = [scheme && scheme.name, device.profile, bytes(device.size_bytes), device.target].filter(Boolean).join(' \u00b7 ');
  $('what').title = $('what').textContent;
  if (scheme) {
    $('scheme-name').textContent = scheme.title;
    $('scheme-about').textContent = scheme.about || '';
    $('scheme-facts').textContent = 'Maps: ' + scheme.mapping + '. RAM: ' + scheme.ram + '. ' + scheme.paper + '.';
  }
  $('foot').textContent = 'ftld ' + device.version + ', ' + device.blocks + ' blocks of ' + device.pages_per_block + ' pages of ' + bytes(device.page_bytes);
}

// ---- drawing

function surface(id) {
  const canvas = $(id), scale = window.devicePixelRatio || 1, { width, height } = canvas.getBoundingClientRect();
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const g = canvas.getContext('2d');
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = '12px system-ui, "DejaVu Sans", sans-serif';
  return { g, width, height };
}

function nice(max) {
  const power = 10 ** Math.floor(Math.log10(max || 1)), lead = (max || 1) / power;
  return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

// Seconds that the plots show: as far back as there is something to show.
function span() {
  const { ticks } = shown(), long = ticks.length ? ticks[ticks.length - 1].at - ticks[0].at : 0;
  return [30, 60, 120].find(s => long <= s) || KEPT * EVERY_MS / 1000;
}

// Axes of a plot: returns where a time and a value are.
function axes({ g, width, height }, low, high, log, label, span, ends = ['-' + (span > 60 ? span / 60 + ' min' : span + ' s'), 'now']) {
  const left = 52, right = width - 8, top = 8, bottom = height - 18;
  const f = log ? v => Math.log(Math.max(v, low)) : v => v;
  const y = v => bottom - (f(Math.min(v, high)) - f(low)) / (f(high) - f(low) || 1) * (bottom - top);
  const x = ago => right - ago / span * (right - left);
  g.strokeStyle = color('var(--line)');
  g.fillStyle = color('var(--soft)');
  g.lineWidth = 1;
  g.textAlign = 'right';
  g.textBaseline = 'middle';
  const marks = log ? Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, i) => low * 10 ** i) : [0, .5, 1].map(k => low + k * (high - low));
  for (const v of marks) {
    g.beginPath(); g.moveTo(left, y(v)); g.lineTo(right, y(v)); g.stroke();
    g.fillText(label(v), left - 6, y(v));
  }
  g.textBaseline = 'alphabetic';
  g.fillText(ends[1], right, height - 4);
  g.textAlign = 'left';
  g.fillText(ends[0], left, height - 4);
  return { x, y, left, right, top, bottom };
}

function line(g, points, paint, width, dash) {
  g.strokeStyle = color(paint); g.lineWidth = width; g.setLineDash(dash || []);
  g.beginPath();
  let pen = false;
  for (const [x, y] of points) {
    if (y === null) { pen = false; continue; }
    pen ? g.lineTo(x, y) : g.moveTo(x, y);
    if (!pen) g.lineTo(x + .5, y);
    pen = true;
  }
  g.stroke();
  g.setLineDash([]);
}

function series(id, lines, { low = 0, high, log = false, label = short }) {
  const ticks = shown().ticks, area = surface(id), last = ticks.length ? ticks[ticks.length - 1].at : 0;
  const values = lines.map(([, , of]) => ticks.map((t, i) => i ? of(t, i) : null));
  const top = high || nice(Math.max(...values.flat().filter(v => v !== null), low + 1e-9));
  const at = axes(area, low, top, log, label, span());
  lines.forEach(([paint, width, , dash], k) =>
    line(area.g, values[k].map((v, i) => [at.x(last - ticks[i].at), v === null ? null : at.y(v)]), paint, width, dash));
  return values.map(v => v.length ? v[v.length - 1] : null);
}

function drawWaf() {
  const [current, life] = series('waf', [[LINE, 1.8, t => t.rates.waf], [C.orange, 2.2, t => t.status.write_amplification, [6, 4]]], { label: v => v.toFixed(1) });
  legend('waf-legend', [[LINE, 'now ' + (current ? current.toFixed(2) : '-')], [C.orange, 'since start (dashed) ' + (life ? life.toFixed(2) : '-')]]);
}

function drawCauses() {
  const ticks = shown().ticks, area = surface('causes'), { g } = area;
  const seen = device.causes.filter(c => ticks.some(t => t.rates && t.rates.programs[c] > 0));
  const totals = ticks.map(t => t.rates ? seen.reduce((sum, c) => sum + t.rates.programs[c], 0) : 0);
  const last = ticks.length ? ticks[ticks.length - 1].at : 0, at = axes(area, 0, nice(Math.max(...totals, 1)), false, short, span());
  const base = ticks.map(() => 0);
  for (const c of seen) {
    const upper = ticks.map((t, i) => base[i] + (t.rates ? t.rates.programs[c] : 0));
    g.fillStyle = color(CAUSES[c] || C.pale);
    g.beginPath();
    ticks.forEach((t, i) => g.lineTo(at.x(last - t.at), at.y(upper[i])));
    for (let i = ticks.length - 1; i >= 0; i--) g.lineTo(at.x(last - ticks[i].at), at.y(base[i]));
    g.fill();
    upper.forEach((v, i) => { base[i] = v; });
  }
  const rates = ticks.length && ticks[ticks.length - 1].rates;
  legend('causes-legend', seen.length ? seen.map(c => [CAUSES[c] || C.pale, c + ' ' + short(rates ? rates.programs[c] : 0)]) : [[null, 'no programs yet']]);
}

function drawLatency() {
  const ticks = shown().ticks;
  const of = (clock, p) => (t, i) => percentiles(ticks[Math.max(0, i - RECENT)], t, op, clock, [p])[0];
  const lines = [[LINE, 1.5, of('wall', .5), [2, 3]], [LINE, 2.2, of('wall', .99)], [C.red, 1.5, of('emulated', .5), [2, 3]], [C.red, 2.2, of('emulated', .99)]];
  series('latency', lines, { low: 1e4, high: 1e10, log: true, label: time });
  const [first, last] = [ticks[Math.max(0, ticks.length - 1 - RECENT)], ticks[ticks.length - 1]];
  const text = clock => last ? percentiles(first, last, op, clock, [.5, .99, .999]).map(time).join(' / ') : '-';
  legend('latency-legend', [[LINE, 'wall p50 (dotted) / p99 / p99.9: ' + text('wall')], [C.red, 'emulated: ' + text('emulated')]]);
}

function drawCache() {
  const lines = [[C.green, 2, t => t.rates.hitRead], [C.blue, 2, t => t.rates.hitWrite]];
  const [read, write] = series('cache', lines, { high: 1, label: v => Math.round(100 * v) + ' %' });
  const stats = shown().status.scheme_stats, text = [];
  for (const [color, op, hit] of [[C.green, 'read', read], [C.blue, 'write', write]])
    if (stats['lookups_' + op])
      text.push([color, op + 's now ' + percent(hit) + ', since start ' + percent(stats['hits_' + op] / stats['lookups_' + op])]);
  legend('cache-legend', text.length ? text : [[null, 'no lookups: the whole map is in RAM, or nothing was read or written']]);
}

function ramp(k) {
  const at = Math.max(0, Math.min(1, k)) * (RAMP.length - 1), i = Math.min(Math.floor(at), RAMP.length - 2), f = at - i;
  const [a, b] = [RAMP[i], RAMP[i + 1]].map(text => parseInt(text.slice(1), 16));
  const mix = shift => Math.round(((a >> shift) & 255) * (1 - f) + ((b >> shift) & 255) * f);
  return 'rgb(' + mix(16) + ',' + mix(8) + ',' + mix(0) + ')';
}

let grid = null;

function drawMap() {
  const { map } = shown(), area = surface('map'), { g, width, height } = area;
  grid = null;
  if (!map) { legend('map-legend', [[null, 'waiting for the first map of the blocks']]); return; }
  const count = map.used.length;
  let size = Math.floor(Math.sqrt(width * height / count));
  while (size > 1 && Math.floor(width / size) * Math.floor(height / size) < count) size--;
  size = Math.max(2, Math.min(size, 34));
  const columns = Math.floor(width / size), gap = size > 4 ? 1 : 0;
  grid = { size, columns, count };
  const free = color(USES.free), paints = device.uses.map(use => color(USES[use] || C.pale));
  const uses = device.uses, blank = [uses.indexOf('free'), uses.indexOf('bad')];
  const top = mode === 'valid' ? device.pages_per_block : Math.max(1, ...map[mode]), log = mode === 'age';
  for (let i = 0; i < count; i++) {
    const used = map.used[i], plain = mode === 'used' || (mode !== 'erases' && blank.includes(used)) || used === blank[1];
    const k = log ? Math.log1p(map.age[i]) / Math.log1p(top) : map[mode][i] / top;
    g.fillStyle = plain ? paints[used] : map.used[i] === blank[0] && mode !== 'erases' ? free : ramp(k);
    g.fillRect(i % columns * size, Math.floor(i / columns) * size, size - gap, size - gap);
  }
  const mark = i => {
    if (i < 0 || i >= count) return;
    g.strokeStyle = color('var(--ink)'); g.lineWidth = 2;
    g.strokeRect(i % columns * size - 1, Math.floor(i / columns) * size - 1, size + 1, size + 1);
  };
  mark(pointed);
  const event = held && shown().events[cursor];
  if (event && event[2] !== null) mark(Math.floor(event[2] / map.perCell));
  mapLegend(map, top);
  if (pointed >= 0 && pointed < count) $('map-facts').textContent = facts(map, pointed);
}

function mapLegend(map, top) {
  const each = map.perCell > 1 ? 'a cell is ' + map.perCell + ' blocks' : 'a cell is a block';
  if (mode === 'used') {
    const counts = device.uses.map(() => 0);
    map.used.forEach(used => counts[used]++);
    legend('map-legend', [...device.uses.map((use, i) => [USES[use] || C.pale, use + ' ' + counts[i], counts[i]]).filter(e => e[2]), [null, each]]);
    return;
  }
  const words = { valid: ['0', top + ' valid pages of a block'], erases: ['0', top + ' erases (rated ' + device.endurance + ')'],
    age: ['just opened', top + ' blocks opened since (log)'] }[mode];
  const i = node('i', undefined, 'ramp');
  i.style.background = 'linear-gradient(to right, ' + RAMP.join(',') + ')';
  const bar = node('span');
  bar.append(words[0] + ' ', i, words[1]);
  $('map-legend').replaceChildren(bar, node('span', each));
}

function facts(map, i) {
  const first = i * map.perCell, last = Math.min(first + map.perCell, map.blocks) - 1, mean = first < last ? 'on average ' : '';
  const use = device.uses[map.used[i]];
  const name = first < last ? 'Blocks ' + first + ' to ' + last + ': mostly ' + use : 'Block ' + first + ': ' + use;
  const age = map.age[i] ? ', ' + mean + map.age[i] + ' blocks opened since' : '';
  return name + ', ' + mean + map.valid[i] + ' of ' + device.pages_per_block + ' pages valid, ' + mean + map.erases[i] + ' erases of ' + device.endurance + ' rated' + age;
}

let dots = [];

function drawEvents() {
  const { events } = shown(), area = surface('events'), { g } = area;
  const end = held && events[cursor] ? Math.min(events[cursor][4] + 2e8, events[events.length - 1][4]) : events.length ? events[events.length - 1][4] : 0;
  const within = seconds => events.map((e, i) => [e, i]).filter(([e]) => e[4] <= end && e[4] > end - seconds * 1e9);
  const seconds = [60, 20, 5, 2].find(s => within(s).length <= DOTS) || 1, near = within(seconds);
  const at = axes(area, 1e5, 1e9, true, time, seconds, ['-' + seconds + ' s of emulated time', held && cursor >= 0 ? '' : 'newest']);
  dots = [];
  const counts = {};
  for (const [e, i] of near) {
    const kind = device.events[e[1]], x = at.x((end - e[4]) / 1e9), y = Math.min(at.y(Math.max(e[5], 1e5)), at.bottom - 3);
    counts[kind] = (counts[kind] || 0) + 1;
    g.fillStyle = color((KINDS[kind] || [C.pale])[0]);
    g.globalAlpha = .75;
    g.fillRect(x - 1.5, y, 3, Math.max(2, Math.min(at.bottom - y, 1e3)));
    g.globalAlpha = 1;
    if (held && i === cursor) {
      g.strokeStyle = color('var(--ink)'); g.lineWidth = 2;
      g.strokeRect(x - 4, y - 3, 8, at.bottom - y + 3);
    }
    dots.push([x, i]);
  }
  const entries = Object.entries(counts).map(([kind, n]) => [(KINDS[kind] || [C.pale])[0], (KINDS[kind] || [0, kind])[1] + ' ' + n]);
  if (shown().missed) entries.push([null, short(shown().missed) + ' events dropped']);
  legend('events-legend', entries.length ? entries : [[null, 'no GC run, merge or conversion yet']]);
  const which = held ? events[cursor] : events[events.length - 1];
  if (which) $('event-facts').replaceChildren(...tell(which));
}

function tell([number, kind, block, pages, at, took]) {
  const name = device.events[kind], where = block === null ? '' : ', block ' + block;
  const copied = { convert: ' mapping pages written', checkpoint: ' pages written', bad_block: '' }[name];
  const moved = name === 'bad_block' ? '' : ', ' + pages + (copied === undefined ? ' pages copied' : copied);
  return [node('b', 'Event ' + number + ': ' + (KINDS[name] || [0, name])[1]), where + moved + ', took ' + time(took) + ' at ' + (at / 1e9).toFixed(3) + ' s of emulated time'];
}

function bars(id, rows, scale) {
  $(id).replaceChildren(...rows.filter(Boolean).map(([label, value, parts]) => {
    const bar = node('div', undefined, 'bar'), head = node('p'), track = node('div', undefined, 'track');
    head.append(node('span', label), node('span', value));
    for (const [size, paint, title] of parts) {
      const part = node('span');
      part.style.width = 100 * size / scale(parts) + '%';
      part.style.background = color(paint);
      part.title = title;
      track.append(part);
    }
    bar.append(...(parts.length ? [head, track] : [head]));
    return bar;
  }));
}

function drawTables() {
  const { status, ticks } = shown(), rates = ticks.length ? ticks[ticks.length - 1].rates : null, { scheme_stats: stats, wear } = status;
  list('now', [
    ['write amplification', status.write_amplification ? status.write_amplification.toFixed(2) : '-', true],
    ['free blocks', short(status.blocks.free) + ' of ' + short(device.blocks), true],
    ['host writes', bytes(rates ? rates.wrote : 0) + '/s'], ['host reads', bytes(rates ? rates.read : 0) + '/s'],
    ['GC runs', short(rates ? rates.gc : 0) + '/s'],
    ['requests in flight', Object.values(status.host).reduce((sum, o) => sum + o.in_flight, 0)],
    ['latency', device.latency === 'emulate' ? 'as on the flash' : 'not emulated'],
  ]);
  const order = ['data', 'log', 'map', 'checkpoint', 'open', 'released', 'bad', 'free'];
  const parts = order.map(use => [status.blocks[use] || 0, USES[use], use + ': ' + status.blocks[use]]);
  const page = device.page_bytes, total = device.blocks * device.pages_per_block;
  bars('space', [
    ['blocks', short(device.blocks - status.blocks.free) + ' in use, ' + short(status.blocks.free) + ' free', parts],
    ['host data', bytes(stats.mapped_pages * page) + ' of ' + bytes(device.logical_bytes), [[stats.mapped_pages, C.blue, 'written'], [Math.max(0, device.logical_bytes / page - stats.mapped_pages), USES.free, 'never written or trimmed']]],
    ['flash pages', percent(stats.valid_pages / total) + ' valid of ' + bytes(device.raw_bytes), [[stats.valid_pages, C.green, 'valid'], [total - stats.valid_pages, USES.free, 'invalid or free']]],
  ], parts => parts.reduce((sum, [size]) => sum + size, 0) || 1);
  const key = node('div', undefined, 'legend');
  key.id = 'space-legend';
  $('space').append(key);
  legend('space-legend', order.filter(use => status.blocks[use]).map(use => [USES[use], use + ' ' + short(status.blocks[use])]));
  const largest = Math.max(1, ...status.ram.map(part => part.allocated_bytes));
  const sum = status.ram.reduce((total, part) => total + part.allocated_bytes, 0);
  bars('ram', [['total', bytes(sum) + ' (paper ' + bytes(status.ram.reduce((total, part) => total + part.paper_bytes, 0)) + ')', []],
    ...status.ram.map(part => part.allocated_bytes > 0 && [part.part, bytes(part.allocated_bytes), [[part.allocated_bytes, C.blue, part.entries + ' entries']]])], () => largest);
  const faults = Object.entries(status.faults_injected).filter(([, n]) => n).map(([kind, n]) => kind.replace('_', ' ') + ' ' + n).join(', ');
  list('wear', [['erases, min to max', wear.min + ' to ' + wear.max], ['mean, deviation', wear.mean.toFixed(1) + ', ' + wear.stddev.toFixed(1)],
    ['rated', wear.rated], ['endurance used', percent(wear.mean / wear.rated)], ['bad blocks', wear.bad_factory + ' from the factory, ' + wear.bad_grown + ' grown'],
    ['wear moves, refreshes', stats.wear_moves + ', ' + stats.refreshes], ['checkpoints', stats.checkpoints],
    ['last mount', stats.mount.clean ? 'clean shutdown' : 'scan of ' + short(stats.mount.pages_scanned) + ' pages'], ['faults injected', faults || 'none']]);
}

// The state is that of the device now, also while the view is paused.
function drawState() {
  const { status } = now, state = failures > 2 || !status ? (failures > 2 ? 'no answer' : 'connecting') : status.state;
  const badge = $('state'), banner = $('banner');
  badge.textContent = state;
  badge.className = { serving: 'good', failed: 'bad', 'disk-full': 'bad', 'host-error': 'bad', 'no answer': 'bad' }[state] || 'warn';
  const why = { 'no answer': 'ftld does not answer; the data below is old.', failed: status && 'The device has failed: ' + status.failure + '. Restart ftld to mount the image again.',
    'disk-full': status && status.writes_failing + '.', 'host-error': status && status.writes_failing + '.',
    'read-only': status && 'The device refuses writes: ' + status.read_only_reason + '.',
    paused: status && status.paused && 'The device is paused, requests wait' + (status.paused.stepping ? '; a step is in progress' : '') + '. It resumes in ' + Math.ceil(status.paused.seconds_left) + ' s, or with: ftld resume',
    serving: status && status.host_behind && 'Since the start, ' + status.host_behind + '.',
    stopping: status && 'Stopping; device in use: ' + status.waiting_for.join(', ') }[state];
  banner.hidden = !why;
  banner.textContent = why || '';
  banner.className = badge.className === 'bad' ? 'bad' : '';
  const ago = held && now.ticks.length ? now.ticks[now.ticks.length - 1].at - held.ticks[held.ticks.length - 1].at : 0;
  $('view').textContent = held ? 'view paused ' + Math.round(ago) + ' s ago' : 'live';
  $('view').className = held ? 'held' : '';
  $('pause').textContent = held ? 'Go live' : 'Pause view';
  $('back').disabled = $('next').disabled = !now.events.length;
}

function draw() {
  drawState();
  if (!device || !shown().status) return;
  drawMap(); drawWaf(); drawCauses(); drawLatency(); drawEvents(); drawCache(); drawTables();
}

// ---- steering the view; nothing here reaches the device

function hold(on) {
  if (!now.ticks.length) return;
  held = on ? { ...now } : null;
  cursor = on ? now.events.length - 1 : -1;
  draw();
}

// Through the events as they were recorded, those that came since the view was paused included.
function step(by) {
  if (!held) hold(true);
  if (!held) return;
  const number = held.events[cursor] ? held.events[cursor][0] : -1;
  held.events = now.events;
  held.missed = now.missed;
  const here = held.events.findIndex(e => e[0] >= number);
  cursor = Math.max(0, Math.min(held.events.length - 1, (here < 0 ? 0 : here) + by));
  draw();
}

$('pause').addEventListener('click', () => hold(!held));
$('back').addEventListener('click', () => step(-1));
$('next').addEventListener('click', () => step(1));
addEventListener('keydown', e => {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  const pressed = { ' ': () => hold(!held), ArrowLeft: () => step(-1), ArrowRight: () => step(1), l: () => hold(false) }[e.key];
  if (pressed && !(e.key === ' ' && e.target.tagName === 'BUTTON')) { e.preventDefault(); pressed(); }
});
function tabs(id, choose) {
  $(id).addEventListener('click', e => {
    if (e.target.tagName !== 'BUTTON') return;
    choose(e.target.dataset);
    for (const button of $(id).children) button.setAttribute('aria-pressed', button === e.target);
    draw();
  });
}
tabs('modes', data => { mode = data.mode; });
tabs('ops', data => { op = data.op; });
$('map').addEventListener('mousemove', e => {
  if (!grid) return;
  const column = Math.floor(e.offsetX / grid.size), row = Math.floor(e.offsetY / grid.size), i = row * grid.columns + column;
  pointed = column < grid.columns && i < grid.count ? i : -1;
  drawMap();
});
$('map').addEventListener('mouseleave', () => { pointed = -1; if (device) drawMap(); });
$('events').addEventListener('click', e => {
  const nearest = dots.reduce((best, dot) => !best || Math.abs(dot[0] - e.offsetX) < Math.abs(best[0] - e.offsetX) ? dot : best, null);
  if (!nearest) return;
  if (!held) hold(true);
  cursor = nearest[1];
  draw();
});
addEventListener('resize', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
poll();
setInterval(poll, EVERY_MS);
