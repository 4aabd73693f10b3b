// ---- the map: a block is a vessel, its valid pages are the fill

const TALL = 1.45, WIDEST = 72;
let grid = null;

function ramp(k) {
  const at = Math.max(0, Math.min(1, k)) * (RAMP.length - 1), i = Math.min(Math.floor(at), RAMP.length - 2), f = at - i;
  const [a, b] = [RAMP[i], RAMP[i + 1]].map(text => parseInt(text.slice(1), 16));
  const mix = shift => Math.round(((a >> shift) & 255) * (1 - f) + ((b >> shift) & 255) * f);
  return 'rgb(' + mix(16) + ',' + mix(8) + ',' + mix(0) + ')';
}

// Width and height of a vessel so that all fit.
function vessels(count, width, height) {
  let w = Math.min(WIDEST, Math.max(2, Math.floor(Math.sqrt(width * height / count / TALL))));
  while (w > 2 && Math.ceil(count / Math.floor(width / w)) * Math.max(2, Math.floor(w * TALL)) > height) w--;
  const columns = Math.max(1, Math.floor(width / w)), rows = Math.ceil(count / columns);
  const h = Math.max(2, Math.min(Math.floor(height / rows), Math.floor(w * 1.9)));
  return { w: Math.min(WIDEST, Math.floor(width / columns)), h, columns, count };
}

const hatches = new Map();
// Stripes of a colour, for pages that are invalid.
function hatch(g, hue) {
  const scale = window.devicePixelRatio || 1, key = hue + scale;
  if (!hatches.has(key)) {
    const tile = document.createElement('canvas'), size = tile.width = tile.height = Math.round(6 * scale), t = tile.getContext('2d');
    t.fillStyle = t.strokeStyle = hue;
    t.globalAlpha = .22;
    t.fillRect(0, 0, size, size);
    t.globalAlpha = .9;
    t.lineWidth = 1.3 * scale;
    t.beginPath();
    for (const shift of [-size, 0, size]) { t.moveTo(shift - 1, size + 1); t.lineTo(shift + size + 1, -1); }
    t.stroke();
    const pattern = g.createPattern(tile, 'repeat');
    pattern.setTransform(new DOMMatrix().scale(1 / scale));
    hatches.set(key, pattern);
  }
  return hatches.get(key);
}

// Its size without the space between vessels.
const inner = ({ w, h }) => w > 16 ? [w - 4, h - 5] : w > 6 ? [w - 2, h - 2] : w > 3 ? [w - 1, h - 1] : [w, h];

function vessel(g, size, x, y, hue, valid, written) {
  const [wide, high] = inner(size);
  g.fillStyle = color('var(--free)');
  g.fillRect(x, y, wide, high);
  if (high < 6 || wide < 4) {
    g.globalAlpha = written ? .25 + .75 * valid : 0;
    g.fillStyle = hue;
    g.fillRect(x, y, wide, high);
    g.globalAlpha = 1;
    return;
  }
  const [full, used] = [valid, Math.max(valid, written)].map(share => share ? Math.max(1, Math.round(share * high)) : 0);
  if (used > full) {
    if (wide >= 9) g.fillStyle = hatch(g, hue);
    else { g.fillStyle = hue; g.globalAlpha = .35; }
    g.fillRect(x, y + high - used, wide, used - full);
    g.globalAlpha = 1;
  }
  g.fillStyle = hue;
  g.fillRect(x, y + high - full, wide, full);
  if (wide < 12) return;
  g.strokeStyle = used ? hue : color('var(--line)');
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(x + .5, y); g.lineTo(x + .5, y + high - .5); g.lineTo(x + wide - .5, y + high - .5); g.lineTo(x + wide - .5, y);
  g.stroke();
}

