'use strict';
// Asks once a second and draws. `now` has the state of the device, `shown` the state that is drawn:
// the same object while the view is live, an older one while it is paused. A tick is one second of
// the daemon's history.

const EVERY_MS = 1000, KEPT = 600, EVENTS_KEPT = 5000, RECENT = 10, DOTS = 150, VICTIMS = 100, BARS = 48, WAY_MS = 2500;
// GC runs per second up to which each is shown, so long; above, their rate.
const SLOW = 3, SHOWN_MS = 3000, NARRATED_S = 600;
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
const paints = new Map();
const color = text => {
  if (!text.startsWith('var(')) return text;
  if (!paints.has(text)) paints.set(text, getComputedStyle(document.documentElement).getPropertyValue(text.slice(4, -1)).trim());
  return paints.get(text);
};
const calm = matchMedia('(prefers-reduced-motion: reduce)');

let device = null;
// A tick's `run` is the restart since which its daemon ran.
let now = { status: null, ticks: [], sample: 0, events: [], next: 0, missed: 0, map: null, generation: -1, marks: [],
  restarts: [] };
let held = null, cursor = -1, mode = 'used', op = 'write', clock = 'emulated', plotOf = 'requests', pointed = -1, chosen = -1;
let before = null, way = null, failures = 0, busy = false, polls = 0, row = 0, asked = 0, said = '', recovered = null;
const shown = () => held || now;
const mapValues = (object, of) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, of(value, key)]));

// ---- words and numbers

const short = (n, digits = 3) => n === null || n === undefined ? '-' : n === 0 ? '0' :
  Math.abs(n) >= 1e9 ? (n / 1e9).toPrecision(digits) + ' G' : Math.abs(n) >= 1e6 ? (n / 1e6).toPrecision(digits) + ' M' :
  Math.abs(n) >= 1e4 ? (n / 1e3).toPrecision(digits) + ' k' : n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toPrecision(digits);
const count = (n, what) => short(n) + ' ' + what + (n === 1 ? '' : 's');
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
  $(id).replaceChildren(...entries.map(([paint, text, look]) => {
    const span = node('span');
    if (paint) { const i = node('i', undefined, look || (paint === USES.bad ? 'bad' : '')); i.style.setProperty('--hue', color(paint)); span.append(i); }
    span.append(text);
    return span;
  }));
}

// Tells a screen reader; nothing that changes by itself every second.
const say = text => { $('say').textContent = text; };

