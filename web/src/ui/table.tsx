/**
 * The table of all lists. It filters and sorts only the loaded rows, and says so. Filters that the
 * API applies belong to the page (`tools`). On narrow screens, rows become cards.
 */
import { useState, type KeyboardEvent, type MouseEvent, type ReactNode } from 'react';
import { Link, useLocation } from 'wouter';
import { Icon, type IconName } from './icon';
import { Menu, Popover, type MenuAction } from './menu';
import { Empty, Failure } from './notice';
import { count, plural } from './number';
import type { Pages } from './paging';
import { filterRows, nextOrder, sortRows, type Order, type Sortable } from './table-view';

export interface Column<T> {
  id: string;
  header: string;
  cell: (row: T) => ReactNode;
  /** The value to sort by. Without it, the column cannot be sorted. */
  sort?: (row: T) => Sortable;
  /** The text to filter by. By default, the sort value. */
  text?: (row: T) => string;
  /** Aligns the content at the end of the cell, for numbers. */
  end?: boolean;
  /** Hidden until the user shows it. */
  hidden?: boolean;
}

export interface TableProps<T> {
  /** Names the table for screen readers, and for stored settings. */
  label: string;
  /** The first column names the row, and carries the link. */
  columns: readonly Column<T>[];
  pages: Pages<T>;
  rowKey: (row: T) => string;
  /** The path of the row's page. */
  href?: (row: T) => string;
  actions?: (row: T) => readonly MenuAction[];
  /** Filters that the API applies, shown before the table's own filter. */
  tools?: ReactNode;
  empty: { icon: IconName; title: string; text?: ReactNode; action?: ReactNode };
  /** What a row represents, as in "site". */
  noun: string;
  /** The plural, if it is not the noun with an s. */
  nouns?: string;
  /** For a few rows in the page's own order: no filter, sorting or count. */
  brief?: boolean;
}

/**
 * The number of rows that a browser renders without effort. Filter and order apply to all loaded
 * rows.
 */
const atOnce = 200;

function useHiddenColumns<T>(label: string, columns: readonly Column<T>[]) {
  const key = `mainstay.columns.${label}`;
  const [hidden, setHidden] = useState<ReadonlySet<string>>(() => {
    try {
      const stored = JSON.parse(localStorage.getItem(key) ?? 'null') as unknown;
      if (Array.isArray(stored)) return new Set(stored.map(String));
    } catch {
      // Treat unreadable settings as missing.
    }
    return new Set(columns.filter((c) => c.hidden).map((c) => c.id));
  });
  const toggle = (id: string) => {
    const next = new Set(hidden);
    if (!next.delete(id)) next.add(id);
    localStorage.setItem(key, JSON.stringify([...next]));
    setHidden(next);
  };
  return [hidden, toggle] as const;
}