function drawMap() {
  const { map } = shown(), area = surface('map'), { g, width, height } = area;
  grid = null;
  if (!map) { legend('map-legend', [[null, 'waiting for the first map of the blocks']]); return; }
  const count = map.used.length;
  grid = vessels(count, width, height);
  const { w, h, columns } = grid, gap = w > 4 ? 1 : 0, pages = device.pages_per_block;
  const hues = device.uses.map(use => color(USES[use] || C.pale)), [free, bad] = ['free', 'bad'].map(use => device.uses.indexOf(use));
  const top = mode === 'valid' || mode === 'used' ? pages : Math.max(1, ...map[mode]), log = mode === 'age';
  for (let i = 0; i < count; i++) {
    const used = map.used[i], x = i % columns * w, y = Math.floor(i / columns) * h;
    if (mode === 'used' && used !== bad) vessel(g, grid, x, y, used === free ? color('var(--soft)') : hues[used], map.valid[i] / pages, map.written[i] / pages);
    else {
      const k = log ? Math.log1p(map.age[i]) / Math.log1p(top) : map[mode][i] / top;
      g.fillStyle = used === bad || (mode !== 'erases' && used === free) ? hues[used] : ramp(k);
      const [wide, high] = mode === 'used' ? inner(grid) : [w - gap, h - gap];
      g.fillRect(x, y, wide, high);
      if (used === bad && w > 6) { g.strokeStyle = '#fff'; g.lineWidth = 1; cross(g, x + 2, y + (high - wide) / 2 + 2, wide - 4); }
    }
  }
  const box = (i, paint, wide, dash) => {
    if (i < 0 || i >= count) return;
    g.strokeStyle = color(paint); g.lineWidth = wide; g.setLineDash(dash || []);
    g.strokeRect(i % columns * w - 1, Math.floor(i / columns) * h - 1, w, h);
    g.setLineDash([]);
  };
  if (!held) for (const [block, what] of now.marks) corner(g, cellOf(map, block), what);
  // Many outlines a second would be noise: then the newest victim alone, and the rate in words.
  const { newest, blocks } = victims();
  if (isSlow()) for (const block of blocks) box(cellOf(map, block), C.red, 2);
  if (newest) { const cell = cellOf(map, newest[2]); box(cell, 'var(--panel)', 6); box(cell, C.red, 3); }
  const event = held && shown().events[cursor];
  if (event && event[2] !== null && event !== newest) box(cellOf(map, event[2]), 'var(--ink)', 2);
  if (way && way.told >= 0) for (const cell of way.stages[way.told][2]) box(cell, LINE, 4);
  drawFile(map, box);
  if (zoom) box(cellOf(map, zoom.block), LINE, 3);
  const i = pointed >= 0 ? pointed : chosen;
  box(i, 'var(--ink)', 2);
  mapLegend(map, top);
  const { ticks } = shown(), tick = ticks[ticks.length - 1];
  $('moves-rate').textContent = tick && tick.gc ? 'GC moves ' + short(tick.copied) + ' pages/s, ' + short(tick.gc) + ' blocks/s' : '';
  if (i >= 0 && i < count) $('map-facts').textContent = facts(map, i);
  else $('map-facts').replaceChildren(...(event ? tell(event) : newest ? victimFacts(newest) : ['Point at a block, or move to it with the arrow keys; Enter opens it.']));
}

function cross(g, x, y, size) {
  g.beginPath();
  g.moveTo(x, y); g.lineTo(x + size, y + size);
  g.moveTo(x + size, y); g.lineTo(x, y + size);
  g.stroke();
}

// What the recovery did to a block: a corner of it in a colour.
const MARKS = { torn: [USES.bad, 'torn: has unreadable pages'], rewritten: [C.green, 'rewritten by the recovery'],
  dropped: ['var(--ink)', 'dropped: has pages that the recovery does not use'] };
function corner(g, i, what) {
  const { w, h, columns } = grid, x = i % columns * w, y = Math.floor(i / columns) * h, size = Math.max(4, Math.min(16, w * .45));
  g.fillStyle = color((MARKS[what] || MARKS.dropped)[0]);
  g.strokeStyle = color('var(--panel)');
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(x, y); g.lineTo(x + size, y); g.lineTo(x, y + size); g.closePath();
  g.fill(); g.stroke();
}

// GC events of the view, the newest last, and the blocks of those that came just now.
function victims() {
  const { events } = shown(), gc = device.events.indexOf('gc');
  const found = events.slice(0, held ? cursor + 1 : undefined).filter(e => e[1] === gc && e[2] !== null).slice(-VICTIMS);
  return { found, newest: found[found.length - 1], blocks: held ? [] : found.filter(e => asked - e.came < SHOWN_MS).map(e => e[2]) };
}

const victimFacts = ([, , block, pages]) => [node('b', 'Victim: block ' + block), ' had ' + pages + ' of ' + device.pages_per_block
  + ' pages valid. GC frees the block: it copies these, then the block can be erased.'];

function mapLegend(map, top) {
  const extra = [];
  if (mode === 'used') extra.push(['var(--soft)', 'filled: valid pages, in the colour of their use'], ['var(--soft)', 'invalid: overwritten or trimmed', 'hatched'], [USES.free, 'free']);
  if (victims().newest) extra.push([C.red, isSlow() ? 'victims of GC' : 'newest victim of GC', 'frame']);
  for (const what of new Set(now.marks.map(mark => mark[1]))) if (MARKS[what]) extra.push([...MARKS[what], 'corner']);
  extra.push([null, map.perCell > 1 ? 'a cell is ' + map.perCell + ' blocks' : 'a cell is a block']);
  const uses = device.uses.map((use, i) => [USES[use] || C.pale, use + ' ' + short(map.counts[i]), '', use]).filter((_, i) => map.counts[i]);
  if (mode === 'used') { legend('map-uses', uses); legend('map-legend', extra); return; }
  const words = { valid: ['0', top + ' valid pages of a block'], erases: ['0', short(top) + ' erases (rated ' + device.endurance + ')'],
    age: ['just opened', short(top) + ' blocks opened since (log)'] }[mode];
  const i = node('i', undefined, 'ramp');
  i.style.background = 'linear-gradient(to right, ' + RAMP.join(',') + ')';
  const bar = node('span');
  bar.append(words[0] + ' ', i, words[1]);
  legend('map-uses', uses.filter(e => e[3] === 'bad' || (e[3] === 'free' && mode !== 'erases')));
  legend('map-legend', extra);
  $('map-legend').prepend(bar);
}

