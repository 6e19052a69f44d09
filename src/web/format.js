// format.js - numbers for people: binary units as in the plan, short times.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const sign = value < 0 ? "−" : "";
  let n = Math.abs(value);
  let unit = 0;
  while (n >= 1024 && unit < UNITS.length - 1) {
    n /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || n >= 100 ? 0 : n >= 10 ? 1 : 2;
  return `${sign}${n.toFixed(digits)} ${UNITS[unit]}`;
}

export function count(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? count(value) : value >= 10 ? value.toFixed(0) : value.toFixed(1);
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 60) return `${Math.round(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min`;
  if (value < 48 * 3600) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} days`;
}

export function plural(n, one, many) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function clock(unix, withSeconds) {
  const d = new Date(unix * 1000);
  const two = (n) => String(n).padStart(2, "0");
  return `${two(d.getHours())}:${two(d.getMinutes())}${withSeconds ? `:${two(d.getSeconds())}` : ""}`;
}

export function day(unix) {
  const d = new Date(unix * 1000);
  return `${d.getDate()}.${d.getMonth() + 1}.`;
}
