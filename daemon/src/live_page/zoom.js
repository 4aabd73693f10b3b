// ---- one block and its pages; the pages of a file

const STATES = { free: 'free', valid: 'valid', invalid: 'invalid', unreadable: 'unreadable' };
const NO_ANSWER = 'This ftld does not tell single pages.';
let zoom = null, file = null, pageGrid = null;

// An answer, or what there is in place of one.
async function tryAsk(path) {
  try {
    const answer = await fetch(path, { cache: 'no-store' });
    if (answer.ok) return [await answer.json(), ''];
    return [null, answer.status === 404 ? NO_ANSWER : (await answer.text()).trim() || 'ftld answers ' + answer.status];
  } catch (error) {
    return [null, 'ftld does not answer.'];
  }
}

async function openBlock(block) {
  if (!device || block < 0 || block >= device.blocks) return;
  zoom = { block, pages: null, why: 'asking', at: -1 };
  $('zoom').hidden = false;
  drawZoom();
  await loadBlock();
  if (zoom && zoom.block === block) say($('zoom-title').textContent);
}

async function loadBlock() {
  const { block } = zoom, [answer, why] = await tryAsk('/api/block?number=' + block);
  if (!zoom || zoom.block !== block) return;
  Object.assign(zoom, { pages: answer && answer.pages, why });
  drawZoom();
}

function closeBlock() {
  if (!zoom) return;
  zoom = null;
  $('zoom').hidden = true;
  draw();
  $('map').focus();
}

// While something is open, its newest state.
function refresh() {
  if (held) return;
  if (zoom) loadBlock();
  // A look may take a second of a busy device's time: 20 times as long passes before the next.
  if (file && Date.now() > file.next) loadFile();
}

function drawZoom() {
  if (!zoom) return;
  const { block, pages, why } = zoom, canvas = $('pages');
  canvas.hidden = !pages;
  pageGrid = null;
  if (!pages) { $('zoom-title').textContent = 'Block ' + block; $('page-facts').textContent = why; return; }
  const number = state => pages.filter(p => p.state === state).length, map = shown().map, use = map && map.perCell === 1 ? ' (' + device.uses[map.used[cellOf(map, block)]] + ')' : '';
  $('zoom-title').textContent = 'Block ' + block + use + ': ' + Object.keys(STATES).map(s => [number(s), s]).filter(([n]) => n).map(([n, s]) => n + ' ' + s).join(', ') + ' of ' + pages.length + ' pages';
  const width = canvas.parentElement.clientWidth - 2, size = Math.max(9, Math.min(26, Math.floor(Math.sqrt(width * 170 / pages.length))));
  const columns = Math.max(1, Math.floor(width / size));
  canvas.style.height = Math.ceil(pages.length / columns) * size + 2 + 'px';
  const { g } = surface('pages'), own = mine(block);
  pageGrid = { size, columns };
  pages.forEach(({ state, kind }, i) => {
    const x = i % columns * size + 1, y = Math.floor(i / columns) * size + 1, s = size - 2, hue = color(USES[kind] || CAUSES[kind] || C.pale);
    g.fillStyle = color('var(--free)');
    g.fillRect(x, y, s, s);
    if (state === 'valid') { g.fillStyle = hue; g.fillRect(x, y, s, s); }
    if (state === 'invalid') { g.fillStyle = hatch(g, hue); g.fillRect(x, y, s, s); }
    if (state === 'unreadable') { g.fillStyle = USES.bad; g.fillRect(x, y, s, s); g.strokeStyle = '#fff'; cross(g, x + 2, y + 2, s - 4); }
    if (own.has(i)) { g.strokeStyle = color('var(--ink)'); g.lineWidth = 2; g.setLineDash(own.get(i) ? [] : [2, 2]); g.strokeRect(x, y, s, s); g.setLineDash([]); }
    if (i === zoom.at) { g.strokeStyle = color(LINE); g.lineWidth = 3; g.strokeRect(x, y, s, s); }
  });
  $('page-facts').textContent = zoom.at >= 0 && pages[zoom.at] ? pageFacts(pages[zoom.at]) : 'Solid: valid. Striped: invalid. Point at a page for its content.';
}