// The cell of a block. Each shard begins with a new cell.
function cellOf(map, block) {
  const cells = map.used.length / device.shards, blocks = map.blocks / device.shards, shard = Math.floor(block / blocks);
  return shard * cells + Math.floor(block % blocks / map.perCell);
}

// The first and the last block of a cell. Each shard has as many cells; the last of each may have
// fewer blocks.
function blocksOf(map, i) {
  const cells = map.used.length / device.shards, blocks = map.blocks / device.shards, shard = Math.floor(i / cells);
  const first = shard * blocks + (i % cells) * map.perCell;
  return [first, Math.min(first + map.perCell, (shard + 1) * blocks) - 1, shard];
}

function facts(map, i) {
  const [first, last, shard] = blocksOf(map, i), mean = first < last ? 'on average ' : '', use = device.uses[map.used[i]];
  const chip = device.shards > 1 ? 'Shard ' + shard + ': ' : '';
  const name = first < last ? 'Blocks ' + first + ' to ' + last + ': mostly ' + use : 'Block ' + first + ': ' + use;
  const age = map.age[i] ? ', ' + mean + map.age[i] + ' blocks opened since' : '';
  const invalid = map.written[i] - map.valid[i];
  return chip + name + ', ' + mean + map.valid[i] + ' of ' + device.pages_per_block + ' pages valid' + (invalid > 0 ? ', ' + invalid + ' invalid' : '') + ', '
    + mean + map.erases[i] + ' erases of ' + device.endurance + ' rated' + age + (mark(map, i) ? '; ' + mark(map, i) : '');
}

const mark = (map, i) => [...new Set(now.marks.filter(([block]) => cellOf(map, block) === i).map(([, what]) => (MARKS[what] || [0, what])[1]))].join(', ');

// ---- copies on their way from a victim to the open block

const FLIGHT_MS = 800, DELAY_MS = 22, FLYING = 24, LABEL_MS = 1600, APART_MS = 200, MOVES = 5;
let moves = [], flying = 0;

function animate(events) {
  const { map } = shown();
  if (!map || !grid || document.hidden) return;
  const gc = ['gc', 'wear_move', 'refresh', 'fold'].map(kind => device.events.indexOf(kind));
  for (const e of events) {
    if (!gc.includes(e[1]) || e[2] === null || e.to === null || e.to === undefined || !e[3]) continue;
    moves.push({ from: cellOf(map, e[2]), to: cellOf(map, e.to), pages: e[3], began: performance.now() + APART_MS * (moves.length % MOVES) });
  }
  moves = moves.slice(-MOVES);
  if (moves.length && !flying) flying = requestAnimationFrame(fly);
}

function fly(at) {
  const { g } = surface('moves');
  moves = moves.filter(move => at - move.began < (calm.matches ? 3 * LABEL_MS : LABEL_MS));
  flying = 0;
  if (!grid || !moves.length) return;
  const { w, h, columns } = grid, middle = i => [(i % columns + .5) * w, (Math.floor(i / columns) + .5) * h];
  for (const { from, to, pages, began } of moves.filter(move => calm.matches || at >= move.began)) {
    const [[x0, y0], [x1, y1]] = [middle(from), middle(to)], bend = [(x0 + x1) / 2, Math.min(y0, y1) - 30], size = Math.max(2, Math.min(5, w / 6));
    const on = k => [(1 - k) ** 2 * x0 + 2 * k * (1 - k) * bend[0] + k * k * x1, (1 - k) ** 2 * y0 + 2 * k * (1 - k) * bend[1] + k * k * y1];
    g.strokeStyle = g.fillStyle = C.red;
    g.lineWidth = 1.5;
    g.setLineDash([3, 3]);
    g.beginPath(); g.moveTo(x0, y0); g.quadraticCurveTo(...bend, x1, y1); g.stroke();
    g.setLineDash([]);
    const dots = calm.matches ? [1] : Array.from({ length: Math.min(pages, FLYING) }, (_, i) => (at - began - i * DELAY_MS) / FLIGHT_MS).filter(k => k >= 0 && k <= 1);
    for (const k of dots) {
      const [x, y] = on(k);
      g.fillStyle = color('var(--panel)');
      g.beginPath(); g.arc(x, y, size + 1.5, 0, 7); g.fill();
      g.fillStyle = C.red;
      g.beginPath(); g.arc(x, y, size, 0, 7); g.fill();
    }
    const [x, y] = on(.12), text = count(pages, 'page') + ' copied', wide = g.measureText(text).width;
    g.fillStyle = color('var(--panel)');
    const left = Math.max(0, Math.min(x - wide / 2, $('moves').clientWidth - wide - 8)), top = Math.max(12, y);
    g.fillRect(left, top - 12, wide + 8, 16);
    g.fillStyle = color('var(--ink)');
    g.textAlign = 'left';
    g.fillText(text, left + 4, top);
  }
  // Nothing moves for those who want it so: one picture, and another when it goes.
  if (calm.matches) flying = setTimeout(() => fly(performance.now()), LABEL_MS);
  else flying = requestAnimationFrame(fly);
}