export function Table<T>(props: TableProps<T>) {
  const { label, columns, pages, rowKey, href, actions, empty, noun, nouns = `${noun}s`, brief = false } = props;
  const [filter, setFilter] = useState('');
  const [order, setOrder] = useState<Order | null>(null);
  const [most, setMost] = useState(atOnce);
  const [hidden, toggle] = useHiddenColumns(label, columns);
  const [, navigate] = useLocation();

  const visible = columns.filter((c, i) => i === 0 || !hidden.has(c.id));
  const loaded = pages.rows;
  const found = loaded && sortRows(filterRows(loaded, columns, filter), columns, order);
  const rows = found?.slice(0, most);

  // A click anywhere in the row follows its link, unless it had another purpose.
  const follow = (row: T) => (event: MouseEvent<HTMLTableRowElement>) => {
    if (!href || (event.target as Element).closest('a, button, input, summary') || getSelection()?.toString()) return;
    if (event.metaKey || event.ctrlKey) window.open(href(row));
    else navigate(href(row));
  };

  const tools = !brief && (
    <div className="table-tools">
      <div className="table-filter">
        <Icon name="search" />
        <input className="input" type="search" data-filter value={filter} placeholder="Filter…" aria-label={`Filter the loaded ${nouns}`} onChange={(e) => setFilter(e.target.value)} />
      </div>
      {props.tools}
      <span className="table-end">
        <Popover
          label="Columns"
          className="btn-quiet"
          button={
            <>
              <Icon name="columns" /> Columns
            </>
          }
        >
          {() =>
            columns.slice(1).map((c) => (
              <label key={c.id} className="menu-item">
                <input type="checkbox" checked={!hidden.has(c.id)} onChange={() => toggle(c.id)} /> {c.header}
              </label>
            ))
          }
        </Popover>
      </span>
    </div>
  );

  if (pages.error !== undefined && !loaded) {
    return (
      <>
        {tools}
        <div className="card-body">
          <Failure error={pages.error} retry={pages.refresh} />
        </div>
      </>
    );
  }
  return (
    <>
      {tools}
      {loaded && rows?.length === 0 ? (
        loaded.length === 0 ? (
          <Empty icon={empty.icon} title={empty.title} action={empty.action}>
            {empty.text}
          </Empty>
        ) : (
          <Empty icon="search" title={`None of the loaded ${nouns} matches`} action={<button type="button" className="btn" onClick={() => setFilter('')}>Clear the filter</button>}>
            {pages.hasMore ? `The filter looks at what is loaded. There are more ${nouns} on the server.` : undefined}
          </Empty>
        )
      ) : (
        <div className="table-scroll">
          <table className="table table-cards" aria-label={label} aria-busy={!rows}>
            <thead>
              <tr>
                {visible.map((c) => (
                  <th key={c.id} scope="col" className={c.end ? 'end' : ''} aria-sort={order?.column === c.id ? (order.descending ? 'descending' : 'ascending') : undefined}>
                    {c.sort && !brief ? (
                      <button type="button" onClick={() => setOrder(nextOrder(order, c.id))}>
                        {c.header}
                        <Icon name={order?.column === c.id ? (order.descending ? 'down' : 'up') : 'sort'} />
                      </button>
                    ) : (
                      c.header
                    )}
                  </th>
                ))}
                {actions && (
                  <th scope="col">
                    <span className="visually-hidden">Actions</span>
                  </th>
                )}
              </tr>
            </thead>
            <tbody>
              {rows
                ? rows.map((row) => (
                    // On the keyboard, the link in the first cell does the same.
                     
                    <tr key={rowKey(row)} className={href ? 'linked' : ''} onClick={follow(row)}>
                      {visible.map((c, i) => (
                        <td key={c.id} data-label={c.header} className={`${c.end ? 'end' : ''} ${i === 0 ? 'primary' : ''}`}>
                          {i === 0 && href ? (
                            <Link href={href(row)} data-row onKeyDown={walkRows}>
                              {c.cell(row)}
                            </Link>
                          ) : (
                            <div>{c.cell(row)}</div>
                          )}
                        </td>
                      ))}
                      {actions && (
                        <td className="actions">
                          <Menu label={`Actions for ${columns[0]?.text?.(row) ?? String(columns[0]?.sort?.(row) ?? rowKey(row))}`} button={<Icon name="more" />} actions={actions(row)} />
                        </td>
                      )}
                    </tr>
                  ))
                : Array.from({ length: 5 }, (_, i) => (
                    <tr key={i}>
                      {visible.map((c) => (
                        <td key={c.id} data-label={c.header}>
                          <span className="skeleton" />
                        </td>
                      ))}
                      {actions && <td />}
                    </tr>
                  ))}
            </tbody>
          </table>
        </div>
      )}
      {!brief && loaded && (loaded.length > 0 || pages.hasMore) && (
        <div className="table-foot">
          <span role="status">
            {rows && rows.length < loaded.length ? `${count(rows.length)} of ${plural(loaded.length, `loaded ${noun}`, `loaded ${nouns}`)} shown` : `${plural(loaded.length, noun, nouns)} loaded`}
            {pages.hasMore ? '; there are more. Filter and order apply to what is loaded.' : ''}
          </span>
          {found && found.length > most && (
            <button type="button" className="btn btn-small" onClick={() => setMost(most + 5 * atOnce)}>
              Show more
            </button>
          )}
          {pages.hasMore && (
            <button
              type="button"
              className="btn btn-small"
              disabled={pages.loadingMore}
              onClick={() => {
                setMost(Infinity);
                pages.loadMore();
              }}
            >
              {pages.loadingMore ? 'Loading…' : 'Load more'}
            </button>
          )}
        </div>
      )}
    </>
  );
}

/** Arrow keys move between rows. */
function walkRows(event: KeyboardEvent<HTMLAnchorElement>): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const links = [...(event.currentTarget.closest('tbody')?.querySelectorAll<HTMLElement>('a[data-row]') ?? [])];
  const at = links.indexOf(event.currentTarget);
  if (step === undefined || at < 0) return;
  event.preventDefault();
  links[at + step]?.focus();
}

/** A filter that the API applies: a select next to the table's own filter. */
export function Choice<V extends string>({ label, value, options, onChange }: { label: string; value: V; options: readonly { value: V; label: string }[]; onChange: (value: V) => void }) {
  return (
    <select className="input" aria-label={label} value={value} onChange={(e) => onChange(e.target.value as V)}>
      {options.map((o) => (
        <option key={o.value} value={o.value}>
          {o.label}
        </option>
      ))}
    </select>
  );
}
