// ---- plots

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

const decades = (low, high) => Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, i) => low * 10 ** i);

// Axes of a plot: returns where a value is.
function axes({ g, width, height }, { low = 0, high, log, label = short, marks, ends }) {
  const left = 56, right = width - 8, top = 8, bottom = height - 18;
  const f = log ? v => Math.log(Math.max(v, low)) : v => v;
  const y = v => bottom - (f(Math.max(low, Math.min(v, high))) - f(low)) / (f(high) - f(low) || 1) * (bottom - top);
  g.strokeStyle = color('var(--line)');
  g.fillStyle = color('var(--soft)');
  g.lineWidth = 1;
  g.textAlign = 'right';
  g.textBaseline = 'middle';
  for (const v of marks || (log ? decades(low, high) : [0, .5, 1].map(k => low + k * (high - low)))) {
    g.beginPath(); g.moveTo(left, y(v)); g.lineTo(right, y(v)); g.stroke();
    g.fillText(label(v), left - 6, y(v));
  }
  g.textBaseline = 'alphabetic';
  g.fillText(ends[1], right, height - 4);
  g.textAlign = 'left';
  g.fillText(ends[0], left, height - 4);
  return { y, left, right, top, bottom };
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

// ---- plots over time: one window, one crosshair, for all of them

const AGO = s => s < .5 ? 'now' : s >= 90 ? '-' + (s / 60).toFixed(s % 60 < 1 ? 0 : 1) + ' min' : '-' + Math.round(s) + ' s';
const plots = {};
// The window that was chosen by a drag, the time under the pointer, and a drag that goes on.
let zoomed = null, at = null, drag = null;

const newestAt = () => { const { ticks } = shown(); return ticks.length ? ticks[ticks.length - 1].at : 0; };

// As far back as there is something to show, or what was chosen.
function span() {
  if (zoomed) return zoomed;
  const { ticks } = shown(), last = newestAt(), long = ticks.length ? last - ticks[0].at : 0;
  return [last - ([30, 60, 120, 300].find(s => long <= s) || KEPT), last];
}

const within = () => { const [from, to] = span(); return shown().ticks.filter(t => t.at >= from - 2 && t.at <= to + 2); };

// The tick that is told in words: the newest, or the one under the crosshair.
function tickAt() {
  const { ticks } = shown();
  if (at === null) return ticks[ticks.length - 1];
  return ticks.reduce((best, t) => best && Math.abs(best.at - at) <= Math.abs(t.at - at) ? best : t, null);
}

// Draws axes, then `paint(g, scale, ticks)`, then what all plots have. `rows`: a tick in words.
function plot(id, how, paint, rows) {
  const area = surface(id), { g } = area, [from, to] = span(), ago = t => AGO(newestAt() - t);
  const scale = axes(area, { ...how, ends: [ago(from), ago(to)] }), { left, right, top, bottom } = scale;
  scale.x = t => left + (t - from) / (to - from) * (right - left);
  g.save();
  g.beginPath(); g.rect(left, top - 2, right - left, bottom - top + 4); g.clip();
  paint(g, scale, within());
  for (const [cut, how] of shown().restarts) line(g, [[scale.x(cut), top], [scale.x(cut), bottom]], how === 'clean' ? 'var(--soft)' : USES.bad, 2, [2, 3]);
  if (drag && Math.abs(drag.to - drag.from) > 0) {
    g.globalAlpha = .18;
    g.fillStyle = color(LINE);
    g.fillRect(scale.x(Math.min(drag.from, drag.to)), top, Math.abs(scale.x(drag.to) - scale.x(drag.from)), bottom - top);
    g.globalAlpha = 1;
  }
  const told = tickAt();
  if (at !== null && told) line(g, [[scale.x(told.at), top], [scale.x(told.at), bottom]], 'var(--ink)', 1);
  g.restore();
  plots[id] = { rows, time: x => from + (x - left) / (right - left) * (to - from), scale };
  legend(id + '-legend', told ? rows(told) : [[null, 'no figures yet']]);
}

// A value of each tick; a gap where there is none, or where the page saw nothing.
const points = (ticks, scale, of) => ticks.flatMap((t, i) => {
  const v = of(t), point = [scale.x(t.at), v === null || v === undefined ? null : scale.y(v)];
  return i && t.at - ticks[i - 1].at > 5 ? [[0, null], point] : [point];
});

const series = lines => (g, scale, ticks) => { for (const [paint, width, of, dash] of lines) line(g, points(ticks, scale, of), paint, width, dash); };

const CAUSE_WORDS = { host: 'host data', gc: 'copied by GC', gc_translation: 'map copied by GC', merge: 'merges', convert: 'map updates', translation: 'map',
  trim: 'trim records', wear: 'wear leveling', checkpoint: 'checkpoints', pad: 'padding', recovery: 'recovery', fold: 'SLC folds' };
const wordsOf = cause => CAUSE_WORDS[cause] || cause;

// Flash programs per page that the host wrote: its own page is the 1 at the bottom.
function drawPrograms() {
  const ticks = within().filter(t => t.costs);
  if (empty('programs', ticks.length ? '' : 'nothing was written yet')) return;
  const seen = device.causes.filter(c => ticks.some(t => t.costs[c] > 0)), sums = ticks.map(t => t.waf).sort((a, b) => a - b);
  // A second with few writes and much work would flatten all others.
  const most = Math.max(1.5, Math.min(sums[sums.length - 1], 1.5 * sums[Math.floor(.95 * (sums.length - 1))])), top = 1 + nice((most - 1) * 1.02);
  const isMerged = ticks.some(t => (t.costs.host || 0) < .9), low = isMerged ? 0 : 1 - .14 * (top - 1);
  const marks = isMerged ? [0, 1, top] : [1, 1 + (top - 1) / 2, top];
  plot('programs', { low, high: top, marks, label: v => v.toFixed(v < 10 && v % 1 ? 2 : 1).replace('.0', '') }, (g, scale, all) => {
    let run = [];
    const paint = () => {
      const base = run.map(() => low);
      let sum = run.map(() => 0);
      for (const c of seen) {
        sum = run.map((t, i) => sum[i] + (t.costs[c] || 0));
        g.fillStyle = color(CAUSES[c] || C.pale);
        g.beginPath();
        run.forEach((t, i) => g.lineTo(scale.x(t.at), scale.y(sum[i])));
        g.lineTo(scale.x(run[run.length - 1].at) + 1, scale.y(sum[run.length - 1]));
        g.lineTo(scale.x(run[run.length - 1].at) + 1, scale.y(base[run.length - 1]));
        for (let i = run.length - 1; i >= 0; i--) g.lineTo(scale.x(run[i].at), scale.y(base[i]));
        g.fill();
        sum.forEach((v, i) => { base[i] = Math.max(low, v); });
      }
      run = [];
    };
    for (const t of all) {
      if (run.length && (!t.costs || t.at - run[run.length - 1].at > 5)) paint();
      if (t.costs) run.push(t);
    }
    if (run.length) paint();
    line(g, [[scale.left, scale.y(1)], [scale.right, scale.y(1)]], 'var(--ink)', 1.5);
    line(g, points(all, scale, t => t.life), 'var(--ink)', 2, [6, 4]);
  }, t => [...(t.costs ? [[null, 'in all ' + fixed(t.waf) + ':'], ...seen.filter(c => t.costs[c] > 0).map(c => [CAUSES[c] || C.pale, wordsOf(c) + ' ' + fixed(t.costs[c])])] : [[null, 'no writes in 10 s']]),
    ['var(--ink)', 'since the start (dashed) ' + fixed(t.life)]]);
}

function drawHost() {
  if (empty('host', within().some(t => t.reads + t.writes > 0) ? '' : 'no reads or writes')) return;
  if (plotOf === 'ratio') {
    const top = nice(Math.max(1, ...within().map(t => t.ratio || 0)));
    plot('host', { high: top, label: v => short(v) + ' \u00d7' }, series([[LINE, 2, t => t.ratio]]),
      t => [[LINE, 'emulated time per wall time, last 10 s: ' + fixed(t.ratio)], [null, takes(t.ratio)]]);
    return;
  }
  const [read, write] = plotOf === 'bytes' ? ['readBytes', 'writeBytes'] : ['reads', 'writes'], isBytes = plotOf === 'bytes';
  const most = Math.max(isBytes ? 1 << 20 : 10, ...within().map(t => Math.max(t[read], t[write]))), show = isBytes ? bytes : short;
  const unit = isBytes ? 1024 ** Math.floor(Math.log2(most) / 10) : 1;
  plot('host', { high: nice(most / unit) * unit, label: v => show(v).replace('.0 ', ' ') }, series([[C.green, 1.8, t => t[read]], [C.blue, 1.8, t => t[write]]]),
    t => [[C.green, 'reads ' + show(t[read]) + '/s'], [C.blue, 'writes ' + show(t[write]) + '/s']]);
}

// How the host compares with the emulated flash, over the last 10 s.
const takes = ratio => ratio === null || ratio === undefined ? 'No reads or writes in the last 10 s.' : ratio > .95 && ratio < 1.05 ? 'The host is as fast as this flash.' :
  ratio > 1 ? 'The host is ' + digits3(ratio) + ' times faster than this flash.' : 'The host keeps this flash busy for ' + Math.round(100 * ratio) + ' % of the time.';

// Latency: how many of the requests of a moment took how long, by the buckets of the daemon.
function drawLatency() {
  const ticks = within(), total = t => t.counts[op][clock].reduce((a, b) => a + b, 0), bounds = now.status.latency_bounds_ns;
  const isAny = ticks.some(t => Object.values(t.counts).some(of => of.wall.some(n => n) || of.emulated.some(n => n)));
  if (empty('latency', isAny ? '' : 'no requests')) return;
  const edge = i => i < 0 ? bounds[0] / 2.5 : i < bounds.length ? bounds[i] : bounds[bounds.length - 1] * 4;
  const seen = bounds.concat(0).map((_, i) => i).filter(i => ticks.some(t => t.counts[op][clock][i]));
  // Three decades at least.
  const first = Math.min(seen.length ? edge(seen[0] - 1) : 1e4, 1e5), low = 10 ** Math.floor(Math.log10(first));
  const high = Math.max(10 ** Math.ceil(Math.log10(seen.length ? edge(seen[seen.length - 1]) : 1e7)), low * 1e3);
  plot('latency', { low, high, log: true, label: time }, (g, scale, all) => {
    g.fillStyle = color(LINE);
    // Columns of some pixels, however many seconds they are.
    const columns = new Map(), wide = Math.max(3, scale.x(1) - scale.x(0));
    for (const t of all) {
      const key = Math.round((scale.x(t.at) - scale.left) / wide), sum = columns.get(key) || bounds.concat(0).map(() => 0);
      columns.set(key, sum.map((n, i) => n + t.counts[op][clock][i]));
    }
    for (const [key, counts] of columns) {
      const all = counts.reduce((a, b) => a + b, 0), x = scale.left + (key - 1) * wide;
      counts.forEach((n, i) => {
        if (!n) return;
        g.globalAlpha = .1 + .8 * Math.sqrt(n / all);
        const [above, below] = [scale.y(edge(i)), scale.y(edge(i - 1))];
        g.fillRect(x, above, wide + .5, Math.max(1, below - above - .5));
      });
    }
    g.globalAlpha = 1;
    series([['var(--ink)', 1.2, t => t.latency[op][clock][0], [2, 3]], ['var(--ink)', 1.8, t => t.latency[op][clock][1]]])(g, scale, all);
  }, t => t.latency[op][clock][0] === null ? [[null, 'no ' + op + (op === 'flush' ? 'es' : 's') + ' in 10 s']] : [[LINE, 'share of ' + count(total(t), op)], ['var(--ink)', 'p50 (dotted) / p99 / p99.9: ' + t.latency[op][clock].map(time).join(' / ')],
    [null, (clock === 'wall' ? 'emulated: ' : 'wall clock: ') + t.latency[op][clock === 'wall' ? 'emulated' : 'wall'].map(time).join(' / ')]]);
}

function drawCache() {
  const stats = shown().status.scheme_stats;
  if (empty('cache', stats.lookups_read + stats.lookups_write ? '' : 'no lookups: the whole map is in RAM, or nothing was read or written')) return;
  const all = (op, hit, paint) => stats['lookups_' + op] ? [[paint, op + 's ' + percent(hit) + ', since the start ' + percent(stats['hits_' + op] / stats['lookups_' + op])]] : [];
  plot('cache', { high: 1, label: v => Math.round(100 * v) + ' %' }, series([[C.green, 2, t => t.hitRead], [C.blue, 2, t => t.hitWrite]]),
    t => [...all('read', t.hitRead, C.green), ...all('write', t.hitWrite, C.blue)]);
}

// A panel without content is one line.
function empty(id, why) {
  const panel = $('s-' + id);
  panel.classList.toggle('empty', Boolean(why));
  panel.querySelector('.none').textContent = why;
  return Boolean(why);
}

function drawPlots() {
  if (!device || !shown().status) return;
  drawPrograms(); drawLatency(); drawHost(); drawCache();
}

// ---- tooltip

// At a place of the window: a title and lines with their colours.
function tip(x, y, title, rows) {
  const box = $('tip');
  box.replaceChildren(node('b', title), ...rows.map(([paint, text]) => {
    const row = node('div');
    if (paint) { const i = node('i'); i.style.setProperty('--hue', color(paint)); row.append(i); }
    row.append(text);
    return row;
  }));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = Math.max(4, Math.min(x + 14, innerWidth - width - 4)) + 'px';
  box.style.top = (y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18) + 'px';
}

const untip = () => { $('tip').hidden = true; };

