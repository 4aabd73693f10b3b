// ---- panels of figures and words

// What there is to see, in four figures.
function drawStory() {
  const { status, ticks } = shown(), tick = ticks[ticks.length - 1] || {}, { found } = victims(), { costs } = tick;
  const tell = (id, figure, text) => { $(id).querySelector('b').textContent = figure; $(id).querySelector('p').textContent = text; };
  const ratio = tick.ratio;
  tell('story-speed', ratio === null || ratio === undefined ? '-' : ratio >= 1 ? digits3(ratio) + ' \u00d7' : Math.round(100 * ratio) + ' %', takes(ratio));
  const parts = costs ? Object.entries(costs).filter(([c, n]) => c !== 'host' && n >= .005).sort((a, b) => b[1] - a[1]).map(([c, n]) => fixed(n) + ' ' + wordsOf(c)) : [];
  tell('story-cost', fixed(tick.waf), costs ? 'write amplification: flash programs per page that the host writes. ' + fixed(costs.host) + ' its data' + (parts.length ? ', ' + parts.slice(0, 3).join(', ') : ' and nothing else') + '.'
    : 'write amplification: flash programs per page that the host writes, in the last 10 s.');
  const share = found.length ? found.reduce((sum, e) => sum + e[3], 0) / found.length / device.pages_per_block : null;
  tell('story-gc', share === null ? '-' : share > 0 && share < .01 ? '< 1 %' : Math.round(100 * share) + ' %', share === null ? 'Garbage collection (GC) has not run while this page was open: free blocks are left.'
    : 'of a victim of garbage collection (GC) was still valid. No page is written twice before its block is erased, so GC copies them first' + (share > .005 && share < .995 ? ': ' + fixed(share / (1 - share)) + ' copies for each page freed.' : '.'));
  const { discard } = status.host;
  tell('story-trim', bytes(discard.bytes), discard.completed ? 'trimmed by the host since the start: invalid, so GC does not copy it.' : 'trimmed by the host: without TRIM, flash takes deleted data for valid, and GC copies it.');
}

function drawValid() {
  const { map } = shown(), pages = device.pages_per_block;
  const blank = ['free', 'released', 'bad'].map(use => device.uses.indexOf(use)), valid = map ? [...map.valid].filter((_, i) => !blank.includes(map.used[i])) : [];
  if (empty('valid', valid.length ? '' : 'no blocks with data')) return;
  const area = surface('valid'), { g } = area, each = Math.ceil((pages + 1) / BARS), bars = Array(Math.ceil((pages + 1) / each)).fill(0);
  for (const n of valid) bars[Math.min(Math.floor(n / each), bars.length - 1)] += map.perCell;
  const scale = axes(area, { high: niceCount(Math.max(...bars)), ends: ['0', pages + ' valid pages'] }), wide = (scale.right - scale.left) / bars.length;
  const x = n => scale.left + (n + .5) / each * wide, { found, newest } = victims(), mean = of => of.reduce((a, b) => a + b, 0) / of.length;
  g.fillStyle = color(LINE);
  bars.forEach((n, i) => { if (n) g.fillRect(scale.left + i * wide, Math.min(scale.y(n), scale.bottom - 1), Math.max(1, wide - 1), Math.max(1, scale.bottom - scale.y(n))); });
  const upright = (n, paint, dash) => line(g, [[x(n), scale.top], [x(n), scale.bottom]], paint, 2, dash);
  upright(mean(valid), 'var(--ink)');
  const entries = [[null, map.perCell > 1 ? 'a cell of ' + map.perCell + ' blocks counts with its mean' : short(valid.length) + ' blocks with data'],
    ['var(--ink)', 'mean ' + mean(valid).toFixed(1) + ' of ' + pages + ' valid pages']];
  if (newest) {
    const last = mean(found.map(e => e[3]));
    upright(last, C.red, [4, 3]);
    g.fillStyle = C.red;
    g.beginPath();
    g.moveTo(x(newest[3]), scale.bottom - 9); g.lineTo(x(newest[3]) - 6, scale.bottom + 3); g.lineTo(x(newest[3]) + 6, scale.bottom + 3);
    g.fill();
    entries.push([C.red, 'victim: block ' + newest[2] + ' with ' + newest[3] + '; mean of the last ' + found.length + ' victims (dashed) ' + last.toFixed(1)]);
  }
  legend('valid-legend', entries);
}

let dots = [];

