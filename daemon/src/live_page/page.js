'use strict';
// Asks once a second and draws. `now` has the state of the device, `shown` the state that is drawn:
// the same object while the view is live, an older one while it is paused. A tick is one second of
// the daemon's history.

const EVERY_MS = 1000, KEPT = 600, EVENTS_KEPT = 5000, RECENT = 10, DOTS = 150, VICTIMS = 100, BARS = 48, WAY_MS = 2500;
// Okabe and Ito's colours, which people with any colour vision tell apart, and greys; names stand
// beside them everywhere.
const C = { blue: '#0072b2', sky: '#56b4e9', green: '#009e73', yellow: '#e5d53a', orange: '#e69f00', red: '#d55e00',
  pink: '#cc79a7', brown: '#7d5a3c', grey: '#8b929b', pale: '#b4bac1', violet: '#7a5cc0', salmon: '#f0a58f', teal: '#4d9193' };
const USES = { free: 'var(--free)', open: C.yellow, data: C.blue, update: C.orange, cold: C.sky, log: C.red, journal: C.pink,
  map: C.green, checkpoint: C.brown, other: C.pale, released: C.grey, bad: '#c2183f' };
const CAUSES = { host: C.blue, gc: C.red, gc_translation: C.salmon, merge: C.orange, convert: C.pink, translation: C.green,
  trim: C.pale, wear: C.yellow, refresh: C.sky, checkpoint: C.brown, pad: C.grey, journal: C.violet, recovery: 'var(--ink)',
  fold: C.teal };
const KINDS = { gc: [C.red, 'GC'], switch_merge: [C.yellow, 'switch merge'], partial_merge: [C.orange, 'partial merge'],
  full_merge: [C.sky, 'full merge'], convert: [C.pink, 'convert'], buffer_flush: [C.violet, 'buffer flush'],
  wear_move: [C.brown, 'wear move'], refresh: [C.green, 'refresh'], checkpoint: [C.grey, 'checkpoint'],
  bad_block: [USES.bad, 'bad block'], fold: [C.teal, 'fold'] };
const LINE = 'var(--accent)';
const RAMP = ['#00224e', '#123570', '#3b496c', '#575d6d', '#707173', '#8a8678', '#a59c74', '#c3b369', '#e1cc55', '#fee838'];

const $ = id => document.getElementById(id);
const color = text => text.startsWith('var(') ? getComputedStyle(document.documentElement).getPropertyValue(text.slice(4, -1)).trim() : text;

let device = null;
let now = { status: null, ticks: [], sample: 0, events: [], next: 0, fresh: 0, missed: 0, map: null, generation: -1 };
let held = null, cursor = -1, mode = 'used', op = 'write', plot = 'requests', pointed = -1, chosen = -1;
let before = null, way = null, failures = 0, busy = false, polls = 0, row = 0, asked = 0, said = '';
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
    const [status, history, events, blocks, instances] = await Promise.all([ask('/status'), ask('/api/history?since=' + now.sample),
      ask('/api/events?since=' + now.next), ask('/api/blocks?since=' + now.generation), polls % 5 < 2 ? ask('/api/instances') : null]);
    if (now.status && (status.pid !== now.status.pid || status.uptime_seconds < now.status.uptime_seconds)) { location.reload(); return; }
    take(status, history, events, blocks);
    if (instances) links(instances.instances);
    failures = 0;
    document.body.dataset.ticks = ++polls;
  } catch (error) {
    failures++;
  } finally {
    busy = false;
    draw();
  }
}

