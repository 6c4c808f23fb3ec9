/**
 * The table of all lists. Where the API searches and sorts (`server`), the table shows what it
 * answers. Elsewhere the table filters and sorts only the loaded rows, and says so. Filter and order
 * are in the address. On narrow screens, rows become cards.
 */
import { useDeferredValue, useEffect, useState, type KeyboardEvent, type MouseEvent, type ReactNode } from 'react';
import { Link, useLocation } from 'wouter';
import { useParam } from './address';
import { BulkDialog, type BulkAction } from './bulk';
import { Icon, type IconName } from './icon';
import { Menu, Popover, type MenuAction } from './menu';
import { Empty, Failure } from './notice';
import { count, plural } from './number';
import type { Pages } from './paging';
import { atOnce, earlier, filterRows, later, nextOrder, shownPart, sortRows, type Order, type Sortable } from './table-view';

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
  /** Filters that the API applies, shown after the table's own filter. */
  tools?: ReactNode;
  /** Actions on the selected rows. Without any, rows cannot be selected. */
  bulk?: readonly BulkAction<T>[];
  /** What the API does itself. Pages read filter and order with `useServerList`. */
  server?: ServerList;
  /** Distinguishes the tables of one page in the address. */
  at?: string;
  empty: { icon: IconName; title: string; text?: ReactNode; action?: ReactNode };
  /** What a row represents, as in "site". */
  noun: string;
  /** The plural, if it is not the noun with an s. */
  nouns?: string;
  /** For a few rows in the page's own order: no filter, sorting or count. */
  brief?: boolean;
}

/** What the API does with a list. */
export interface ServerList {
  /** Says what is searched, as in “Name or label”. */
  search?: string;
  /** The columns that it sorts by. */
  sort?: readonly string[];
}

/** The search and the order of a list that the API searches and sorts, from the address. */
export function useServerList(at = ''): { q: string; order: Order | null } {
  const [filter] = useParam(`${at}filter`, '');
  const [sort] = useParam(`${at}sort`, '');
  return { q: useDeferredValue(filter.trim()), order: orderOf(sort) };
}

/** An order as it is written in the address: a column, with a dash before it if it descends. */
export const orderOf = (text: string): Order | null => (text === '' ? null : { column: text.replace(/^-/, ''), descending: text.startsWith('-') });
/** The order as the API names it. `names` maps columns to fields. */
export function sortFor<Field extends string>(order: Order | null, names: Record<string, Field>): Field | `-${Field}` | undefined {
  const field = names[order?.column ?? ''];
  return field && (order?.descending ? `-${field}` : field);
}

/** The values of a filter that stands for several, as “failed,denied” in the address. */
export const valuesOf = <V extends string>(text: string): V[] => text.split(',').filter(Boolean) as V[];

const textOf = (order: Order | null) => (order ? `${order.descending ? '-' : ''}${order.column}` : '');

