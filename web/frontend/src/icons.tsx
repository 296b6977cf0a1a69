/** The few icons of the page, drawn with strokes in the colour of the text around them. */

const PATHS = {
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM16 16l4.5 4.5",
  page: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  files: "M3 6.5V19a1 1 0 0 0 1 1h16a1 1 0 0 0 1-1V8.5a1 1 0 0 0-1-1h-8l-2-2.5H4a1 1 0 0 0-1 1Z",
  lens: "M4 6h16M4 11h9M4 16h6M16 12.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7ZM18.5 18.5 21 21",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  close: "M6 6l12 12M18 6 6 18",
  upload: "M12 16V4M7 9l5-5 5 5M4 16v4h16v-4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2.5M12 19.5V22M2 12h2.5M19.5 12H22M5 5l1.7 1.7M17.3 17.3 19 19M5 19l1.7-1.7M17.3 6.7 19 5",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z",
  plus: "M12 5v14M5 12h14",
  warning: "M12 4 2.8 20h18.4zM12 10v4.5M12 17.3v.2",
  out: "M13 5h6v6M19 5l-9 9M16 14v5H5V8h5",
  left: "M14.5 5.5 8 12l6.5 6.5",
  right: "M9.5 5.5 16 12l-6.5 6.5",
  down: "M12 5v14M6 13l6 6 6-6",
  again: "M20 12a8 8 0 1 1-2.6-5.9M20 3.5V8h-4.5",
  copy: "M9 8h10v12H9zM5 16V4h10",
  check: "M4.5 12.5l5 5 10-11",
  ask: "M4 5h16v11H10l-4 4v-4H4z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
