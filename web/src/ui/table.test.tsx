import { render, screen, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { wholeList, type Pages } from './paging';
import { Table, type Column } from './table';

interface Row {
  id: string;
  name: string;
  colour: string;
}

const columns: Column<Row>[] = [
  { id: 'name', header: 'Name', cell: (r) => r.name, sort: (r) => r.name },
  { id: 'colour', header: 'Colour', cell: (r) => r.colour, sort: (r) => r.colour, hidden: true },
];
const rows: Row[] = [
  { id: '1', name: 'beta', colour: 'red' },
  { id: '2', name: 'alpha', colour: 'blue' },
];

function show(pages: Pages<Row>, more: Partial<Parameters<typeof Table<Row>>[0]> = {}) {
  return render(<Table label="Things" noun="thing" columns={columns} pages={pages} rowKey={(r) => r.id} href={(r) => `/things/${r.id}`} empty={{ icon: 'site', title: 'No things', action: <button>Create one</button> }} {...more} />);
}
const firstCells = () => screen.getAllByRole('row').slice(1).map((r) => within(r).getAllByRole('cell')[0]?.textContent);

describe('Table', () => {
  beforeEach(() => {
    localStorage.clear();
    history.replaceState(null, '', '/things');
  });

  it('sorts by a click on the head, and says so', async () => {
    show(wholeList(rows));
    expect(firstCells()).toEqual(['beta', 'alpha']);
    await userEvent.click(screen.getByRole('button', { name: 'Name' }));
    expect(firstCells()).toEqual(['alpha', 'beta']);
    expect(screen.getByRole('columnheader', { name: 'Name' })).toHaveAttribute('aria-sort', 'ascending');
  });

  it('filters what is loaded, and says that there is more', async () => {
    show({ ...wholeList(rows), hasMore: true });
    expect(screen.getByText(/2 things loaded; there are more. Filter and order apply to what is loaded./)).toBeInTheDocument();
    await userEvent.type(screen.getByRole('searchbox'), 'alp');
    expect(firstCells()).toEqual(['alpha']);
    expect(screen.getByText(/1 of 2 loaded things shown/)).toBeInTheDocument();
    await userEvent.type(screen.getByRole('searchbox'), 'xyz');
    expect(screen.getByText('There are more things on the server.', { exact: false })).toBeInTheDocument();
    await userEvent.click(screen.getByRole('button', { name: 'Clear the filter' }));
    expect(firstCells()).toEqual(['beta', 'alpha']);
  });

  it('has no tools when it is brief: a part of a list cannot be filtered honestly', () => {
    show(wholeList(rows), { brief: true });
    expect(firstCells()).toEqual(['beta', 'alpha']);
    expect(screen.queryByRole('searchbox')).toBeNull();
    expect(screen.queryByRole('button')).toBeNull();
    expect(screen.queryByText(/loaded/)).toBeNull();
  });

  it('shows a long list a part at a time, and filters all of it', async () => {
    show(wholeList(Array.from({ length: 450 }, (_, i) => ({ id: String(i), name: `row ${i}`, colour: '' }))));
    expect(firstCells()).toHaveLength(200);
    expect(screen.getByText('200 of 450 loaded things shown')).toBeInTheDocument();
    await userEvent.type(screen.getByRole('searchbox'), '449');
    expect(firstCells()).toEqual(['row 449']);
    expect(screen.queryByRole('button', { name: 'Show more' })).toBeNull();
    await userEvent.clear(screen.getByRole('searchbox'));
    await userEvent.click(screen.getByRole('button', { name: 'Show more' }));
    expect(firstCells()).toHaveLength(450);
    expect(screen.getByText('450 things loaded')).toBeInTheDocument();
  });

  it('loads more when asked', async () => {
    const loadMore = vi.fn();
    show({ ...wholeList(rows), hasMore: true, loadMore });
    await userEvent.click(screen.getByRole('button', { name: 'Load more' }));
    expect(loadMore).toHaveBeenCalledOnce();
  });

  it('remembers which columns were chosen', async () => {
    const { unmount } = show(wholeList(rows));
    expect(screen.queryByRole('columnheader', { name: 'Colour' })).toBeNull();
    await userEvent.click(screen.getByLabelText('Colour'));
    expect(screen.getByRole('columnheader', { name: 'Colour' })).toBeInTheDocument();
    unmount();
    show(wholeList(rows));
    expect(screen.getByRole('columnheader', { name: 'Colour' })).toBeInTheDocument();
  });

  it('shows bones while it loads, what to do when it is empty, and the error with a way to try again', async () => {
    const refresh = vi.fn();
    const { rerender } = show(wholeList<Row>(undefined));
    expect(screen.getByRole('table')).toHaveAttribute('aria-busy', 'true');
    const props = { label: 'Things', noun: 'thing', columns, rowKey: (r: Row) => r.id, empty: { icon: 'site' as const, title: 'No things', action: <button>Create one</button> } };
    rerender(<Table {...props} pages={wholeList<Row>([])} />);
    expect(screen.getByRole('heading', { name: 'No things' })).toBeInTheDocument();
    expect(screen.getByRole('button', { name: 'Create one' })).toBeInTheDocument();
    rerender(<Table {...props} pages={wholeList<Row>(undefined, new Error('the disk is full'), refresh)} />);
    expect(screen.getByRole('alert')).toHaveTextContent('the disk is full');
    await userEvent.click(screen.getByRole('button', { name: 'Try again' }));
    expect(refresh).toHaveBeenCalledOnce();
  });

  it('goes from row to row with the arrow keys', async () => {
    show(wholeList(rows));
    screen.getByRole('link', { name: 'beta' }).focus();
    await userEvent.keyboard('{ArrowDown}');
    expect(screen.getByRole('link', { name: 'alpha' })).toHaveFocus();
    await userEvent.keyboard('{ArrowUp}');
    expect(screen.getByRole('link', { name: 'beta' })).toHaveFocus();
  });

  it('follows a row by a click anywhere in it', async () => {
    show(wholeList(rows), { columns: columns.map((c) => ({ ...c, hidden: false })) });
    await userEvent.click(screen.getByText('blue'));
    expect(location.pathname).toBe('/things/2');
  });

  it('keeps filter and order in the address, and takes them from there', async () => {
    history.replaceState(null, '', '/things?filter=a&sort=-name#tab');
    show(wholeList(rows));
    expect(firstCells()).toEqual(['beta', 'alpha']);
    await userEvent.type(screen.getByRole('searchbox'), 'l');
    expect(firstCells()).toEqual(['alpha']);
    expect(location.search + location.hash).toBe('?filter=al&sort=-name#tab');
    await userEvent.clear(screen.getByRole('searchbox'));
    await userEvent.click(screen.getByRole('button', { name: 'Name' }));
    expect(location.search).toBe('');
  });

  it('leaves search and order to a server that does them', async () => {
    show({ ...wholeList(rows), hasMore: true }, { server: { search: 'Name', sort: ['name'] } });
    await userEvent.type(screen.getByRole('searchbox', { name: 'Search all things' }), 'zzz');
    await userEvent.click(screen.getByRole('button', { name: 'Name' }));
    // What the server answered is shown as it is.
    expect(firstCells()).toEqual(['beta', 'alpha']);
    expect(location.search).toBe('?filter=zzz&sort=name');
  });

  it('loads as much as the address says', () => {
    history.replaceState(null, '', '/things?parts=3');
    const loadMore = vi.fn();
    const { rerender } = show({ ...wholeList(rows), hasMore: true, parts: 1, loadMore });
    expect(loadMore).toHaveBeenCalledTimes(1);
    rerender(<Table label="Things" noun="thing" columns={columns} pages={{ ...wholeList(rows), hasMore: true, parts: 3, loadMore }} rowKey={(r) => r.id} empty={{ icon: 'site', title: 'No things' }} />);
    expect(loadMore).toHaveBeenCalledTimes(1);
  });

  it('acts on the selected rows that it makes sense for, tells what failed, and tries that again', async () => {
    const run = vi.fn((row: Row) => (row.name === 'beta' && run.mock.calls.length < 3 ? Promise.reject(new Error('busy')) : Promise.resolve()));
    const after = vi.fn();
    const three = [...rows, { id: '3', name: 'gamma', colour: 'grey' }];
    show(wholeList(three), { bulk: [{ label: 'Paint', body: 'They get a new colour.', applies: (r) => r.colour !== 'grey', run, after }] });
    expect(screen.queryByRole('toolbar')).not.toBeInTheDocument();
    await userEvent.click(screen.getByRole('checkbox', { name: 'Select beta' }));
    expect(screen.getByText('1 thing selected')).toBeInTheDocument();
    await userEvent.click(screen.getByRole('checkbox', { name: 'Select all things that are shown' }));
    await userEvent.click(screen.getByRole('button', { name: 'Paint' }));
    const dialog = screen.getByRole('dialog', { name: 'Paint 2 things?' });
    expect(dialog).toHaveTextContent('beta, alpha');
    expect(dialog).toHaveTextContent('Left out: 1 thing');
    await userEvent.click(within(dialog).getByRole('button', { name: 'Paint 2 things' }));
    expect(dialog).toHaveTextContent('1 of 2 things done, 1 failed');
    expect(dialog).toHaveTextContent('beta: busy');
    await userEvent.click(within(dialog).getByRole('button', { name: 'Try the failed again' }));
    expect(dialog).toHaveTextContent('1 of 1 thing done');
    expect(run.mock.calls.map(([r]) => r.name)).toEqual(['beta', 'alpha', 'beta']);
    expect(after).toHaveBeenCalledTimes(2);
    await userEvent.click(within(dialog).getByText('Close'));
    expect(screen.queryByRole('toolbar')).not.toBeInTheDocument();
  });
});