function drawEvents() {
  const { events } = shown();
  if (empty('events', events.length ? '' : 'no GC run, merge or conversion yet')) return;
  const area = surface('events'), { g } = area, newest = events[events.length - 1];
  const end = held && events[cursor] ? Math.min(events[cursor][4] + 2e8, newest[4]) : newest[4];
  const within = seconds => events.map((e, i) => [e, i]).filter(([e]) => e[4] <= end && e[4] > end - seconds * 1e9);
  const seconds = [60, 20, 5, 2].find(s => within(s).length <= DOTS) || 1, near = within(seconds);
  const scale = axes(area, { low: 1e5, high: 1e9, log: true, label: time, ends: ['-' + seconds + ' s of emulated time', held && cursor >= 0 ? '' : 'newest'] });
  dots = [];
  const counts = {};
  for (const [e, i] of near) {
    const kind = device.events[e[1]], x = scale.right - (end - e[4]) / 1e9 / seconds * (scale.right - scale.left), y = Math.min(scale.y(Math.max(e[5], 1e5)), scale.bottom - 3);
    counts[kind] = (counts[kind] || 0) + 1;
    g.fillStyle = color((KINDS[kind] || [C.pale])[0]);
    g.globalAlpha = .75;
    g.fillRect(x - 1.5, y, 3, Math.max(2, Math.min(scale.bottom - y, 1e3)));
    g.globalAlpha = 1;
    if (held && i === cursor) {
      g.strokeStyle = color('var(--ink)'); g.lineWidth = 2;
      g.strokeRect(x - 4, y - 3, 8, scale.bottom - y + 3);
    }
    dots.push([x, i]);
  }
  const entries = Object.entries(counts).map(([kind, n]) => [(KINDS[kind] || [C.pale])[0], (KINDS[kind] || [0, kind])[1] + ' ' + n]);
  if (shown().missed) entries.push([null, short(shown().missed) + ' events dropped: too many per second']);
  legend('events-legend', entries);
  const which = held ? events[cursor] : newest;
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
    ['copied by GC', short(newest.copied || 0) + ' pages/s in ' + short(newest.gc || 0) + ' runs/s'],
    ['requests in flight', Object.values(status.host).reduce((sum, o) => sum + o.in_flight, 0)],
    ['latency', device.latency === 'emulate' ? 'as on the flash' : 'not emulated'],
  ]);
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
  bars('ram', [['total', bytes(sum) + ' (by the paper\'s count ' + bytes(status.ram.reduce((total, part) => total + part.paper_bytes, 0)) + ')', []],
    ...status.ram.map(part => part.allocated_bytes > 0 && [part.part, bytes(part.allocated_bytes), [[part.allocated_bytes, C.blue, part.entries + ' entries']]])], () => largest);
  const faults = Object.entries(status.faults_injected).filter(([, n]) => n).map(([kind, n]) => kind.replace('_', ' ') + ' ' + n).join(', ');
  list('wear', [['erases, min to max', wear.min + ' to ' + wear.max], ['mean, deviation', wear.mean.toFixed(1) + ', ' + wear.stddev.toFixed(1)],
    ['rated', wear.rated], ['endurance used', percent(wear.mean / wear.rated)], ['bad blocks', wear.bad_factory + ' from the factory, ' + wear.bad_grown + ' grown'],
    ['wear moves, refreshes', stats.wear_moves + ', ' + stats.refreshes], ['checkpoints', stats.checkpoints],
    ['last mount', stats.mount.clean ? 'clean shutdown' : 'scan of ' + short(stats.mount.pages_scanned) + ' pages'], ['faults injected', faults || 'none']]);
}

// ---- other schemes on the same requests

// A figure of a twin above that of the device over the same requests.
function pair(label, twin, live, show) {
  const cell = node('td');
  cell.dataset.label = label;
  cell.append(node('b', show(twin)), node('small', 'device ' + show(live)));
  if (typeof twin === 'number' && typeof live === 'number' && Math.abs(twin - live) > .02 * Math.max(twin, live)) cell.className = twin < live ? 'less' : 'more';
  return cell;
}

function drawShadows() {
  const all = shown().status.shadows || [];
  $('s-shadows').hidden = !all.length;
  $('shadows').tBodies[0].replaceChildren(...all.map(s => {
    const row = node('tr'), name = node('th', s.name);
    name.scope = 'row';
    name.append(node('small', [s.scheme !== s.name && s.scheme, s.profile, digits3(s.op_percent) + ' % spare flash', s.parameters].filter(Boolean).join(', ')));
    if (!s.exact) name.append(node('small', 'inexact: ' + count(s.dropped, 'request') + ' dropped', 'warn'));
    if (s.behind) name.append(node('small', count(s.behind, 'request') + ' behind'));
    if (s.failure) {
      const why = node('td', 'failed: ' + s.failure, 'bad');
      why.colSpan = 5;
      row.append(name, why);
      return row;
    }
    row.append(name, pair('write amplification', s.write_amplification, s.live.write_amplification, fixed), pair('erases', s.erases, s.live.erases, short),
      pair('RAM of the tables', s.ram_bytes, s.live.ram_bytes, bytes), pair('write p99', s.write_p99_ns, s.live.write_p99_ns, time), pair('read p99', s.read_p99_ns, s.live.read_p99_ns, time));
    return row;
  }));
}

// ---- a power cut, and what came after it

