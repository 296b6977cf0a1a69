/** Numbers and times as people read them. */

const whole = new Intl.NumberFormat("en");

export function count(value: number, one: string, many = `${one}s`): string {
  return `${whole.format(value)} ${value === 1 ? one : many}`;
}

/** Bytes as `340 B`, `12 KB` or `1.4 MB` (thousands, as file managers show them). */
export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  if (size < 999_500) return `${Math.round(size / 1000)} KB`;
  return `${(size / 1e6).toFixed(size < 9_950_000 ? 1 : 0)} MB`;
}

/** Seconds as `0.5 s`, `12 s` or `2 min 5 s`. */
export function seconds(value: number): string {
  if (value < 10) return `${value.toFixed(1)} s`;
  const rounded = Math.round(value);
  return rounded < 60 ? `${rounded} s` : `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
}

/** A calendar date (`2024-01-31`, in no zone) in words; the text itself where it is none. */
export function day(date: string): string {
  const [, year, month, dayOfMonth] = /^(\d{4})-(\d\d)-(\d\d)/.exec(date) ?? [];
  if (!year) return date;
  const noon = new Date(Number(year), Number(month) - 1, Number(dayOfMonth), 12);
  return noon.toLocaleDateString("en", { year: "numeric", month: "short", day: "numeric" });
}

/** A moment in the reader's zone: the time of today, else the date; the text itself where it is none. */
export function when(stamp: string): string {
  const time = new Date(stamp);
  if (!stamp || Number.isNaN(time.getTime())) return stamp;
  const today = new Date().toDateString() === time.toDateString();
  const sameYear = new Date().getFullYear() === time.getFullYear();
  return today
    ? time.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit" })
    : time.toLocaleDateString("en", { day: "numeric", month: "short", ...(sameYear ? {} : { year: "numeric" }) });
}
