/** Small line icons. They never carry meaning alone: there is always a text next to them. */
const paths = {
  alert: 'M8 2.5 14.5 13.5h-13zM8 6.5v3M8 11.6v.1',
  activity: 'M1.5 8h3l2-5 3 10 2-5h3',
  audit: 'M4 1.5h6l3 3v10H4zM6.5 7.5h4M6.5 10.5h4',
  balance: 'M8 1.5v4M8 5.5 3 9.5v4M8 5.5l5 4v4M8 5.5v8',
  ban: 'M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM3.5 3.5l9 9',
  campaign: 'M2 13.5v-3M6 13.5v-6M10 13.5v-9M14 13.5v-11',
  check: 'M2.5 8.5 6 12l7.5-8',
  chevron: 'M3.5 6 8 10.5 12.5 6',
  clock: 'M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM8 4.5V8l2.5 1.5',
  close: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  columns: 'M2 2.5h12v11H2zM6 2.5v11M10 2.5v11',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  deployment: 'M8 1.5 14 4.7v6.6L8 14.5l-6-3.2V4.7zM2 4.7 8 8l6-3.3M8 8v6.5',
  device: 'M4 4h8v8H4zM6 1.5V4M10 1.5V4M6 12v2.5M10 12v2.5M1.5 6H4M1.5 10H4M12 6h2.5M12 10h2.5',
  dot: 'M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z',
  event: 'M9 1.5 3 9h4.5L7 14.5 13 7H8.5z',
  info: 'M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM8 7.2v4M8 4.6v.1',
  key: 'M5 11.5a3.2 3.2 0 1 0 0-6.4 3.2 3.2 0 0 0 0 6.4zM7.8 7 14 7v2.5M11.5 7v2',
  letter: 'M1.5 3.5h13v9h-13zM1.5 4 8 9l6.5-5',
  menu: 'M2 4h12M2 8h12M2 12h12',
  more: 'M3 8h.1M8 8h.1M13 8h.1',
  org: 'M2.5 14.5v-12h7v12M9.5 6.5h4v8M1 14.5h14M5 5.5h2M5 8.5h2M5 11.5h2',
  overview: 'M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z',
  node: 'M2 2.5h12v8.5H2zM5.5 14h5M8 11v3',
  pause: 'M5 3v10M11 3v10',
  peers: 'M3.5 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM12.5 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM5.5 8h5',
  policy: 'M8 1.5 13.5 3.5v4c0 3.5-2.3 5.8-5.5 7-3.2-1.2-5.5-3.5-5.5-7v-4zM5.5 8l2 2 3.2-3.6',
  refresh: 'M13.5 8a5.5 5.5 0 1 1-1.6-3.9M12 1.5v3H9',
  route: 'M3.5 5.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM12.5 14.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM3.5 5.5v4a3 3 0 0 0 3 3h4',
  search: 'M7 12a5 5 0 1 0 0-10 5 5 0 0 0 0 10zM10.7 10.7 14 14',
  server: 'M2 2.5h12V7H2zM2 9h12v4.5H2zM4.5 4.75h.1M4.5 11.25h.1',
  site: 'M8 14.5S13 10.2 13 6.5a5 5 0 0 0-10 0c0 3.7 5 8 5 8zM8 8.3a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6z',
  spin: 'M8 1.5a6.5 6.5 0 1 1-6.5 6.5',
  sort: 'M5 6.5 8 3l3 3.5M5 9.5 8 13l3-3.5',
  trash: 'M2.5 4h11M6 4V2h4v2M4 4l.7 10h6.6L12 4M6.7 6.5v5M9.3 6.5v5',
  up: 'M4 9.5 8 5l4 4.5',
  down: 'M4 6.5 8 11l4-4.5',
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}

/** The logo of the product. */
export function Logo() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#2f5bd0" />
      <path d="M16 5v22M16 8l9 17M16 8L7 25M9 25h14" fill="none" stroke="#fff" strokeWidth="2.4" strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  );
}
