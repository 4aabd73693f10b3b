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
  if (held.events[cursor]) { moves = []; animate([held.events[cursor]]); }
  say($('event-facts').textContent);
}

$('pause').addEventListener('click', () => hold(!held));
$('back').addEventListener('click', () => step(-1));
$('next').addEventListener('click', () => step(1));
$('unzoom').addEventListener('click', () => reset());
$('reload').addEventListener('click', () => location.reload());
$('recovery-close').addEventListener('click', () => { recovered.closed = true; draw(); });
const isPlain = e => !e.ctrlKey && !e.altKey && !e.metaKey;
addEventListener('keydown', e => {
  if (!isPlain(e) || e.target.tagName === 'TEXTAREA') return;
  const pressed = { ' ': () => hold(!held), ArrowLeft: () => step(-1), ArrowRight: () => step(1), l: () => hold(false), Escape: () => { closeBlock(); reset(); } }[e.key];
  if (pressed && !(e.key === ' ' && ['BUTTON', 'A', 'SUMMARY'].includes(e.target.tagName))) { e.preventDefault(); pressed(); }
});
function tabs(id, choose) {
  $(id).addEventListener('click', e => {
    if (e.target.tagName !== 'BUTTON') return;
    choose(e.target.dataset);
    for (const button of $(id).children) if (Object.keys(button.dataset)[0] === Object.keys(e.target.dataset)[0]) button.setAttribute('aria-pressed', button === e.target);
    draw();
  });
}
tabs('modes', data => { mode = data.mode; });
tabs('ops', data => { op = data.op || op; clock = data.clock || clock; });
tabs('plots', data => { plotOf = data.plot; });

// One drawing for many moves of the pointer.
let waits = false;
function later(draw) {
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => { waits = false; draw(); });
}

// Keys that a canvas takes for itself do not reach those of the whole page.
function keys(id, of) {
  $(id).addEventListener('keydown', e => {
    if (!isPlain(e)) return;
    const pressed = of(e.key);
    if (!pressed) return;
    e.preventDefault();
    e.stopPropagation();
    pressed();
  });
}

// ---- the map and the pages of a block

const cellAt = ({ offsetX: x, offsetY: y }) => {
  if (!grid) return -1;
  const column = Math.floor(x / grid.w), i = Math.floor(y / grid.h) * grid.columns + column;
  return column >= 0 && column < grid.columns && i >= 0 && i < grid.count ? i : -1;
};
$('map').addEventListener('pointermove', e => {
  pointed = cellAt(e);
  later(drawMap);
  if (pointed >= 0 && shown().map) tip(e.clientX, e.clientY, facts(shown().map, pointed), [[null, 'Click: its pages']]); else untip();
});
$('map').addEventListener('pointerleave', () => { pointed = -1; untip(); if (device) drawMap(); });
$('map').addEventListener('click', e => { const i = cellAt(e); if (i >= 0) openCell(i); });
const openCell = i => openBlock(blocksOf(shown().map, i)[0]);
keys('map', key => {
  if (!grid) return null;
  if (key === 'Enter') return chosen >= 0 ? () => openCell(chosen) : null;
  if (key === 'Escape') return zoom ? closeBlock : chosen >= 0 ? () => choose(-1) : null;
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns, Home: -Infinity, End: Infinity }[key];
  if (by === undefined) return null;
  return () => {
    const to = chosen < 0 ? (by === Infinity ? grid.count - 1 : 0) : chosen + by;
    if (chosen < 0 || Math.abs(by) === Infinity || (to >= 0 && to < grid.count)) choose(Math.max(0, Math.min(grid.count - 1, to)));
  };
});
$('map').addEventListener('blur', () => choose(-1));
function choose(i) {
  chosen = i;
  pointed = -1;
  if (!shown().map) return;
  drawMap();
  if (i >= 0) say(facts(shown().map, i));
}