function take(status, history, events, blocks) {
  const { ticks } = now, fresh = events.events, last = now.events.length ? now.events[now.events.length - 1][0] : 0;
  now.status = status;
  now = { ...now, ticks: extend(ticks, history), sample: history.next, next: events.next };
  // Events are published only while a page asks: a gap counts as dropped events only after some
  // answers in a row.
  row = performance.now() - asked < 3 * EVERY_MS ? row + 1 : 0;
  asked = performance.now();
  if (fresh.length) {
    if (row > 2) now.missed += fresh[fresh.length - 1][0] - last - fresh.length;
    now.fresh = fresh[0][0];
    now.events = [...now.events, ...fresh].slice(-EVENTS_KEPT);
  }
  if (blocks.used !== undefined && blocks.generation > 0) now.map = unpack(blocks);
  now.generation = blocks.generation;
  follow();
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
    const programs = Object.fromEntries(Object.keys(history.programs).map(c => [c, per(of(history.programs[c]), flash)]));
    const hit = ({ total, hits }) => of(total) ? of(hits) / of(total) : null;
    const tick = { at: of(history.at_ms) / 1000, flash, emulated: of(history.emulated_ns), written: of(history.written_bytes), programs,
      programmed: Object.values(history.programs).reduce((sum, c) => sum + of(c), 0) * device.page_bytes,
      life: of(history.written_total_bytes) ? of(history.programs_total) * device.page_bytes / of(history.written_total_bytes) : null,
      reads: per(of(read.completed), host), writes: per(of(write.completed), host), gc: per(of(history.gc_runs), flash),
      readBytes: per(of(read.bytes), host), writeBytes: per(of(write.bytes), host),
      hitRead: hit(history.lookups.read), hitWrite: hit(history.lookups.write),
      counts: mapValues(history.host, o => ({ wall: o.wall.map(of), emulated: o.emulated.map(of) })) };
    ticks.push(tick);
    // Over the last 10 s: write amplification, emulated time per wall time, latencies.
    const recent = ticks.slice(-RECENT), sum = of => recent.reduce((total, t) => total + of(t), 0);
    const written = sum(t => t.written), flashMs = sum(t => t.flash);
    tick.waf = written ? sum(t => t.programmed) / written : null;
    tick.ratio = flashMs && sum(t => t.reads + t.writes) ? sum(t => t.emulated) / flashMs / 1e6 : null;
    tick.latency = mapValues(tick.counts, (_, op) => ({ wall: percentiles(recent, op, 'wall'), emulated: percentiles(recent, op, 'emulated') }));
  }
  return ticks.slice(-KEPT);
}

const mapValues = (object, of) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, of(value, key)]));

function unpack(blocks) {
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const words = text => { const b = bytes(text); return Array.from({ length: b.length / 2 }, (_, i) => b[2 * i] | b[2 * i + 1] << 8); };
  return { blocks: blocks.blocks, perCell: blocks.per_cell, counts: blocks.counts, used: bytes(blocks.used), valid: words(blocks.valid),
    erases: words(blocks.erases).map(n => n * blocks.erases_unit), age: words(blocks.age).map(n => n * blocks.age_unit) };
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

// ---- words and numbers

const short = (n, digits = 3) => n === null || n === undefined ? '-' : n === 0 ? '0' :
  Math.abs(n) >= 1e9 ? (n / 1e9).toPrecision(digits) + ' G' : Math.abs(n) >= 1e6 ? (n / 1e6).toPrecision(digits) + ' M' :
  Math.abs(n) >= 1e4 ? (n / 1e3).toPrecision(digits) + ' k' : n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toPrecision(digits);
const fixed = n => n === null || n === undefined ? '-' : n.toFixed(2);
const bytes = n => { let i = 0; while (n >= 1024 && i < 5) { n /= 1024; i++; } return (i && n < 100 ? n.toFixed(1) : Math.round(n)) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][i]; };
const digits3 = n => String(Number(n.toPrecision(3)));
const time = ns => ns === null || ns === undefined ? '-' : ns < 1e3 ? Math.round(ns) + ' ns' : ns < 1e6 ? digits3(ns / 1e3) + ' \u00b5s' :
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
    if (paint) { const i = node('i', undefined, paint === USES.bad ? 'bad' : ''); i.style.background = color(paint); span.append(i); }
    span.append(text);
    return span;
  }));
}