// The stages so far, the newest one outlined here and on the map.
function drawWay() {
  $('s-way').hidden = !way;
  if (!way) return;
  const active = Math.min(way.stages.length - 1, Math.floor((performance.now() - way.began) / WAY_MS));
  if (active === way.told) return;
  way.told = active;
  tellSteps('way', way.stages.slice(0, active + 1).map(([title, text]) => [title, text]), active);
  say(way.stages[active].slice(0, 2).join(': '));
}

function tellSteps(id, steps, active) {
  $(id).replaceChildren(...steps.map(([title, text], i) => {
    const item = node('li', undefined, i === active ? 'active' : '');
    item.append(node('b', title), text);
    return item;
  }));
}

// How this start found the data again: a step after the other, then the sum.
function drawRecovery() {
  const { recovery, uptime_seconds: uptime } = now.status, isOver = !recovery || uptime > NARRATED_S || (recovered && recovered.closed);
  $('s-recovery').hidden = isOver;
  if (isOver) return;
  recovered = recovered || { began: performance.now(), told: -1 };
  const steps = recovery.steps.map(({ step, nanoseconds, text }) => [step.replace(/_/g, ' ') + ', ' + time(nanoseconds), text]);
  steps.push(['Result', count(recovery.pages_scanned, 'page') + ' scanned, ' + short(recovery.pages_kept) + ' kept, ' + short(recovery.pages_dropped) + ' dropped; '
    + count(recovery.blocks_rewritten, 'block') + ' rewritten.']);
  const active = calm.matches ? steps.length - 1 : Math.min(steps.length - 1, Math.floor((performance.now() - recovered.began) / WAY_MS));
  if (active === recovered.told) return;
  recovered.told = active;
  $('recovery-title').textContent = recovery.cause === 'power cut' ? 'After the power cut' : 'After an unclean end';
  tellSteps('recovery', steps.slice(0, active + 1), active);
  say(steps[active].join(': '));
}

// What became of a daemon that does not answer, as far as its last state tells: a word, and words.
function gone() {
  const { status } = now, ago = Math.round((performance.now() - asked) / 1000);
  if (!status) return ['connecting', ''];
  const last = ' This is its state ' + ago + ' s ago.';
  if (isCut(status)) return ['power cut', 'The power was cut.' + last];
  if (status.state === 'stopping') return ['ended', 'ftld has ended in order.' + last];
  return ['killed or gone', 'ftld does not answer: it ended, was killed, or this machine cannot reach it.' + last];
}

const isCut = ({ state, failure }) => state === 'power cut' || /power cut/.test(failure || '');
const again = () => device && device.load ? 'ftld demo' : 'ftld start ' + now.status.name;

// The state is that of the device now, also while the view is paused.
function drawState() {
  const { status } = now, isGone = failures > 2 || !status, [word, story] = isGone ? gone() : isCut(status) ? ['power cut', 'The power was cut: requests fail until a restart.'] : [status.state, ''];
  const badge = $('state'), banner = $('banner');
  if (badge.textContent !== word) badge.textContent = word;
  badge.className = { serving: 'good', failed: 'bad', 'disk-full': 'bad', 'host-error': 'bad', 'killed or gone': 'bad', 'power cut': 'bad' }[word] || 'warn';
  document.body.classList.toggle('gone', isGone && Boolean(status));
  const why = story || (status && { failed: 'The device has failed: ' + status.failure + '. Restart ftld to mount the image again.',
    'disk-full': status.writes_failing + '.', 'host-error': status.writes_failing + '.',
    'read-only': 'The device refuses writes: ' + status.read_only_reason + '.',
    paused: status.paused && 'The device is paused, requests wait' + (status.paused.stepping ? '; a step is in progress' : '') + '. It resumes in ' + Math.ceil(status.paused.seconds_left) + ' s, or with: ftld resume',
    serving: status.host_behind && 'Since the start, ' + status.host_behind + '.',
    stopping: 'Stopping; device in use: ' + (status.waiting_for || []).join(', ') }[word]);
  banner.hidden = !why;
  banner.replaceChildren(why || '', ...(story && status ? [device && device.load && !isGone ? ' The demo starts again by itself.' : ' Go on with: ', ...(device && device.load && !isGone ? [] : [node('code', again())])] : []));
  if (word !== said) { said = word; say(banner.textContent || 'The device is ' + word + '.'); }
  banner.className = badge.className === 'bad' ? 'bad' : '';
  const ago = held && now.ticks.length ? now.ticks[now.ticks.length - 1].at - held.ticks[held.ticks.length - 1].at : 0;
  $('view').textContent = held ? 'view paused ' + Math.round(ago) + ' s ago' : 'live';
  $('view').className = held ? 'held' : '';
  $('pause').textContent = held ? 'Go live' : 'Pause view';
  $('back').disabled = $('next').disabled = !now.events.length;
  $('unzoom').hidden = !zoomed;
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
  drawStory(); drawWay(); drawRecovery(); drawMap(); drawZoom(); drawPlots(); drawShadows(); drawValid(); drawEvents(); drawTables();
}