$('zoom-close').addEventListener('click', closeBlock);
$('zoom-back').addEventListener('click', () => openBlock(zoom.block - 1));
$('zoom-next').addEventListener('click', () => openBlock(zoom.block + 1));
function choosePage(i) {
  if (!zoom || !zoom.pages) return;
  zoom.at = Math.max(-1, Math.min(zoom.pages.length - 1, i));
  drawZoom();
}
$('pages').addEventListener('pointermove', ({ offsetX: x, offsetY: y }) => {
  if (pageGrid) choosePage(Math.floor(y / pageGrid.size) * pageGrid.columns + Math.min(pageGrid.columns - 1, Math.floor(x / pageGrid.size)));
});
keys('pages', key => {
  if (!pageGrid) return null;
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -pageGrid.columns, ArrowDown: pageGrid.columns, Home: -Infinity, End: Infinity }[key];
  if (key === 'Escape') return closeBlock;
  return by === undefined ? null : () => { choosePage(Math.max(0, zoom.at < 0 && by !== Infinity ? 0 : zoom.at + by)); say($('page-facts').textContent); };
});
$('file').addEventListener('submit', e => { e.preventDefault(); showFile($('extents').value); });
$('extents').addEventListener('keydown', e => {
  if (e.key === 'Escape') { $('extents').value = ''; showFile(''); }
  if (e.key === 'Enter' && !e.shiftKey) { e.preventDefault(); showFile($('extents').value); }
});

// ---- crosshair and zoom of the plots over time

function reset() {
  zoomed = at = drag = null;
  untip();
  draw();
}

function zoomTo(from, to) {
  const { ticks } = shown();
  zoomed = from <= ticks[0].at && to >= newestAt() ? null : [Math.max(ticks[0].at - 1, from), Math.min(newestAt(), to)];
  draw();
}

function tellAt(x, y, id) {
  const tick = tickAt();
  if (tick) tip(x, y, AGO(newestAt() - tick.at) + (shown().restarts.some(([began]) => began > tick.at) ? ', before a restart' : ''), plots[id].rows(tick));
}

for (const id of ['programs', 'latency', 'host', 'cache']) {
  const canvas = $(id);
  canvas.addEventListener('pointerdown', e => {
    if (e.button || !plots[id]) return;
    const t = plots[id].time(e.offsetX);
    drag = { from: t, to: t, x: e.offsetX, id };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener('pointermove', e => {
    if (!plots[id]) return;
    at = plots[id].time(e.offsetX);
    if (drag) drag.to = at;
    later(drawPlots);
    tellAt(e.clientX, e.clientY, id);
  });
  canvas.addEventListener('pointerup', e => {
    if (drag && Math.abs(e.offsetX - drag.x) > 6) {
      const [from, to] = [drag.from, drag.to].sort((a, b) => a - b), middle = (from + to) / 2, half = Math.max(2.5, (to - from) / 2);
      drag = null;
      zoomTo(middle - half, middle + half);
    }
    drag = null;
    draw();
  });
  canvas.addEventListener('pointercancel', () => { drag = null; });
  canvas.addEventListener('pointerleave', () => { at = null; untip(); later(drawPlots); });
  canvas.addEventListener('dblclick', reset);
  canvas.addEventListener('blur', () => { at = null; untip(); if (device) drawPlots(); });
  keys(id, key => {
    if (!plots[id] || !shown().ticks.length) return null;
    const [from, to] = span(), move = by => () => {
      const before = tickAt(), { ticks } = shown(), i = Math.max(0, Math.min(ticks.length - 1, ticks.indexOf(before) + (at === null ? 0 : by)));
      at = ticks[i].at;
      if (zoomed && (at < from || at > to)) zoomTo(from + (at < from ? at - from : at - to), to + (at < from ? at - from : at - to));
      drawPlots();
      const box = canvas.getBoundingClientRect();
      tellAt(box.left + plots[id].scale.x(at), box.top + 20, id);
      say($('tip').textContent);
    };
    const scale = by => () => { const middle = at === null ? (from + to) / 2 : at; zoomTo(middle - (middle - from) * by, middle + (to - middle) * by); };
    return { ArrowLeft: move(-1), ArrowRight: move(1), '+': scale(.5), '-': scale(2), Escape: zoomed || at !== null ? reset : null }[key];
  });
}

$('events').addEventListener('click', e => {
  const nearest = dots.reduce((best, dot) => !best || Math.abs(dot[0] - e.offsetX) < Math.abs(best[0] - e.offsetX) ? dot : best, null);
  if (!nearest) return;
  hold(true);
  cursor = nearest[1];
  draw();
  if (held.events[cursor]) { moves = []; animate([held.events[cursor]]); }
});
addEventListener('resize', () => draw());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { paints.clear(); hatches.clear(); draw(); });
poll();
setInterval(poll, EVERY_MS);