/** How many parts of a list an address may ask for. */
const mostParts = 20;

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
  const { server = {}, bulk = [], at = '' } = props;
  const [filter, setFilter] = useParam(`${at}filter`, '');
  const [sort, setSort] = useParam(`${at}sort`, '');
  const [parts, setParts] = useParam(`${at}parts`, '1');
  const order = orderOf(sort);
  // The last row that is shown, counted in the rows that are found.
  const [end, setEnd] = useState(atOnce);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [running, setRunning] = useState<{ action: BulkAction<T>; rows: T[] }>();
  const [hidden, toggle] = useHiddenColumns(label, columns);
  const [, navigate] = useLocation();

  const visible = columns.filter((c, i) => i === 0 || !hidden.has(c.id));
  const loaded = pages.rows;
  const filtered = loaded && (server.search === undefined ? filterRows(loaded, columns, filter) : loaded);
  const found = filtered && (server.sort === undefined ? sortRows(filtered, columns, order) : filtered);
  const shown = shownPart(found?.length ?? 0, end);
  const rows = found?.slice(shown.first, shown.end);
  const sortable = (c: Column<T>) => !brief && (server.sort ? server.sort.includes(c.id) : c.sort !== undefined);
  const nameOf = (row: T) => columns[0]?.text?.(row) ?? String(columns[0]?.sort?.(row) ?? rowKey(row));
  // Rows that are no longer there cannot be acted on.
  const selected = found?.filter((r) => chosen.has(rowKey(r))) ?? [];
  const select = (which: readonly T[], on: boolean) => {
    const next = new Set(chosen);
    for (const row of which) {
      if (on) next.add(rowKey(row));
      else next.delete(rowKey(row));
    }
    setChosen(next);
  };

  // An address may ask for more than the first part.
  const { hasMore, loadingMore, loadMore } = pages;
  const wanted = Math.min(Number(parts) || 1, mostParts);
  const missing = !brief && (pages.parts ?? wanted) < wanted;
  useEffect(() => {
    if (missing && hasMore && !loadingMore) loadMore();
  }, [missing, hasMore, loadingMore, loadMore]);

  // Another filter or order is another list: it begins at its first part.
  const another = (set: (value: string) => void) => (value: string) => {
    setEnd(atOnce);
    if (parts !== '1') setParts('1');
    set(value);
  };
  const [filterBy, sortBy] = [another(setFilter), another(setSort)];

  // A click anywhere in the row follows its link, unless it had another purpose.
  const follow = (row: T) => (event: MouseEvent<HTMLTableRowElement>) => {
    if (!href || (event.target as Element).closest('a, button, input, summary, td.select') || getSelection()?.toString()) return;
    if (event.metaKey || event.ctrlKey) window.open(href(row));
    else navigate(href(row));
  };

  const tools = !brief && (
    <div className="table-tools">
      <div className="table-filter">
        <Icon name="search" />
        <input
          className="input"
          type="search"
          data-filter
          value={filter}
          maxLength={128}
          placeholder={server.search ?? 'Filter…'}
          aria-label={server.search === undefined ? `Filter the loaded ${nouns}` : `Search all ${nouns}`}
          onChange={(e) => filterBy(e.target.value)}
        />
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

  const selection = selected.length > 0 && (
    <div className="table-selection" role="toolbar" aria-label="Actions on the selection">
      <span role="status">{plural(selected.length, noun, nouns)} selected</span>
      {bulk.map((action) => (
        <button
          key={action.label}
          type="button"
          className={`btn btn-small ${action.danger ? 'btn-danger' : ''}`}
          disabled={!selected.some((r) => action.applies?.(r) ?? true)}
          onClick={() => setRunning({ action, rows: selected })}
        >
          {action.label}
        </button>
      ))}
      <button type="button" className="btn btn-small btn-quiet" onClick={() => setChosen(new Set())}>
        Clear
      </button>
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
      {selection}
      {loaded && rows?.length === 0 ? (
        loaded.length === 0 && (server.search === undefined || filter === '') ? (
          <Empty icon={empty.icon} title={empty.title} action={empty.action}>
            {empty.text}
          </Empty>
        ) : (
          <Empty icon="search" title={server.search === undefined ? `None of the loaded ${nouns} matches` : `No ${noun} matches`} action={<button type="button" className="btn" onClick={() => filterBy('')}>Clear the filter</button>}>
            {pages.hasMore ? (server.search === undefined ? `The filter looks at what is loaded. There are more ${nouns} on the server.` : 'A page of a search looks at a limited number of rows: load more to search further.') : undefined}
          </Empty>
        )
      ) : (
        <>
          {shown.first > 0 && found && (
            <div className="table-foot">
              <span>{plural(shown.first, noun, nouns)} before these</span>
              <button type="button" className="btn btn-small" onClick={() => setEnd(earlier(found.length, end))}>
                Show earlier
              </button>
            </div>
          )}
          <div className="table-scroll">
            <table className="table table-cards" aria-label={label} aria-busy={!rows}>
              <thead>
                <tr>
                  {bulk.length > 0 && (
                    <th scope="col" className="select">
                      <input
                        type="checkbox"
                        aria-label={`Select all ${nouns} that are shown`}
                        disabled={!rows}
                        checked={rows !== undefined && rows.length > 0 && rows.every((r) => chosen.has(rowKey(r)))}
                        ref={(box) => {
                          if (box) box.indeterminate = selected.length > 0 && !rows?.every((r) => chosen.has(rowKey(r)));
                        }}
                        onChange={(e) => select(rows ?? [], e.target.checked)}
                      />
                    </th>
                  )}
                  {visible.map((c) => (
                    <th key={c.id} scope="col" className={c.end ? 'end' : ''} aria-sort={order?.column === c.id ? (order.descending ? 'descending' : 'ascending') : undefined}>
                      {sortable(c) ? (
                        <button type="button" onClick={() => sortBy(textOf(nextOrder(order, c.id)))}>
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
                     
                      <tr key={rowKey(row)} className={`${href ? 'linked' : ''} ${chosen.has(rowKey(row)) ? 'selected' : ''}`} onClick={follow(row)}>
                        {bulk.length > 0 && (
                          <td className="select">
                            <input type="checkbox" aria-label={`Select ${nameOf(row)}`} checked={chosen.has(rowKey(row))} onChange={(e) => select([row], e.target.checked)} />
                          </td>
                        )}
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
                            <Menu label={`Actions for ${nameOf(row)}`} button={<Icon name="more" />} actions={actions(row)} />
                          </td>
                        )}
                      </tr>
                    ))
                  : Array.from({ length: 5 }, (_, i) => (
                      <tr key={i}>
                        {bulk.length > 0 && <td className="select" />}
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
        </>
      )}
      {!brief && loaded && (loaded.length > 0 || pages.hasMore) && (
        <div className="table-foot">
          <span role="status">
            {rows && rows.length < loaded.length
              ? `${shown.first > 0 ? `${count(shown.first + 1)} to ${count(shown.end)}` : count(rows.length)} of ${plural(loaded.length, `loaded ${noun}`, `loaded ${nouns}`)} shown`
              : pages.total === undefined ? `${plural(loaded.length, noun, nouns)} loaded` : `${count(loaded.length)} of ${plural(pages.total, noun, nouns)} loaded`}
            {pages.hasMore ? (server.search === undefined ? '; there are more. Filter and order apply to what is loaded.' : '; there are more.') : ''}
          </span>
          {found && found.length > shown.end && (
            <button type="button" className="btn btn-small" onClick={() => setEnd(later(found.length, end))}>
              Show more
            </button>
          )}
          {pages.hasMore && (
            <button
              type="button"
              className="btn btn-small"
              disabled={pages.loadingMore}
              onClick={() => {
                setEnd(Infinity);
                setParts(String(Math.min((pages.parts ?? 1) + 1, mostParts)));
                pages.loadMore();
              }}
            >
              {pages.loadingMore ? 'Loading…' : 'Load more'}
            </button>
          )}
        </div>
      )}
      {running && (
        <BulkDialog
          action={running.action}
          rows={running.rows}
          counted={(n) => plural(n, noun, nouns)}
          name={nameOf}
          onClose={() => {
            setRunning(undefined);
            setChosen(new Set());
          }}
        />
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