// Tells a screen reader; nothing that changes by itself every second.
const say = text => { $('say').textContent = text; };

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
  if (device.load) load();
  if (scheme) {
    $('scheme-name').textContent = scheme.title;
    $('scheme-about').textContent = scheme.about || '';
    $('scheme-facts').textContent = 'Maps: ' + scheme.mapping + '. RAM: ' + scheme.ram + '. ' + scheme.paper + '.';
  }
  $('foot').textContent = 'ftld ' + device.version + ', ' + (device.shards > 1 ? device.shards + ' chips, ' : '') + device.blocks + ' blocks of ' + device.pages_per_block + ' pages of ' + bytes(device.page_bytes);
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

// The same for counts: half of it is whole.
const niceCount = max => { const top = Math.max(2, nice(max)), lead = top / 10 ** Math.floor(Math.log10(top)); return lead === 5 || lead === 1 && top < 10 ? 2 * top : top; };

// Seconds that the plots show: as far back as there is something to show.
function span() {
  const { ticks } = shown(), long = ticks.length ? ticks[ticks.length - 1].at - ticks[0].at : 0;
  return [30, 60, 120, 300].find(s => long <= s) || KEPT;
}

// Axes of a plot: returns where a time and a value are.
function axes({ g, width, height }, low, high, log, label, span, ends = ['-' + (span > 60 ? span / 60 + ' min' : span + ' s'), 'now']) {
  const left = 56, right = width - 8, top = 8, bottom = height - 18;
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

// `least` is the upper end of the axis of an idle device.
function series(id, lines, { low = 0, high, least = 1, log = false, unit = 1, label = short }) {
  const ticks = shown().ticks, area = surface(id), last = ticks.length ? ticks[ticks.length - 1].at : 0;
  const values = lines.map(([, , of]) => ticks.map(of));
  const top = high || nice(Math.max(...values.flat().filter(v => v !== null), least) / unit) * unit;
  const at = axes(area, low, top, log, label, span());
  lines.forEach(([paint, width, , dash], k) =>
    line(area.g, values[k].map((v, i) => [at.x(last - ticks[i].at), v === null ? null : at.y(v)]), paint, width, dash));
  return values.map(v => v.length ? v[v.length - 1] : null);
}

function drawWaf() {
  const [recent, life] = series('waf', [[LINE, 1.8, t => t.waf], [C.orange, 2.2, t => t.life, [6, 4]]], { label: v => v.toFixed(1) });
  legend('waf-legend', [[LINE, 'last 10 s ' + fixed(recent)], [C.orange, 'since the start (dashed) ' + fixed(life)]]);
}

function drawHost() {
  if (plot === 'ratio') {
    const [ratio] = series('host', [[LINE, 2, t => t.ratio]], { label: v => short(v) + ' \u00d7' });
    legend('host-legend', [[LINE, 'emulated time per wall time, last 10 s: ' + fixed(ratio)], [null, takes(ratio)]]);
    return;
  }
  const [read, write] = plot === 'bytes' ? ['readBytes', 'writeBytes'] : ['reads', 'writes'];
  const least = plot === 'bytes' ? 1 << 20 : 10;
  const top = Math.max(least, ...shown().ticks.map(t => Math.max(t[read], t[write]))), show = plot === 'bytes' ? bytes : short;
  const unit = plot === 'bytes' ? 1024 ** Math.floor(Math.log2(top) / 10) : 1;
  const ends = series('host', [[C.green, 1.8, t => t[read]], [C.blue, 1.8, t => t[write]]], { unit, least, label: v => show(v).replace('.0 ', ' ') });
  legend('host-legend', [[C.green, 'reads ' + show(ends[0] || 0) + '/s'], [C.blue, 'writes ' + show(ends[1] || 0) + '/s']]);
}

// How long the emulated flash takes for what this host did in a while.
const takes = ratio => ratio === null || ratio === undefined ? 'no reads or writes' : ratio > .95 && ratio < 1.05 ? 'this flash keeps up' :
  'this flash would take ' + digits3(ratio) + ' times as long';

function drawCauses() {
  const ticks = shown().ticks, area = surface('causes'), { g } = area;
  const seen = device.causes.filter(c => ticks.some(t => t.programs[c] > 0));
  const totals = ticks.map(t => seen.reduce((sum, c) => sum + t.programs[c], 0));
  const last = ticks.length ? ticks[ticks.length - 1].at : 0, at = axes(area, 0, nice(Math.max(...totals, 10)), false, short, span());
  const base = ticks.map(() => 0);
  for (const c of seen) {
    const upper = ticks.map((t, i) => base[i] + t.programs[c]);
    g.fillStyle = color(CAUSES[c] || C.pale);
    g.beginPath();
    ticks.forEach((t, i) => g.lineTo(at.x(last - t.at), at.y(upper[i])));
    for (let i = ticks.length - 1; i >= 0; i--) g.lineTo(at.x(last - ticks[i].at), at.y(base[i]));
    g.fill();
    upper.forEach((v, i) => { base[i] = v; });
  }
  const newest = ticks[ticks.length - 1];
  legend('causes-legend', seen.length ? seen.map(c => [CAUSES[c] || C.pale, c + ' ' + short(newest.programs[c])]) : [[null, 'no programs yet']]);
}

function drawLatency() {
  const ticks = shown().ticks, newest = ticks[ticks.length - 1], of = (clock, p) => t => t.latency[op][clock][p];
  const lines = [[LINE, 1.5, of('wall', 0), [2, 3]], [LINE, 2.2, of('wall', 1)], [C.red, 1.5, of('emulated', 0), [2, 3]], [C.red, 2.2, of('emulated', 1)]];
  series('latency', lines, { low: 1e4, high: 1e10, log: true, label: time });
  const text = clock => newest ? newest.latency[op][clock].map(time).join(' / ') : '-';
  legend('latency-legend', [[LINE, 'wall p50 (dotted) / p99 / p99.9: ' + text('wall')], [C.red, 'emulated: ' + text('emulated')]]);
}

function drawCache() {
  const lines = [[C.green, 2, t => t.hitRead], [C.blue, 2, t => t.hitWrite]];
  const [read, write] = series('cache', lines, { high: 1, label: v => Math.round(100 * v) + ' %' });
  const stats = shown().status.scheme_stats, text = [];
  for (const [color, op, hit] of [[C.green, 'read', read], [C.blue, 'write', write]])
    if (stats['lookups_' + op])
      text.push([color, op + 's now ' + percent(hit) + ', since the start ' + percent(stats['hits_' + op] / stats['lookups_' + op])]);
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
  size = Math.max(2, Math.min(size, 56));
  const columns = Math.floor(width / size), gap = size > 4 ? 1 : 0;
  grid = { size, columns, count };
  const paints = device.uses.map(use => color(USES[use] || C.pale));
  const blank = ['free', 'bad'].map(use => device.uses.indexOf(use));
  const top = mode === 'valid' ? device.pages_per_block : Math.max(1, ...map[mode]), log = mode === 'age';
  for (let i = 0; i < count; i++) {
    const used = map.used[i], plain = mode === 'used' || (mode !== 'erases' && used === blank[0]) || used === blank[1];
    const k = log ? Math.log1p(map.age[i]) / Math.log1p(top) : map[mode][i] / top, x = i % columns * size, y = Math.floor(i / columns) * size;
    g.fillStyle = plain ? paints[used] : ramp(k);
    g.fillRect(x, y, size - gap, size - gap);
    if (used === blank[1] && size > 6) { g.strokeStyle = '#fff'; g.lineWidth = 1; cross(g, x + 2, y + 2, size - gap - 4); }
  }
  const mark = (i, paint, width) => {
    if (i < 0 || i >= count) return;
    g.strokeStyle = color(paint); g.lineWidth = width;
    g.strokeRect(i % columns * size - 1, Math.floor(i / columns) * size - 1, size + 1, size + 1);
  };
  const { newest, blocks } = victims();
  for (const block of blocks) mark(cellOf(map, block), C.red, 2);
  if (newest) { const cell = cellOf(map, newest[2]); mark(cell, 'var(--ink)', 5); mark(cell, C.red, 3); }
  const event = held && shown().events[cursor];
  if (event && event[2] !== null && event !== newest) mark(cellOf(map, event[2]), 'var(--ink)', 2);
  if (way && way.told >= 0) for (const cell of way.stages[way.told][2]) mark(cell, LINE, 4);
  const i = pointed >= 0 ? pointed : chosen;
  mark(i, 'var(--ink)', 2);
  mapLegend(map, top);
  if (i >= 0 && i < count) $('map-facts').textContent = facts(map, i);
  else $('map-facts').replaceChildren(...(newest ? victimFacts(newest) : ['Point at a block, or move to it with the arrow keys, for its details.']));
}

// The stages so far, the newest one outlined here and on the map.
function drawWay() {
  $('s-way').hidden = !way;
  if (!way) return;
  const active = Math.min(way.stages.length - 1, Math.floor((performance.now() - way.began) / WAY_MS));
  if (active === way.told) return;
  way.told = active;
  $('way').replaceChildren(...way.stages.slice(0, active + 1).map(([title, text], i) => {
    const item = node('li', undefined, i === active ? 'active' : '');
    item.append(node('b', title), text);
    return item;
  }));
  say(way.stages[active].slice(0, 2).join(': '));
}

function cross(g, x, y, size) {
  g.beginPath();
  g.moveTo(x, y); g.lineTo(x + size, y + size);
  g.moveTo(x + size, y); g.lineTo(x, y + size);
  g.stroke();
}

// GC events of the view, the newest last, and the blocks of those since the last answer.
function victims() {
  const { events, fresh } = shown(), gc = device.events.indexOf('gc');
  const found = events.slice(0, held ? cursor + 1 : undefined).filter(e => e[1] === gc && e[2] !== null).slice(-VICTIMS);
  return { found, newest: found[found.length - 1], blocks: held ? [] : found.filter(e => e[0] >= fresh).map(e => e[2]) };
}

const victimFacts = ([, , block, pages]) => [node('b', 'Victim: block ' + block), ' was collected with ' + pages + ' of ' + device.pages_per_block + ' pages valid.'];

function mapLegend(map, top) {
  const each = map.perCell > 1 ? 'a cell is ' + map.perCell + ' blocks' : 'a cell is a block', extra = [[null, each]];
  if (victims().newest) extra.unshift([C.red, 'outlined: victims of GC']);
  const uses = device.uses.map((use, i) => [USES[use] || C.pale, use + ' ' + short(map.counts[i]), map.counts[i], use]).filter(e => e[2]);
  if (mode === 'used') { legend('map-legend', [...uses, ...extra]); return; }
  const words = { valid: ['0', top + ' valid pages of a block'], erases: ['0', short(top) + ' erases (rated ' + device.endurance + ')'],
    age: ['just opened', short(top) + ' blocks opened since (log)'] }[mode];
  const i = node('i', undefined, 'ramp');
  i.style.background = 'linear-gradient(to right, ' + RAMP.join(',') + ')';
  const bar = node('span');
  bar.append(words[0] + ' ', i, words[1]);
  legend('map-legend', [...uses.filter(e => e[3] === 'bad' || (e[3] === 'free' && mode !== 'erases')), ...extra]);
  $('map-legend').prepend(bar);
}

// Number of blocks by their valid pages, their mean, the newest victim of GC and the mean of the
// last ones.
function drawValid() {
  const { map } = shown(), pages = device.pages_per_block, area = surface('valid'), { g } = area;
  if (!map) { legend('valid-legend', [[null, 'waiting for the first map of the blocks']]); return; }
  const empty = ['free', 'released', 'bad'].map(use => device.uses.indexOf(use)), valid = [...map.valid].filter((_, i) => !empty.includes(map.used[i]));
  const each = Math.ceil((pages + 1) / BARS), bars = Array(Math.ceil((pages + 1) / each)).fill(0);
  for (const n of valid) bars[Math.min(Math.floor(n / each), bars.length - 1)] += map.perCell;
  const at = axes(area, 0, niceCount(Math.max(...bars)), false, short, 1, ['0', pages + ' valid pages']), wide = (at.right - at.left) / bars.length;
  const x = n => at.left + (n + .5) / each * wide, { found, newest } = victims(), mean = of => of.reduce((a, b) => a + b, 0) / of.length;
  g.fillStyle = color(LINE);
  bars.forEach((n, i) => { if (n) g.fillRect(at.left + i * wide, Math.min(at.y(n), at.bottom - 1), Math.max(1, wide - 1), Math.max(1, at.bottom - at.y(n))); });
  const upright = (n, paint, dash) => line(g, [[x(n), at.top], [x(n), at.bottom]], paint, 2, dash);
  const entries = [[null, map.perCell > 1 ? 'a cell of ' + map.perCell + ' blocks counts with its mean' : short(valid.length) + ' blocks with data']];
  if (valid.length) {
    upright(mean(valid), 'var(--ink)');
    entries.push(['var(--ink)', 'mean ' + mean(valid).toFixed(1) + ' of ' + pages + ' valid pages']);
  }
  if (newest) {
    const last = mean(found.map(e => e[3]));
    upright(last, C.red, [4, 3]);
    g.fillStyle = C.red;
    g.beginPath();
    g.moveTo(x(newest[3]), at.bottom - 9); g.lineTo(x(newest[3]) - 6, at.bottom + 3); g.lineTo(x(newest[3]) + 6, at.bottom + 3);
    g.fill();
    entries.push([C.red, 'victim: block ' + newest[2] + ' with ' + newest[3] + '; mean of the last ' + found.length + ' victims (dashed) ' + last.toFixed(1)]);
  }
  legend('valid-legend', entries);
}

// The cell of a block. Each shard begins with a new cell.
function cellOf(map, block) {
  const cells = map.used.length / device.shards, blocks = map.blocks / device.shards, shard = Math.floor(block / blocks);
  return shard * cells + Math.floor(block % blocks / map.perCell);
}

function facts(map, i) {
  // Each shard has as many cells; the last of each may have fewer blocks.
  const cells = map.used.length / device.shards, blocks = map.blocks / device.shards, shard = Math.floor(i / cells);
  const first = shard * blocks + (i % cells) * map.perCell, last = Math.min(first + map.perCell, (shard + 1) * blocks) - 1, mean = first < last ? 'on average ' : '';
  const use = device.uses[map.used[i]];
  const chip = device.shards > 1 ? 'Shard ' + shard + ': ' : '';
  const name = first < last ? 'Blocks ' + first + ' to ' + last + ': mostly ' + use : 'Block ' + first + ': ' + use;
  const age = map.age[i] ? ', ' + mean + map.age[i] + ' blocks opened since' : '';
  return chip + name + ', ' + mean + map.valid[i] + ' of ' + device.pages_per_block + ' pages valid, ' + mean + map.erases[i] + ' erases of ' + device.endurance + ' rated' + age;
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
  if (shown().missed) entries.push([null, short(shown().missed) + ' events dropped: too many per second']);
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
  const { status, ticks, map } = shown(), newest = ticks[ticks.length - 1] || {}, { scheme_stats: stats, wear } = status;
  list('now', [
    ['write amplification, last 10 s', fixed(newest.waf), true],
    ['write amplification, since the start', fixed(status.write_amplification), true],
    ['free blocks', short(status.blocks.free) + ' of ' + short(device.blocks), true],
    ...(device.shards > 1 ? [['free blocks by shard', status.shards.map(shard => short(shard.free_blocks)).join(', ')]] : []),
    ['reads', short(newest.reads || 0) + '/s, ' + bytes(newest.readBytes || 0) + '/s'],
    ['writes', short(newest.writes || 0) + '/s, ' + bytes(newest.writeBytes || 0) + '/s'],
    ['copied by GC', short(newest.programs ? newest.programs.gc : 0) + ' pages/s in ' + short(newest.gc || 0) + ' runs/s'],
    ['requests in flight', Object.values(status.host).reduce((sum, o) => sum + o.in_flight, 0)],
    ['latency', device.latency === 'emulate' ? 'as on the flash' : 'not emulated'],
  ]);
  $('takes').textContent = 'Over the last 10 s: ' + takes(newest.ratio) + '.';
  const free = device.uses.indexOf('free'), parts = map ? device.uses.map((use, i) => [map.counts[i], USES[use] || C.pale, use + ': ' + map.counts[i]]) : [];
  parts.push(...parts.splice(free, 1));
  const page = device.page_bytes, total = device.blocks * device.pages_per_block;
  bars('space', [
    ['blocks', map ? short(device.blocks - map.counts[free]) + ' in use, ' + short(map.counts[free]) + ' free' : '-', parts],
    ['host data', bytes(stats.mapped_pages * page) + ' of ' + bytes(device.logical_bytes), [[stats.mapped_pages, C.blue, 'written'], [Math.max(0, device.logical_bytes / page - stats.mapped_pages), USES.free, 'never written or trimmed']]],
    ['flash pages', percent(stats.valid_pages / total) + ' valid of ' + bytes(device.raw_bytes), [[stats.valid_pages, C.green, 'valid'], [total - stats.valid_pages, USES.free, 'invalid or free']]],
  ], parts => parts.reduce((sum, [size]) => sum + size, 0) || 1);
  const key = node('div', undefined, 'legend');
  key.id = 'space-legend';
  $('space').append(key);
  legend('space-legend', parts.filter(([blocks]) => blocks).map(([, paint, text]) => [paint, text.replace(':', '')]));
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
  if (badge.textContent !== state) badge.textContent = state;
  badge.className = { serving: 'good', failed: 'bad', 'disk-full': 'bad', 'host-error': 'bad', 'no answer': 'bad' }[state] || 'warn';
  const why = { 'no answer': 'ftld does not answer; the data below is old.', failed: status && 'The device has failed: ' + status.failure + '. Restart ftld to mount the image again.',
    'disk-full': status && status.writes_failing + '.', 'host-error': status && status.writes_failing + '.',
    'read-only': status && 'The device refuses writes: ' + status.read_only_reason + '.',
    paused: status && status.paused && 'The device is paused, requests wait' + (status.paused.stepping ? '; a step is in progress' : '') + '. It resumes in ' + Math.ceil(status.paused.seconds_left) + ' s, or with: ftld resume',
    serving: status && status.host_behind && 'Since the start, ' + status.host_behind + '.',
    stopping: status && 'Stopping; device in use: ' + status.waiting_for.join(', ') }[state];
  banner.hidden = !why;
  banner.textContent = why || '';
  if (state !== said) { said = state; say(why || 'The device is ' + state + '.'); }
  banner.className = badge.className === 'bad' ? 'bad' : '';
  const ago = held && now.ticks.length ? now.ticks[now.ticks.length - 1].at - held.ticks[held.ticks.length - 1].at : 0;
  $('view').textContent = held ? 'view paused ' + Math.round(ago) + ' s ago' : 'live';
  $('view').className = held ? 'held' : '';
  $('pause').textContent = held ? 'Go live' : 'Pause view';
  $('back').disabled = $('next').disabled = !now.events.length;
}

// Until the first load of this start: a command line for one. It writes only if nothing is stored.
function drawIdle() {
  // The host itself reads a few blocks of a new device.
  const { status } = now, hidden = !device || !status || status.host.write.completed > 0 || status.host.read.completed > 100;
  $('idle').hidden = hidden;
  if (hidden || $('idle-line').textContent) return;
  const { target } = device, is_nbd = target.startsWith('nbd');
  const engine = is_nbd ? "--ioengine=nbd --uri='" + target + "'" : '--filename=' + target + ' --direct=1';
  const what = status.scheme_stats.mapped_pages ? '--rw=randread' : '--rw=randwrite --norandommap';
  $('idle-line').textContent = 'fio --name=load ' + engine + ' ' + what + ' --bs=4k --size=' + device.size_bytes + ' --time_based --runtime=60';
}

function draw() {
  drawState();
  drawIdle();
  if (!device || !shown().status) return;
  drawWay(); drawMap(); drawValid(); drawHost(); drawWaf(); drawCauses(); drawLatency(); drawEvents(); drawCache(); drawTables();
}

// ---- steering the view; nothing here reaches the device

function hold(on) {
  if (!now.ticks.length || on === Boolean(held)) return;
  held = on ? { ...now } : null;
  cursor = on ? now.events.length - 1 : -1;
  say(on ? 'The view is paused; the device is not.' : 'The view is live.');
  draw();
}

// Through the events as they were recorded, those that came since the view was paused included.
function step(by) {
  hold(true);
  if (!held) return;
  const number = held.events[cursor] ? held.events[cursor][0] : -1;
  held.events = now.events;
  held.missed = now.missed;
  const here = held.events.findIndex(e => e[0] >= number);
  cursor = Math.max(0, Math.min(held.events.length - 1, (here < 0 ? 0 : here) + by));
  draw();
  say($('event-facts').textContent);
}

$('pause').addEventListener('click', () => hold(!held));
$('back').addEventListener('click', () => step(-1));
$('next').addEventListener('click', () => step(1));
addEventListener('keydown', e => {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  const pressed = { ' ': () => hold(!held), ArrowLeft: () => step(-1), ArrowRight: () => step(1), l: () => hold(false) }[e.key];
  if (pressed && !(e.key === ' ' && ['BUTTON', 'A'].includes(e.target.tagName))) { e.preventDefault(); pressed(); }
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
tabs('plots', data => { plot = data.plot; });
$('map').addEventListener('mousemove', e => {
  if (!grid) return;
  const column = Math.floor(e.offsetX / grid.size), row = Math.floor(e.offsetY / grid.size), i = row * grid.columns + column;
  pointed = column < grid.columns && i < grid.count ? i : -1;
  drawMap();
});
$('map').addEventListener('mouseleave', () => { pointed = -1; if (device) drawMap(); });
// Moves on the map by keys; they do not reach the keys of the whole page.
$('map').addEventListener('keydown', e => {
  if (!grid || e.ctrlKey || e.altKey || e.metaKey) return;
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns, Home: -Infinity, End: Infinity }[e.key];
  if (by === undefined) { if (e.key === 'Escape') choose(-1); return; }
  e.preventDefault();
  e.stopPropagation();
  const to = chosen < 0 ? (by === Infinity ? grid.count - 1 : 0) : chosen + by;
  if (chosen < 0 || Math.abs(by) === Infinity || (to >= 0 && to < grid.count)) choose(Math.max(0, Math.min(grid.count - 1, to)));
});
$('map').addEventListener('blur', () => choose(-1));
function choose(i) {
  chosen = i;
  pointed = -1;
  if (!shown().map) return;
  drawMap();
  if (i >= 0) say(facts(shown().map, i));
}
$('events').addEventListener('click', e => {
  const nearest = dots.reduce((best, dot) => !best || Math.abs(dot[0] - e.offsetX) < Math.abs(best[0] - e.offsetX) ? dot : best, null);
  if (!nearest) return;
  hold(true);
  cursor = nearest[1];
  draw();
});
addEventListener('resize', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
poll();
setInterval(poll, EVERY_MS);