function pageFacts({ page, state, kind, lpn, version }) {
  const content = state === 'free' ? '' : ', ' + (kind || 'unknown') + (lpn === null || lpn === undefined ? '' : ', logical page ' + lpn + ' (byte ' + lpn * device.page_bytes + ')')
    + (version === null || version === undefined ? '' : ', version ' + version);
  const own = zoom && mine(zoom.block).get(page);
  return 'Page ' + page + ': ' + state + content + (own === undefined ? '' : own ? '; of my file' : '; an old version of my file');
}

// Pages of my file in a block: page -> whether it is the newest version.
const mine = block => (file && file.blocks.get(block)) || new Map();

// Extents in bytes of what was pasted: OFFSET+LENGTH, or what `ftld where` prints, as JSON or as
// its table, whose second column is logical pages.
function extentsOf(text) {
  try { return JSON.parse(text).extents.map(({ offset, bytes }) => offset + '+' + bytes); } catch (error) { /* not JSON */ }
  const plain = [...text.matchAll(/(?:^|[\s,])(\d+)\s*\+\s*(\d+)(?=$|[\s,])/g)].map(([, offset, length]) => [offset, length]);
  if (plain.length) return plain.map(extent => extent.join('+'));
  const size = device.page_bytes, runs = [];
  for (const [, page] of text.matchAll(/^\s*\d+\s+(\d+)\s+(?:\d+|-)\s/gm)) {
    const last = runs[runs.length - 1];
    if (last && last[0] + last[1] === page * size) last[1] += size; else runs.push([page * size, size]);
  }
  return runs.map(extent => extent.join('+'));
}

function showFile(text) {
  const extents = extentsOf(text);
  file = null;
  if (!extents.length) { $('file-facts').textContent = text.trim() ? 'This text has no OFFSET+LENGTH: paste what `ftld where FILE` prints.' : ''; draw(); return; }
  // As many as fit into the request.
  let few = extents;
  while (few.join(',').length > 6000) few = few.slice(0, -1);
  file = { extents: few.join(','), cut: few.length < extents.length, blocks: new Map(), answer: null };
  loadFile(true);
}

async function loadFile(first) {
  const { extents } = file, began = Date.now();
  file.next = Infinity;
  const [answer, why] = await tryAsk('/api/where?extents=' + extents);
  if (!file || file.extents !== extents) return;
  file.next = Date.now() + Math.max(3000, 20 * (Date.now() - began));
  const blocks = new Map(), put = ([, block, page], newest) => blocks.set(block, (blocks.get(block) || new Map()).set(page, newest));
  let dead = 0, live = 0, none = 0;
  for (const page of answer ? answer.pages : []) {
    for (const copy of page.dead) { put(copy, false); dead++; }
    if (page.at) { put(page.at, true); live++; } else none++;
  }
  Object.assign(file, { blocks, answer });
  const within = newest => [...blocks].filter(([, pages]) => [...pages.values()].includes(newest)).map(([block]) => block).sort((a, b) => a - b);
  const told = newest => { const list = within(newest); return count(list.length, 'block') + (list.length && list.length <= 8 ? ' (' + list.join(', ') + ')' : ''); };
  $('file-facts').textContent = why || 'My file: ' + count(live, 'page') + ' in ' + told(true) + '; ' + short(dead) + (dead === 1 ? ' dead copy in ' : ' dead copies in ') + told(false) + (none ? '; ' + count(none, 'page') + ' never written or trimmed' : '')
    + (file.cut || answer.truncated ? '. The rest of it is not shown.' : '.');
  drawZoom();
  if (first) { say($('file-facts').textContent); draw(); }
}

// A block with the file's newest pages is framed, one with dead copies alone is dashed.
function drawFile(map, box) {
  if (!file) return;
  const cells = new Map();
  for (const [block, pages] of file.blocks) cells.set(cellOf(map, block), cells.get(cellOf(map, block)) || [...pages.values()].includes(true));
  for (const [i, newest] of cells) { box(i, 'var(--panel)', 5); box(i, 'var(--ink)', 3, newest ? [] : [3, 3]); }
}

